//! `adjutant serve`: the MCP server for a main agent, over stdio or HTTP.

use std::sync::Arc;

use clap::Args;

use super::super::dispatch::usage_error;
use super::super::runtime::{main_session_id, start_shutdown};
use super::audit::audit_options;
use super::serve_http::HttpArguments;
use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::exit_status::ExitStatus;
use crate::cli::{logging, main_session_watch, output, runtime};
use crate::config::{GatewayOptions, Settings};
use crate::delegation::Orchestrator;
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
pub(crate) struct ServeArguments {
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

impl CliCommand for ServeArguments {
    fn access(&self) -> CommandAccess {
        CommandAccess::ActsOrChanges
    }

    fn run(&self, settings: &Settings) -> ExitStatus {
        let settings = settings.clone();
        let options = match GatewayOptions::from_environment() {
            Ok(options) => options,
            Err(error) => {
                output::print_error(error);
                return ExitStatus::Usage;
            }
        };
        logging::init(&self.log, "info");
        let caller = Caller { session_id: main_session_id(), ..Caller::named(&self.caller) };
        let watch = main_session_watch::MainSessionWatch::start(&settings);
        let exit = runtime::block_on(async {
            let shutdown = match start_shutdown(&settings) {
                Ok(shutdown) => shutdown,
                Err(error) => return usage_error(&error),
            };
            let server = match self.http.is_requested() {
                true => match self.http.bind(&settings) {
                    Ok(server) => Some(server),
                    Err(error) => return usage_error(&error),
                },
                false => None,
            };
            let gateway =
                Gateway::start_with_audit_options(&settings, options, audit_options(&settings));
            let orchestrator = Orchestrator::start(settings, shutdown, Arc::clone(&gateway));
            orchestrator.keep_servers_ready();
            orchestrator.enable_process_pool();
            let ended = match server {
                None => Box::pin(serve_stdio(orchestrator, gateway, caller)).await,
                Some(server) if self.stdio => {
                    Box::pin(serve_stdio_and_http(orchestrator, gateway, caller, server)).await
                }
                Some(server) => {
                    Box::pin(serve_http(orchestrator, gateway, caller, server)).await;
                    Ok(())
                }
            };
            ended.map_or_else(|error| usage_error(&error), |()| ExitStatus::Success)
        });
        watch.finish();
        exit
    }
}
