//! Tokio runtime, shutdown signals and gateway of commands that wait.

use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use tokio::runtime::Builder;

use super::{CommandError, CommandResult, ErrorCode};
use crate::catalog::Snapshot;
use crate::cli::commands::audit_options;
use crate::config::{CLAUDE_CODE_SESSION_ID, GatewayOptions, Settings};
use crate::gateway::Gateway;
use crate::process::Shutdown;

/// Handles SIGTERM and SIGINT with the grace period of `agents/defaults.yaml` for running calls.
pub(crate) fn start_shutdown(settings: &Settings) -> io::Result<Shutdown> {
    Shutdown::on_signals(Snapshot::load(settings).orchestration().shutdown_grace)
}

/// Handles SIGTERM and SIGINT without a grace period, for interactive commands.
pub(crate) fn start_immediate_shutdown() -> io::Result<Shutdown> {
    Shutdown::on_signals(Duration::ZERO)
}

/// Returns the id of the main session that this process belongs to, if any.
pub(crate) fn main_session_id() -> Option<String> {
    env::var(CLAUDE_CODE_SESSION_ID).ok().filter(|id| !id.is_empty())
}

/// Returns a gateway that starts servers only on first use, for a single delegation.
pub(crate) fn lazy_gateway(settings: &Settings) -> Arc<Gateway> {
    let options = GatewayOptions { eager: false, ..GatewayOptions::default() };
    Gateway::start_with_audit_options(settings, options, audit_options(settings))
}

/// Runs a command on two threads: enough for pipes and timers, at a low memory cost.
pub(crate) fn block_on(command: impl Future<Output = CommandResult>) -> CommandResult {
    run(Builder::new_multi_thread().worker_threads(2), command)
}

/// Runs a command that forwards messages on one thread, which saves waking another one per message.
pub(crate) fn block_on_one_thread(command: impl Future<Output = CommandResult>) -> CommandResult {
    run(&mut Builder::new_current_thread(), command)
}

fn run(runtime: &mut Builder, command: impl Future<Output = CommandResult>) -> CommandResult {
    let runtime = runtime.enable_all().build().map_err(|error| {
        CommandError::new(
            ErrorCode::IoFailed,
            format_args!("the runtime cannot be started: {error}"),
        )
    })?;
    let done = runtime.block_on(command);
    // A blocking read of stdin cannot be cancelled, so the shutdown does not wait for it.
    runtime.shutdown_background();
    done
}
