//! `adjutant doctor`: checks the requirements of a delegation.

mod command;
mod finding;
mod servers;

pub(crate) use command::DoctorArguments;
