//! The grammar of the command line.

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser, Subcommand};

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
    /// Make a project ready for Claude Code: server, hooks, a first agent, the list of subagents
    Init(Init),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// Puts the server `adjutant` into `.mcp.json`, its hooks into `.claude/settings.json`, a first agent
/// into a project that has none, and the list of subagents into `agents/main/system-prompt.md`.
///
/// What is there already is kept, byte for byte, and nothing else is touched. Run it as often as you
/// like: the second time it changes nothing.
#[derive(Clone, Copy, Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 a file is not as it must be (nothing was changed), 2 wrong usage."
)]
pub(super) struct Init {
    /// Only renew the list of subagents between the marks in `agents/main/system-prompt.md`
    #[arg(long)]
    pub(super) refresh: bool,
    /// Show what would change as a diff, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print what was done as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The names of all commands.
pub(super) fn command_names() -> Vec<String> {
    Arguments::command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}
