//! The grammar of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::audit::AuditArguments;
use super::auth::AuthCommand;
use super::check::CheckArguments;
use super::events::EventsArguments;
use super::explain::ExplainArguments;
use super::extensions::ExtensionsCommand;
use super::list::ListArguments;
use super::matrix::MatrixArguments;
use super::new::NewArguments;
use super::runs::RunsCommand;
use super::schema::SchemaArguments;
use super::sessions::SessionsCommand;
use super::show::ShowArguments;
use super::stats::StatsArguments;
use super::token::TokenCommand;

use super::{costs, demo, doctor, gateway, hook, plan, run, serve, trust};

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
    ///
    /// Puts the server `adjutant` into .mcp.json, the hooks that this version has into
    /// .claude/settings.json, a first agent into a project that has none, and the list of subagents
    /// between two marks in agents/main/system-prompt.md. What is there already is kept, byte for byte;
    /// run twice it changes nothing. Exit code 0; 1 if a file is not as it must be (nothing was changed).
    #[command(after_long_help = "Examples:\n  adjutant init --dry-run\n  adjutant init\n  \
        adjutant init --refresh   # after agents were added, removed or described otherwise")]
    Init(Init),

    /// List the agents of the project, sound and broken
    ///
    /// Exit code 0, also when agents are broken: `check` is the command that judges.
    #[command(after_long_help = "Examples:\n  adjutant list\n  \
        adjutant list --json | jq -r '.[] | select(.state == \"broken\") | .reason'")]
    List(ListArguments),

    /// Show what an agent's file means, every setting with where it came from
    ///
    /// Variables such as ${API_KEY} are shown as they were written; they are put in only when the agent
    /// is started. Exit code 0; 1 if the agent is broken; 2 if there is no such agent.
    #[command(after_long_help = "Examples:\n  adjutant show web-search\n  \
        adjutant show web-search --json | jq '.settings[] | select(.key == \"timeout_ms\")'")]
    Show(ShowArguments),

    /// Make a folder for a new agent, with a commented agent.md
    ///
    /// Nothing is overwritten; the list of subagents in agents/main/system-prompt.md is renewed where
    /// there is one. Exit code 0; 1 if the folder is there already; 2 if the name cannot be used.
    #[command(after_long_help = "Example:\n  adjutant new web-search")]
    New(NewArguments),

    /// Check every file of the project before it bites
    ///
    /// Looks at agents/*/agent.md, agents/defaults.yaml, extensions, .mcp.json, the gateway's rules,
    /// .claude/settings.json, and the list of subagents in agents/main/system-prompt.md. Findings go to
    /// stderr, the summary to stdout. Exit code 0 if nothing is wrong, else 1.
    #[command(after_long_help = "Examples:\n  adjutant check\n  adjutant check --strict\n  \
        adjutant check --json | jq -r '.diagnostics[] | \"\\(.file):\\(.line): \\(.message)\"'")]
    Check(CheckArguments),

    /// Print a JSON Schema, so that editors complete and check agent files
    ///
    /// Exit code 0.
    #[command(after_long_help = "Examples:\n  adjutant schema > agent.schema.json\n  \
        adjutant schema defaults > defaults.schema.json")]
    Schema(SchemaArguments),

    /// Show what is running or has run, and end it
    #[command(
        subcommand,
        after_long_help = "Examples:\n  adjutant runs list\n  adjutant runs show last\n  adjutant runs stop 8f3a"
    )]
    Runs(RunsCommand),

    /// Show the conversations of agents with `session: true`, and forget them
    #[command(
        subcommand,
        after_long_help = "Examples:\n  adjutant sessions list\n  adjutant sessions show github@pr-42"
    )]
    Sessions(SessionsCommand),

    /// Show, check, add and remove extensions: bundles of agents and MCP servers
    #[command(
        subcommand,
        after_long_help = "Examples:\n  adjutant extensions list\n  adjutant extensions add ./review-kit"
    )]
    Extensions(ExtensionsCommand),

    /// Say whether an agent may use a server, a tool or a built-in tool, and by which rule
    ///
    /// Exit code 0: allowed. 1: denied. 2: cannot say.
    #[command(
        after_long_help = "Examples:\n  adjutant explain --agent web-search --builtin Bash\n  \
        adjutant explain --agent web-search --server brave-search --tool brave_web_search"
    )]
    Explain(ExplainArguments),

    /// Show what every agent may use: servers, tools and built-in tools, each with its rule
    ///
    /// Exit code 0; 2 if an agent or a server is not known.
    #[command(
        after_long_help = "Examples:\n  adjutant matrix --agent dev\n  adjutant matrix --html > matrix.html"
    )]
    Matrix(MatrixArguments),

    /// Show the audit log, or check that it is as it was written
    ///
    /// Exit code 0; 1 if `--verify` finds that it is not; 2 if it cannot be read.
    #[command(after_long_help = "Examples:\n  adjutant audit --follow\n  adjutant audit --verify")]
    Audit(AuditArguments),

    Costs(costs::CostsArguments),
    /// Show what the main agent, its native subagents and ours have done, one event a line
    ///
    /// Exit code 0; 2 if the events cannot be read.
    #[command(
        after_long_help = "Examples:\n  adjutant events --follow\n  adjutant events --agent web-search --type PermissionDenied\n  \
        adjutant events --json --since 1h | jq -r .tool_name"
    )]
    Events(EventsArguments),

    /// Count what agents have done: runs, failures, durations, cost, tokens, refusals
    ///
    /// Exit code 0; 2 if the events cannot be read.
    #[command(after_long_help = "Examples:\n  adjutant stats\n  adjutant stats --since 30d --json")]
    Stats(StatsArguments),

    Serve(serve::ServeArguments),
    Run(run::RunArguments),
    Plan(plan::PlanArguments),
    Doctor(doctor::DoctorArguments),
    Demo(demo::DemoArguments),
    Gateway(gateway::GatewayArguments),
    Hook(hook::HookArguments),

    /// Make, show and revoke the tokens of callers that come over HTTP
    #[command(
        subcommand,
        after_long_help = "Examples:\n  adjutant token new ci-bot --expires 30d\n  adjutant token list"
    )]
    Token(TokenCommand),
    Trust(trust::TrustArguments),
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Print a completion script for a shell
    ///
    /// Exit code 0.
    #[command(
        after_long_help = "Example:\n  adjutant completions bash > ~/.local/share/bash-completion/completions/adjutant"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// What `init` may be told.
#[derive(Clone, Copy, Debug, Args)]
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
