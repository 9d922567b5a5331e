//! `adjutant gateway`: the MCP gateway over stdio or HTTP, without agents.

use std::sync::Arc;

use clap::Args;

use super::audit::audit_options;
use super::serve::HttpArguments;
use crate::catalog::{IdentityRule, Snapshot};
use crate::cli::main_session_watch::MainSessionWatch;
use crate::cli::runtime::{start_immediate_shutdown, start_shutdown};
use crate::cli::{CliCommand, CommandResult, ExitStatus, logging, runtime, usage};
use crate::config::{GatewayOptions, Settings};
use crate::gateway::Gateway;
use crate::server::{HttpShutdown, serve_gateway_http, serve_gateway_stdio};

/// Serve the MCP servers of .mcp.json, to each agent its own part (MCP)
///
/// Takes the place of `agent-mcp-gateway` with the same files, variables and tools. The servers are
/// in .mcp.json, who may use what is in .mcp-gateway-rules.json; both are followed while it runs.
/// With --http (or GATEWAY_TRANSPORT=http, then at 127.0.0.1:8080) it serves many clients, each by its token.
/// Nothing but protocol goes over stdout. Logs go to stderr (RUST_LOG sets how much).
/// Exit code 0 when the client has gone or a signal came; 2 if the arguments cannot be used; 4 if the address or the
/// tokens cannot be used.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  claude mcp add gateway -- adjutant gateway
  adjutant gateway --http 127.0.0.1:8080")]
pub(crate) struct GatewayArguments {
    #[command(flatten)]
    http: HttpArguments,

    #[command(flatten)]
    log: logging::LogArguments,
}

impl CliCommand for GatewayArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let options = GatewayOptions::from_environment().map_err(usage)?;
        logging::init(&self.log, "info");
        if self.http.is_requested() || options.http {
            return self.serve_over_http(options, settings);
        }
        let watch = MainSessionWatch::start(settings);
        let done = runtime::block_on_one_thread(async {
            let shutdown = start_immediate_shutdown()?;
            let gateway = start_gateway(settings, options);
            serve_gateway_stdio(gateway, shutdown.stopping().clone()).await;
            Ok(ExitStatus::Success)
        });
        watch.finish();
        done
    }
}

impl GatewayArguments {
    fn serve_over_http(&self, options: GatewayOptions, settings: &Settings) -> CommandResult {
        runtime::block_on_one_thread(async {
            let shutdown = start_shutdown(settings)?;
            let server = self.http.bind(settings)?;
            let gateway = start_gateway(settings, options);
            let (stopping, ending) = (shutdown.stopping().clone(), shutdown.ending().clone());
            serve_gateway_http(gateway, server, HttpShutdown { stopping, ending }).await;
            Ok(ExitStatus::Success)
        })
    }
}

/// Starts the gateway with the audit and identity settings of `agents/defaults.yaml`.
fn start_gateway(settings: &Settings, options: GatewayOptions) -> Arc<Gateway> {
    let gateway = Gateway::start_with_audit_options(settings, options, audit_options(settings));
    let identity = Snapshot::load(settings).orchestration().identity;
    gateway.require_identity(identity == IdentityRule::Required);
    gateway
}
