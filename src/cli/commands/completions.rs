//! `adjutant completions SHELL`: prints a shell completion script.

use clap::{Args, CommandFactory};

use crate::cli::args::CliArguments;
use crate::cli::{CliCommand, CommandResult, ExitStatus, output};
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
    fn run(&self, _settings: &Settings) -> CommandResult {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut CliArguments::command(), "adjutant", &mut script);
        output::print(String::from_utf8_lossy(&script));
        Ok(ExitStatus::Success)
    }
}
