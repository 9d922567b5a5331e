//! Diagnostic log on stderr, as text or JSON lines.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How the log is written.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// The form of the log on stderr
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// Starts the log with the filter of `RUST_LOG`, or at `level` if the variable is unset or invalid.
pub(crate) fn init(arguments: &LogArguments, level: &str) {
    let filter = EnvFilter::try_from_default_env()
        // rmcp::service logs every refusal; Adjutant logs the relevant ones itself.
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,rmcp::service=error,adjutant={level}")));
    let filter = exclude_secrets(filter);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second initialization in one process fails and keeps the first log.
    let _ = match arguments.log_format {
        LogFormat::Text => builder.with_ansi(super::output::use_colours()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Limits rmcp's OAuth client to `warn`: at lower levels it logs authorization codes.
fn exclude_secrets(filter: EnvFilter) -> EnvFilter {
    match "rmcp::transport::auth=warn".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    }
}
