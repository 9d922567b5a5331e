//! `adjutant gateway`.

use std::sync::Arc;

use clap::Args;

use super::audit::audit_options;
use super::dispatch::refuse;
use super::exit::Exit;
use super::http::HttpArguments;
use super::runtime::{start_prompt_shutdown, start_shutdown};
use super::{logging, main_sessions, render, runtime};
use crate::catalog::{IdentityRule, Snapshot};
use crate::config::{GatewayOptions, Settings};
use crate::gateway::Gateway;
use crate::server::http::HttpEnd;
use crate::server::{serve_gateway_http, serve_gateway_stdio};

/// Serve the MCP servers of .mcp.json, to each agent its own part (MCP)
///
/// Takes the place of `agent-mcp-gateway` with the same files, variables and tools. The servers are
/// in .mcp.json, who may use what is in .mcp-gateway-rules.json; both are followed while it runs.
/// With --http (or GATEWAY_TRANSPORT=http, then at 127.0.0.1:8080) it serves many clients, each by its token.
/// Nothing but protocol goes over stdout. Logs go to stderr (RUST_LOG sets how much).
/// Exit code 0 when the client has gone or a signal came; 2 if it cannot start.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  claude mcp add gateway -- adjutant gateway
  adjutant gateway --http 127.0.0.1:8080")]
pub(super) struct GatewayArguments {
    #[command(flatten)]
    http: HttpArguments,

    #[command(flatten)]
    log: logging::LogArguments,
}

pub(super) fn run(arguments: &GatewayArguments, settings: &Settings) -> Exit {
    let options = match GatewayOptions::from_environment() {
        Ok(options) => options,
        Err(error) => return no(&error),
    };
    if arguments.http.wanted() || options.http {
        return serve_over_http(arguments, options, settings);
    }
    logging::start(&arguments.log, "info");
    let watch = main_sessions::Watch::begin(settings);
    let exit = runtime::block_on_one_thread(async {
        match start_prompt_shutdown() {
            Ok(shutdown) => {
                let gateway = start(settings, options);
                serve_gateway_stdio(gateway, shutdown.stopping().clone()).await;
                Exit::Success
            }
            Err(error) => refuse(&error),
        }
    });
    watch.end();
    exit
}

fn serve_over_http(
    arguments: &GatewayArguments,
    options: GatewayOptions,
    settings: &Settings,
) -> Exit {
    logging::start(&arguments.log, "info");
    runtime::block_on_one_thread(async {
        let shutdown = match start_shutdown(settings) {
            Ok(shutdown) => shutdown,
            Err(error) => return refuse(&error),
        };
        let server = match arguments.http.bind(settings).await {
            Ok(server) => server,
            Err(error) => return refuse(&error),
        };
        let gateway = start(settings, options);
        let end =
            HttpEnd { stopping: shutdown.stopping().clone(), ending: shutdown.ending().clone() };
        serve_gateway_http(gateway, server, end).await;
        Exit::Success
    })
}

/// The gateway as `agents/defaults.yaml` wants it, if there is one.
fn start(settings: &Settings, options: GatewayOptions) -> Arc<Gateway> {
    let gateway = Gateway::start_recording(settings, options, audit_options(settings));
    let identity = Snapshot::load(settings).orchestration().identity;
    gateway.require_identity(identity == IdentityRule::Required);
    gateway
}

fn no(reason: &str) -> Exit {
    render::problem(reason);
    Exit::Usage
}
