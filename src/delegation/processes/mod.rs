//! `claude` processes of runs: start, reuse, warm and live processes, and the answers to their control requests.

mod agent_process;
mod claude_program;
mod idle_pool;
mod prewarm;
mod process_control;
mod process_pool;

pub(crate) use agent_process::{AgentProcess, run_in_new_process};
pub(crate) use claude_program::{
    ClaudeProgram, ProgramCache, cache_dir, claude_config_dir, find_credentials, locate_program,
};
pub(crate) use process_control::{ProcessControl, RunObservations};
pub(crate) use process_pool::{
    ProcessPool, pool_or_retire, run_in_pooled_process, take_warm_process,
};
