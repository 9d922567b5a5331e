//! A decision of the policy: `explain`, `matrix`.

use schemars::JsonSchema;
use serde::Serialize;

/// May an agent use a tool, server or agent, and by which rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DecisionObject {
    pub decision: DecisionWord,
    /// The agent that asks.
    pub agent: String,
    pub kind: DecisionKind,
    /// `Bash`, `Bash(git push)`, `github/create_issue`, `github`, the name of an agent …
    pub target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Path of the rule in its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    pub reason: String,
    /// Patterns of the calls that are allowed, if only these are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionWord {
    Allow,
    Deny,
    /// Only Claude Code itself can decide this call.
    Undetermined,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    Server,
    Tool,
    /// A pattern of tool names, as a file has it.
    Pattern,
    /// All tools that no file names.
    OtherTools,
    Builtin,
    /// A concrete call of a built-in tool.
    Call,
    Subagent,
}
