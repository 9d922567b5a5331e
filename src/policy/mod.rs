//! May it, and by which rule: the gateway's rules and each agent's own policy.
//!
//! Pure: the same arguments give the same answer; no files, environment, processes or clock. A refusal is a
//! value with the rule that made it, and nothing matched means no.

#[path = "builtin_tools.rs"]
mod builtins;
#[path = "fallback_agent.rs"]
mod chain;
#[path = "verdict.rs"]
mod evaluation;
#[path = "gateway_decision.rs"]
mod gateway;
#[path = "../util/glob.rs"]
mod pattern;
#[path = "permission_rules.rs"]
mod permission;
#[path = "gateway_rules.rs"]
mod rules;
#[path = "gateway_rules_parse.rs"]
mod rules_file;
#[path = "agent_decision.rs"]
mod scoped;
#[cfg(test)]
#[path = "test_support.rs"]
mod test_agent;

pub use builtins::{KNOWN_BUILTINS, reaches_agents};
pub use chain::{ChainError, DEFAULT_AGENT, resolve_agent};
pub use evaluation::{Decision, Evaluation, Rule};
pub use gateway::evaluate;
pub use pattern::Pattern;
pub use rules::{GatewayRules, RuleProblem, Warning, unknown_servers};
pub use rules_file::is_agent_id;
pub use scoped::{builtin_tools, judge_builtin, judge_mcp_tool, judge_server, needs_approval};
