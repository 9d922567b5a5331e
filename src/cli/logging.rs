//! Where our own log goes: stderr, in a form for people or for programs.

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How the log is written.
#[derive(Debug, Args)]
pub(super) struct LogArguments {
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

/// Starts the log; `RUST_LOG` says how much, `level` where it is silent.
pub(super) fn start(arguments: &LogArguments, level: &str) {
    let filter = EnvFilter::try_from_default_env()
        // The library says of every refusal what we say of some.
        .unwrap_or_else(|_| EnvFilter::new(format!("warn,rmcp::service=error,adjutant={level}")));
    let filter = secrets_kept_out(filter);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second start in one process keeps the first log.
    let _ = match arguments.log_format {
        LogFormat::Text => builder.with_ansi(super::terminal::colours()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Below `warn`, the sign-in of the protocol's library writes codes that are as good as a password.
fn secrets_kept_out(filter: EnvFilter) -> EnvFilter {
    match "rmcp::transport::auth=warn".parse() {
        Ok(directive) => filter.add_directive(directive),
        Err(_) => filter,
    }
}
