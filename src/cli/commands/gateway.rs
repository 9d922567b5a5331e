//! `adjutant gateway`: the MCP gateway over stdio or HTTP, without agents.

use std::sync::Arc;

use clap::Args;

use super::super::dispatch::usage_error;
use super::super::runtime::{start_immediate_shutdown, start_shutdown};
use super::audit::audit_options;
use super::serve_http::HttpArguments;
use crate::catalog::{IdentityRule, Snapshot};
use crate::cli::command::{CliCommand, CommandAccess};
use crate::cli::exit_status::ExitStatus;
use crate::cli::{logging, main_session_watch, output, runtime};
use crate::config::{GatewayOptions, Settings};
use crate::gateway::Gateway;
use crate::server::{HttpShutdown, serve_gateway_http, serve_gateway_stdio};

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
pub(crate) struct GatewayArguments {
    #[command(flatten)]
    http: HttpArguments,

    #[command(flatten)]
    log: logging::LogArguments,
}

impl CliCommand for GatewayArguments {
    fn access(&self) -> CommandAccess {
        CommandAccess::ActsOrChanges
    }

    fn run(&self, settings: &Settings) -> ExitStatus {
        let options = match GatewayOptions::from_environment() {
            Ok(options) => options,
            Err(error) => return invalid_options(&error),
        };
        if self.http.is_requested() || options.http {
            return serve_over_http(self, options, settings);
        }
        logging::init(&self.log, "info");
        let watch = main_session_watch::MainSessionWatch::start(settings);
        let exit = runtime::block_on_one_thread(async {
            match start_immediate_shutdown() {
                Ok(shutdown) => {
                    let gateway = start_gateway(settings, options);
                    serve_gateway_stdio(gateway, shutdown.stopping().clone()).await;
                    ExitStatus::Success
                }
                Err(error) => usage_error(&error),
            }
        });
        watch.finish();
        exit
    }
}

fn serve_over_http(
    arguments: &GatewayArguments,
    options: GatewayOptions,
    settings: &Settings,
) -> ExitStatus {
    logging::init(&arguments.log, "info");
    runtime::block_on_one_thread(async {
        let shutdown = match start_shutdown(settings) {
            Ok(shutdown) => shutdown,
            Err(error) => return usage_error(&error),
        };
        let server = match arguments.http.bind(settings) {
            Ok(server) => server,
            Err(error) => return usage_error(&error),
        };
        let gateway = start_gateway(settings, options);
        let end = HttpShutdown {
            stopping: shutdown.stopping().clone(),
            ending: shutdown.ending().clone(),
        };
        serve_gateway_http(gateway, server, end).await;
        ExitStatus::Success
    })
}

/// Starts the gateway with the audit and identity settings of `agents/defaults.yaml`.
fn start_gateway(settings: &Settings, options: GatewayOptions) -> Arc<Gateway> {
    let gateway = Gateway::start_with_audit_options(settings, options, audit_options(settings));
    let identity = Snapshot::load(settings).orchestration().identity;
    gateway.require_identity(identity == IdentityRule::Required);
    gateway
}

fn invalid_options(reason: &str) -> ExitStatus {
    output::print_error(reason);
    ExitStatus::Usage
}
