//! `adjutant serve`: the MCP server for a main agent, over stdio or HTTP.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::audit::audit_options;
use crate::cli::main_session_watch::MainSessionWatch;
use crate::cli::runtime::{main_session_id, start_shutdown};
use crate::cli::{CliCommand, CommandResult, ExitStatus, logging, output, runtime, usage};
use crate::config::{GatewayOptions, Settings};
use crate::delegation::Orchestrator;
use crate::gateway::Gateway;
use crate::identity::Caller;
use crate::server::{AgentServer, HttpError, HttpOptions, HttpServer, TlsFiles};

/// Listen address for `GATEWAY_TRANSPORT=http` without `--http`.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

/// Serve `run_subagent` over stdin and stdout, or over HTTP (MCP).
///
/// Claude Code starts this by itself once `.mcp.json` names it; `adjutant init` writes that entry.
/// With --http it serves many clients at once, each known by its token (`adjutant token new`).
/// Nothing but protocol goes over stdout. Logs go to stderr (RUST_LOG sets how much).
/// SIGTERM and SIGINT let running calls end within a grace period, SIGHUP reads the files again.
/// Exit code 0 when the client has gone or a signal came; 1 if the client is no MCP client; 2 if the arguments cannot be used;
/// 4 if the address or the tokens cannot be used.
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
    fn run(&self, settings: &Settings) -> CommandResult {
        let settings = settings.clone();
        let options = GatewayOptions::from_environment().map_err(usage)?;
        logging::init(&self.log, "info");
        let caller = Caller { session_id: main_session_id(), ..Caller::named(&self.caller) };
        let watch = MainSessionWatch::start(&settings);
        let done = runtime::block_on(async {
            let shutdown = start_shutdown(&settings)?;
            let server = self.http.is_requested().then(|| self.http.bind(&settings)).transpose()?;
            let gateway =
                Gateway::start_with_audit_options(&settings, options, audit_options(&settings));
            let orchestrator = Orchestrator::start(settings, shutdown, Arc::clone(&gateway));
            orchestrator.keep_servers_ready();
            orchestrator.enable_process_pool();
            let agents = AgentServer { orchestrator, gateway, caller };
            match server {
                None => Box::pin(agents.serve_stdio()).await?,
                Some(http) if self.stdio => Box::pin(agents.serve_stdio_and_http(http)).await?,
                Some(http) => {
                    Box::pin(agents.serve_http(http)).await;
                }
            }
            Ok(ExitStatus::Success)
        });
        watch.finish();
        done
    }
}

/// How HTTP is served.
#[derive(Debug, Args)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct HttpArguments {
    /// Serve Streamable HTTP at this address, such as 127.0.0.1:8080; clients call /mcp there
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Let every program of this machine in without a token (loopback only)
    #[arg(long)]
    insecure_local: bool,
    /// A name that clients call this server by, besides its address; can be given again
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// A web page that may call, such as https://app.example.com; can be given again
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
    /// The certificate to serve TLS with, and those above it (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Ask for a token at /metrics too
    #[arg(long)]
    metrics_token: bool,
    /// Requests per second that each caller may make; 0 for no limit [default: 200]
    #[arg(long, value_name = "N")]
    requests_per_second: Option<u32>,
    /// Runs that each caller may have at once; 0 for no limit [default: 16]
    #[arg(long, value_name = "N")]
    runs_at_once: Option<u32>,
}

impl HttpArguments {
    /// Returns true if `--http` is given.
    pub(crate) fn is_requested(&self) -> bool {
        self.http.is_some()
    }

    /// Binds the listener, prints its URL and warns about `--insecure-local`.
    pub(crate) fn bind(&self, settings: &Settings) -> Result<HttpServer, HttpError> {
        let options = self.options()?;
        let open = options.insecure_local;
        let server = HttpServer::bind(&settings.data_dir(), options)?;
        output::print_message(format_args!("serving MCP at {}", server.url()));
        if open {
            output::print_message(
                "WARNING: --insecure-local: every program and every user of this machine can call without a token",
            );
        }
        Ok(server)
    }

    fn options(&self) -> Result<HttpOptions, HttpError> {
        let usual = HttpOptions::at(self.http.as_deref().unwrap_or(DEFAULT_ADDRESS))?;
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        Ok(HttpOptions {
            insecure_local: self.insecure_local,
            allowed_hosts: self.allow_host.clone(),
            allowed_origins: self.allow_origin.clone(),
            tls: tls.map(|(certificate, key)| TlsFiles { certificate, key }),
            metrics_need_token: self.metrics_token,
            requests_per_second: self.requests_per_second.unwrap_or(usual.requests_per_second),
            runs_at_once: self.runs_at_once.unwrap_or(usual.runs_at_once),
            ..usual
        })
    }
}
