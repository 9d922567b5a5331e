//! HTTP flags shared by `serve` and `gateway`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::output;
use crate::config::Settings;
use crate::server::{HttpError, HttpOptions, HttpServer, TlsFiles};

/// Listen address for `GATEWAY_TRANSPORT=http` without `--http`.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8080";

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
