//! A finding: `check`, `doctor`, `show`.

use schemars::JsonSchema;
use serde::Serialize;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FindingObject {
    pub level: ReportLevel,
    /// Stable identifier, such as `unknown-key`.
    pub code: String,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Relative to the project if below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// In characters, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportLevel {
    Ok,
    Note,
    Warning,
    Error,
}

/// Output of `check`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CheckObject {
    pub ok: bool,
    /// Number of files read.
    pub files: usize,
    /// Number of errors.
    pub errors: usize,
    /// Number of warnings.
    pub warnings: usize,
    pub findings: Vec<FindingObject>,
}
