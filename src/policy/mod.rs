//! Policy evaluation: gateway rules, each agent's own policy, and who may run which agent.
//!
//! Pure: the same arguments give the same verdict; no files, environment, processes or clock. A denial is a value that
//! carries its rule, and no match denies.

mod agent_decision;
mod builtin_tools;
mod delegation_decision;
mod fallback_agent;
mod gateway_decision;
mod gateway_rules;
mod gateway_rules_parse;
mod permission_rules;
#[cfg(test)]
mod test_support;
mod tool_call;
mod verdict;

pub use gateway_decision::evaluate;
pub use gateway_rules::GatewayRules;

pub(crate) use agent_decision::{
    builtin_tools, evaluate_builtin, evaluate_mcp_tool, evaluate_server,
};
pub(crate) use builtin_tools::runs_commands;
pub(crate) use delegation_decision::{DelegationRule, evaluate_delegation};
pub(crate) use fallback_agent::{FallbackError, resolve_caller};
pub(crate) use gateway_rules::{RuleProblem, unknown_servers};
pub(crate) use tool_call::{CallDecision, call_patterns, evaluate_call};
pub(crate) use verdict::{Decision, Rule, Verdict};
