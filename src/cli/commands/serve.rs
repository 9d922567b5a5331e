//! `adjutant serve`: the MCP server for a main agent.

use std::sync::Arc;

use clap::Args;

use super::audit::audit_options;
use super::dispatch::refuse;
use super::exit::Exit;
use super::http::HttpArguments;
use super::runtime::{main_session, start_shutdown};
use super::{logging, main_sessions, nesting, render, runtime};
use crate::call::Orchestrator;
use crate::config::{GatewayOptions, Settings};
use crate::gateway::Gateway;
use crate::identity::Caller;
use crate::server::{serve_http, serve_stdio, serve_stdio_and_http};

/// Serve `run_subagent` over stdin and stdout, or over HTTP (MCP).
///
/// Claude Code starts this by itself once `.mcp.json` names it; `adjutant init` writes that entry.
/// With --http it serves many clients at once, each known by its token (`adjutant token new`).
/// Nothing but protocol goes over stdout. Logs go to stderr (RUST_LOG sets how much).
/// SIGTERM and SIGINT let running calls end within a grace period, SIGHUP reads the files again.
/// Exit code 0 when the client has gone or a signal came; 2 if it cannot start.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  claude mcp add adjutant -- adjutant serve
  adjutant token new editor && adjutant serve --http 127.0.0.1:8080
  RUST_LOG=debug adjutant serve --log-format json")]
pub(super) struct ServeArguments {
    /// Who the client is, where nothing attests it
    #[arg(long, value_name = "NAME", default_value = "main")]
    caller: String,

    /// Serve stdin and stdout beside --http; ends with the client there
    #[arg(long, requires = "http", help_heading = "HTTP")]
    stdio: bool,

    #[command(flatten)]
    http: HttpArguments,

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
    let watch = main_sessions::Watch::begin(&settings);
    let exit = runtime::block_on(async {
        let shutdown = match start_shutdown(&settings) {
            Ok(shutdown) => shutdown,
            Err(error) => return refuse(&error),
        };
        let server = match arguments.http.wanted() {
            true => match arguments.http.bind(&settings).await {
                Ok(server) => Some(server),
                Err(error) => return refuse(&error),
            },
            false => None,
        };
        let gateway = Gateway::start_recording(&settings, options, audit_options(&settings));
        let orchestrator = Orchestrator::start(settings, shutdown, Arc::clone(&gateway));
        orchestrator.stay_ready();
        orchestrator.keep_processes();
        let ended = match server {
            None => Box::pin(serve_stdio(orchestrator, gateway, caller)).await,
            Some(server) if arguments.stdio => {
                Box::pin(serve_stdio_and_http(orchestrator, gateway, caller, server)).await
            }
            Some(server) => {
                Box::pin(serve_http(orchestrator, gateway, caller, server)).await;
                Ok(())
            }
        };
        ended.map_or_else(|error| refuse(&error), |()| Exit::Success)
    });
    watch.end();
    exit
}
