//! What is wrong in a file, where, and what to write instead.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// One finding about one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Whether the file can be used all the same.
    pub severity: Severity,
    /// A stable word for programs, such as `unknown-key`.
    pub code: &'static str,
    /// The file, relative to the project's root where it lies below it.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// How many characters are meant; at least 1.
    pub length: usize,
    /// What is wrong, in one line.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl Diagnostic {
    /// Whether it makes its file unusable.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

/// `agents/x/agent.md:3:1: what is wrong (what to write)`: one line, for logs and refusals.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message, .. } = self;
        write!(f, "{}:{line}:{column}: {message}", file.display())?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file is used, but it may not say what its author thinks.
    Warning,
}
