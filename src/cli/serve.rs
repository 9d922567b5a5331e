//! `adjutant serve`: the MCP server for a main agent.

use std::sync::Arc;

use clap::Args;

use super::audit::audit_options;
use super::dispatch::refuse;
use super::exit::Exit;
use super::runtime::{main_session, start_shutdown};
use super::{logging, nesting, render, runtime};
use crate::call::Orchestrator;
use crate::config::{GatewayOptions, Settings};
use crate::gateway::Gateway;
use crate::identity::Caller;
use crate::server::serve_stdio;

/// Serve `run_subagent` over stdin and stdout (MCP).
///
/// Claude Code starts this by itself once `.mcp.json` names it; `adjutant init` writes that entry.
/// Nothing but protocol goes over stdout. Logs go to stderr (RUST_LOG sets how much).
/// SIGTERM and SIGINT let running calls end within a grace period, SIGHUP reads the files again.
/// Exit code 0 when the client has gone or a signal came; 2 if it cannot start.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  claude mcp add adjutant -- adjutant serve
  RUST_LOG=debug adjutant serve --log-format json")]
pub(super) struct ServeArguments {
    /// Who the client is, where nothing attests it
    #[arg(long, value_name = "NAME", default_value = "main")]
    caller: String,

    #[command(flatten)]
    log: logging::LogArguments,
}

pub(super) fn run(arguments: &ServeArguments, settings: Settings) -> Exit {
    if let Some(refused) = nesting::refuse_inside_a_run("serve") {
        return refused;
    }
    let options = match GatewayOptions::from_environment() {
        Ok(options) => options,
        Err(error) => {
            render::problem(error);
            return Exit::Usage;
        }
    };
    logging::start(&arguments.log, "info");
    let caller = Caller { session_id: main_session(), ..Caller::named(&arguments.caller) };
    runtime::block_on(async {
        let shutdown = match start_shutdown(&settings) {
            Ok(shutdown) => shutdown,
            Err(error) => return refuse(&error),
        };
        let gateway = Gateway::start_recording(&settings, options, audit_options(&settings));
        let orchestrator = Orchestrator::start(settings, shutdown, Arc::clone(&gateway));
        orchestrator.stay_ready();
        match Box::pin(serve_stdio(orchestrator, gateway, caller)).await {
            Ok(()) => Exit::Success,
            Err(error) => refuse(&error),
        }
    })
}
