//! `adjutant gateway`.

use clap::Args;

use super::audit::audit_options;
use super::dispatch::refuse;
use super::exit::Exit;
use super::runtime::start_prompt_shutdown;
use super::{logging, render, runtime};
use crate::config::{GatewayOptions, Settings};
use crate::gateway::Gateway;
use crate::server::serve_gateway_stdio;

/// Serve the MCP servers of .mcp.json, to each agent its own part (MCP)
///
/// Takes the place of `agent-mcp-gateway` with the same files, variables and tools. The servers are
/// in .mcp.json, who may use what is in .mcp-gateway-rules.json; both are followed while it runs.
/// Nothing but protocol goes over stdout. Logs go to stderr (RUST_LOG sets how much).
/// Exit code 0 when the client has gone or a signal came; 2 if it cannot start.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  claude mcp add gateway -- adjutant gateway")]
pub(super) struct GatewayArguments {
    /// Serve Streamable HTTP at this address instead of stdin and stdout
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,

    #[command(flatten)]
    log: logging::LogArguments,
}

pub(super) fn run(arguments: &GatewayArguments, settings: &Settings) -> Exit {
    let options = match GatewayOptions::from_environment() {
        Ok(options) => options,
        Err(error) => return no(&error),
    };
    if arguments.http.is_some() || options.http {
        return no("HTTP is not available yet; leave --http and GATEWAY_TRANSPORT=http out");
    }
    logging::start(&arguments.log, "info");
    runtime::block_on(async {
        match start_prompt_shutdown() {
            Ok(shutdown) => {
                let gateway = Gateway::start_recording(settings, options, audit_options(settings));
                serve_gateway_stdio(gateway, shutdown.stopping().clone()).await;
                Exit::Success
            }
            Err(error) => refuse(&error),
        }
    })
}

fn no(reason: &str) -> Exit {
    render::problem(reason);
    Exit::Usage
}
