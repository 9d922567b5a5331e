//! The runtime for commands that wait.

use std::env;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;

use super::audit::audit_options;
use super::exit::Exit;
use super::render;
use crate::catalog::Snapshot;
use crate::config::env_vars::CLAUDE_CODE_SESSION_ID;
use crate::config::{GatewayOptions, Settings};
use crate::gateway::Gateway;
use crate::worker::Shutdown;

/// How this process ends at SIGTERM and SIGINT: running calls have the grace that `defaults.yaml` gives them.
pub(super) fn start_shutdown(settings: &Settings) -> io::Result<Shutdown> {
    Shutdown::on_signals(Snapshot::load(settings).orchestration().shutdown_grace)
}

/// The same for a command that a person runs: Ctrl-C means now.
pub(super) fn start_prompt_shutdown() -> io::Result<Shutdown> {
    Shutdown::on_signals(Duration::ZERO)
}

/// The session of Claude Code that this process belongs to, if it belongs to one.
pub(super) fn main_session() -> Option<String> {
    env::var(CLAUDE_CODE_SESSION_ID).ok().filter(|id| !id.is_empty())
}

/// The gateway for one delegation: no server is started before it is needed.
pub(super) fn quiet_gateway(settings: &Settings) -> Arc<Gateway> {
    let options = GatewayOptions { eager: false, ..GatewayOptions::default() };
    Gateway::start_recording(settings, options, audit_options(settings))
}

/// Runs a command that waits. Two threads are plenty for pipes and timers, and cost little memory.
pub(super) fn block_on(command: impl Future<Output = Exit>) -> Exit {
    run(Builder::new_multi_thread().worker_threads(2), command)
}

/// Runs a command that passes messages on: with one thread for all of it, none has to wake another.
pub(super) fn block_on_one_thread(command: impl Future<Output = Exit>) -> Exit {
    run(&mut Builder::new_current_thread(), command)
}

fn run(runtime: &mut Builder, command: impl Future<Output = Exit>) -> Exit {
    match runtime.enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(command);
            // A read of stdin cannot be called back: nobody waits for it.
            runtime.shutdown_background();
            exit
        }
        Err(error) => {
            render::problem(format_args!("the runtime cannot be started: {error}"));
            Exit::Usage
        }
    }
}
