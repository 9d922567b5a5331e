//! The grammar of the command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Delegates work to Claude Code subagents that have rights, tools and limits of their own.
#[derive(Debug, Parser)]
#[command(name = "adjutant", version, about, max_term_width = 100)]
pub(super) struct Arguments {
    /// The project's folder [default: $ADJUTANT_ROOT, $CLAUDE_PROJECT_DIR, or the current folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub(super) root: Option<PathBuf>,

    #[command(subcommand)]
    pub(super) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}
