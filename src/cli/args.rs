//! Grammar of the command line: global options and the list of commands.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use super::command::CliCommand;
use super::commands::{
    audit, auth, check, completions, costs, demo, doctor, events, explain, extensions, gateway,
    hook, init, list, matrix, new, plan, run, runs, schema, serve, sessions, show, stats, token,
    trust,
};

/// Delegates work to Claude Code subagents that have rights, tools and limits of their own.
#[derive(Debug, Parser)]
#[command(name = "adjutant", version, about, max_term_width = 100)]
pub(crate) struct CliArguments {
    /// The project's folder [default: $ADJUTANT_ROOT, $CLAUDE_PROJECT_DIR, or the current folder]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Declares the commands in the order of `--help`. Help text, access and work of each are in its own file.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($arguments:ty),)*) => {
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
        }
    };
}

commands! {
    Init(init::InitArguments),
    List(list::ListArguments),
    Show(show::ShowArguments),
    New(new::NewArguments),
    Check(check::CheckArguments),
    Schema(schema::SchemaArguments),
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    #[command(subcommand)]
    Extensions(extensions::ExtensionsCommand),
    Explain(explain::ExplainArguments),
    Matrix(matrix::MatrixArguments),
    Audit(audit::AuditArguments),
    Costs(costs::CostsArguments),
    Events(events::EventsArguments),
    Stats(stats::StatsArguments),
    Serve(serve::ServeArguments),
    Run(run::RunArguments),
    Plan(plan::PlanArguments),
    Doctor(doctor::DoctorArguments),
    Demo(demo::DemoArguments),
    Gateway(gateway::GatewayArguments),
    Hook(hook::HookArguments),
    #[command(subcommand)]
    Token(token::TokenCommand),
    Trust(trust::TrustArguments),
    #[command(subcommand)]
    Auth(auth::AuthCommand),
    Completions(completions::CompletionsArguments),
}
