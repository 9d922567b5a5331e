//! The MCP tools: definitions, arguments, progress, results.

mod call_context;
pub(crate) mod gateway;
pub(crate) mod run_subagent;

pub(crate) use call_context::{CallContext, ProgressSink};
pub(crate) use gateway::EXECUTE_TOOL;
pub(crate) use run_subagent::{RUN_SUBAGENT, RUN_SUBAGENTS};
