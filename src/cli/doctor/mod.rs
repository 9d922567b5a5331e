//! `adjutant doctor`: is everything there that a delegation needs?

#[path = "../commands/doctor/command.rs"]
mod command;
#[path = "../commands/doctor/finding.rs"]
mod finding;
#[path = "../commands/doctor/servers.rs"]
mod servers;

pub(super) use command::{DoctorArguments, run};
