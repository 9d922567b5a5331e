//! `adjutant doctor`: is everything there that a delegation needs?

mod command;
mod finding;
mod servers;

pub(super) use command::{DoctorArguments, run};
