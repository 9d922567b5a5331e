//! `adjutant completions SHELL`: prints a shell completion script.

use clap::{Args, CommandFactory};

use super::super::args::CliArguments;
use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::exit_status::ExitStatus;
use crate::cli::output;
use crate::config::Settings;

/// Print a completion script for a shell
///
/// Exit code 0.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Example:\n  adjutant completions bash > ~/.local/share/bash-completion/completions/adjutant"
)]
pub(crate) struct CompletionsArguments {
    /// Which shell
    shell: clap_complete::Shell,
}

impl CliCommand for CompletionsArguments {
    fn access(&self) -> CommandAccess {
        CommandAccess::ReadsOnly
    }

    fn run(&self, _settings: &Settings) -> ExitStatus {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CliArguments::command(), "adjutant", &mut script);
        output::print(String::from_utf8_lossy(&script));
        ExitStatus::Success
    }
}
