//! Grammar of the command line: global options, and the list of commands with their access below an agent.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::commands::{
    audit, auth, check, completions, costs, demo, doctor, events, explain, extensions, gateway,
    hook, init, list, matrix, new, plan, run, runs, schema, serve, sessions, show, stats, token,
    trust,
};
use super::{CommandError, ExitStatus};
use crate::config::Settings;

/// Delegates work to Claude Code subagents that have rights, tools and limits of their own.
#[derive(Debug, Parser)]
#[command(name = "adjutant", version, about, max_term_width = 100, after_help = ExitStatus::help())]
pub(crate) struct CliArguments {
    /// The project's folder [default: $ADJUTANT_ROOT, $CLAUDE_PROJECT_DIR, or the nearest project above the current folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Result of every command. `dispatch.rs` prints the error.
pub(crate) type CommandResult = Result<ExitStatus, CommandError>;

/// `--json` of all commands that print data.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct JsonArgument {
    /// Print JSON for a program
    #[arg(long)]
    pub(crate) json: bool,
}

/// Implemented by the arguments of every command, in the file of the command.
pub(crate) trait CliCommand {
    /// Runs the command. Output goes through [`super::output`]; the error is printed by the caller.
    fn run(&self, settings: &Settings) -> CommandResult;
}

/// Effect of a command, which decides whether a subagent may run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandAccess {
    /// Reads the project, and starts at most `claude --help`.
    ReadsOnly,
    /// Acts for a caller, starts servers, or changes the project or the user's settings.
    ActsOrChanges,
}

fn reads_only<A>(_arguments: &A) -> CommandAccess {
    CommandAccess::ReadsOnly
}

fn acts_or_changes<A>(_arguments: &A) -> CommandAccess {
    CommandAccess::ActsOrChanges
}

/// Declares the commands in the order of `--help`, each with a function from its arguments to its access.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($arguments:ty): $access:path,)*) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[$attribute])* $name($arguments),)*
        }

        impl Command {
            pub(crate) fn command(&self) -> &dyn CliCommand {
                match self {
                    $(Self::$name(arguments) => arguments,)*
                }
            }

            pub(crate) fn access(&self) -> CommandAccess {
                match self {
                    $(Self::$name(arguments) => $access(arguments),)*
                }
            }
        }
    };
}

impl Command {
    /// Returns false for commands that work without a project, in the current folder. `doctor` reports it.
    pub(crate) fn needs_project(&self) -> bool {
        !matches!(
            self,
            Self::Init(_)
                | Self::Schema(_)
                | Self::Doctor(_)
                | Self::Demo(_)
                | Self::Hook(_)
                | Self::Completions(_)
        )
    }
}

commands! {
    Init(init::InitArguments): acts_or_changes,
    List(list::ListArguments): reads_only,
    Show(show::ShowAgentArguments): reads_only,
    New(new::NewArguments): acts_or_changes,
    Check(check::CheckArguments): check::CheckArguments::access,
    Schema(schema::SchemaArguments): reads_only,
    #[command(subcommand)]
    Runs(runs::RunsCommand): runs::RunsCommand::access,
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand): sessions::SessionsCommand::access,
    #[command(subcommand)]
    Extensions(extensions::ExtensionsCommand): extensions::ExtensionsCommand::access,
    Explain(explain::ExplainArguments): reads_only,
    Matrix(matrix::MatrixArguments): reads_only,
    Audit(audit::AuditArguments): reads_only,
    Costs(costs::CostsArguments): reads_only,
    Events(events::EventsArguments): reads_only,
    Stats(stats::StatsArguments): reads_only,
    Serve(serve::ServeArguments): acts_or_changes,
    Run(run::RunArguments): acts_or_changes,
    Plan(plan::PlanArguments): reads_only,
    Doctor(doctor::DoctorArguments): doctor::DoctorArguments::access,
    Demo(demo::DemoArguments): acts_or_changes,
    Gateway(gateway::GatewayArguments): acts_or_changes,
    Hook(hook::HookArguments): acts_or_changes,
    // The list of tokens is useful only together with creating and revoking them.
    #[command(subcommand)]
    Token(token::TokenCommand): acts_or_changes,
    Trust(trust::TrustArguments): acts_or_changes,
    #[command(subcommand)]
    Auth(auth::AuthCommand): auth::AuthCommand::access,
    Completions(completions::CompletionsArguments): reads_only,
}
