//! Entry point: parses the command line and runs the command.

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

use super::allowed_below_agent::refuse_below_agent;
use super::args::CliArguments;
use super::exit_status::ExitStatus;
use super::output;
use crate::cli::commands::{demo, hook};
use crate::config::Settings;
use crate::process::run_hidden_command;

/// Parses the command line, runs the command and returns its exit status.
pub fn main() -> ExitCode {
    if let Some(code) = run_hidden_command() {
        return code;
    }
    if let Some(code) = demo::hidden_command() {
        return code;
    }
    if let Some(command) = hook::command_from_args() {
        return refuse_below_agent(&command).unwrap_or_else(hook::handle).into();
    }
    let arguments = CliArguments::parse();
    refuse_below_agent(&arguments.command).unwrap_or_else(|| run(&arguments)).into()
}

fn run(arguments: &CliArguments) -> ExitStatus {
    match Settings::resolve(arguments.root.as_deref()) {
        Ok(settings) => arguments.command.command().run(&settings),
        Err(error) => usage_error(&error),
    }
}

/// Prints an error and its causes on one line and returns exit status 2.
pub(crate) fn usage_error(error: &dyn Error) -> ExitStatus {
    output::print_error(output::error_with_causes(error));
    ExitStatus::Usage
}
