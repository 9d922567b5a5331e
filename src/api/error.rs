//! An error: of a run, of a command with `--json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Code, reason and remedy. The message does not begin with the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorObject {
    /// Stable for programs, such as `AGENT_NOT_FOUND`.
    pub code: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Differences between an invalid answer and its schema.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mismatches: Vec<MismatchObject>,
    /// Ids that an ambiguous short id may mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
}

impl ErrorObject {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), ..Self::default() }
    }

    /// Formats as `reason. Remedy.`, or `reason` without a remedy.
    pub fn sentences(&self) -> String {
        let Some(help) = &self.help else { return self.message.clone() };
        let end = if help.ends_with('?') { "" } else { "." };
        format!("{}. {}{end}", self.message.trim_end_matches('.'), capitalize(help))
    }
}

fn capitalize(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

/// Difference between an answer and its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MismatchObject {
    /// JSON pointer into the answer; empty for the root.
    pub path: String,
    pub expected: String,
    pub found: String,
}

/// Output of a command that failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ErrorReport {
    pub error: ErrorObject,
}
