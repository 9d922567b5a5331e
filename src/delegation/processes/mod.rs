//! `claude` processes of runs: start, reuse, warm and live processes, and the answers to their control requests.

mod agent_process;
mod claude_program;
mod idle_pool;
mod live_process;
mod new_process;
mod notification_sink;
mod prewarm;
mod process_control;
mod process_pool;

pub(crate) use agent_process::{AgentProcess, StartError};
pub(crate) use claude_program::{ClaudeProgram, ProgramCache, cache_dir, locate_program};
pub(crate) use live_process::{
    LiveProcess, pool_or_retire, run_in_pooled_process, take_warm_process,
};
pub(crate) use new_process::{NewProcess, run_in_new_process};
pub(crate) use process_control::{ProcessControl, RunObservations};
pub(crate) use process_pool::ProcessPool;
