//! A launch plan: `plan`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Everything that is started for an agent, each part with its reason.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanObject {
    pub agent: String,
    pub program: String,
    /// Version of the program.
    pub version: String,
    pub folder: String,
    pub arguments: Vec<PlanArgument>,
    pub environment: Vec<PlanVariable>,
    pub system_prompt: String,
    /// Settings of Claude Code.
    pub settings: Value,
    pub builtin_tools: Vec<String>,
    pub servers: Vec<PlanServer>,
    /// By the name of the key in `agent.md`.
    pub limits: BTreeMap<String, Value>,
    /// Digest of the plan without the session.
    pub contract: String,
    /// Mounts, variables and other parts of the sandbox; absent without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<PlanSandboxPart>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanSandboxPart {
    pub kind: String,
    pub text: String,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanArgument {
    pub argument: String,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanVariable {
    pub name: String,
    /// `inherited`, `agent` or `fixed`.
    pub from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub reason: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlanServer {
    pub server: String,
    pub reason: String,
}
