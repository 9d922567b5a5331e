//! May it, and by which rule: the gateway's rules and each agent's own policy.
//!
//! Pure: the same arguments give the same answer; no files, environment, processes or clock. A refusal is a
//! value with the rule that made it, and nothing matched means no.

mod builtins;
mod chain;
mod evaluation;
mod gateway;
mod pattern;
mod permission;
mod rules;
mod rules_file;
mod scoped;
#[cfg(test)]
mod test_agent;

pub use builtins::{KNOWN_BUILTINS, reaches_agents};
pub use chain::{ChainError, DEFAULT_AGENT, resolve_agent};
pub use evaluation::{Decision, Evaluation, Rule};
pub use gateway::evaluate;
pub use pattern::Pattern;
pub use rules::{GatewayRules, RuleProblem, Warning, unknown_servers};
pub use rules_file::is_agent_id;
pub use scoped::{builtin_tools, judge_builtin, judge_mcp_tool, judge_server, needs_approval};
