//! An answer: allowed or denied, by which rule, in one sentence.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::base::{one_line, shorten};

/// Allowed or denied; the stricter is the greater, so that `max` combines two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

impl Decision {
    /// `allow` or `deny`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The place that decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// The file, if there is one.
    pub file: Option<Arc<Path>>,
    /// Where in the file: `agents.dev.deny.tools.db[0]`, `policy.tools.exclude[1]`.
    pub path: Arc<str>,
    /// The line, where it is known.
    pub line: Option<u32>,
}

impl Rule {
    /// A rule without a known line.
    pub fn new(file: Option<&Path>, path: impl Into<Arc<str>>) -> Self {
        Self { file: file.map(Arc::from), path: path.into(), line: None }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.path)?;
        // Only the file's own name: the sentence reaches agents, to whom the folders are no business.
        if let Some(name) = self.file.as_deref().and_then(Path::file_name) {
            write!(f, " in {}", name.to_string_lossy())?;
        }
        match self.line {
            Some(line) => write!(f, " line {line}"),
            None => Ok(()),
        }
    }
}

/// A decision with the rule that made it and the sentence that says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evaluation {
    /// Allowed or denied.
    pub decision: Decision,
    /// What decided.
    pub rule: Rule,
    /// One sentence for the agent, the audit log and `explain` alike.
    pub reason: String,
}

impl Evaluation {
    /// Whether it may.
    pub fn is_allowed(&self) -> bool {
        self.decision == Decision::Allow
    }

    /// The one sentence that the error, the audit line and `explain` have in common.
    pub fn sentence(&self) -> &str {
        &self.reason
    }

    /// The stricter of two answers; of two equal ones the first.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if other.decision > self.decision { other } else { self }
    }

    pub(super) fn new(asked: &Asked<'_>, decision: Decision, rule: Rule, because: &str) -> Self {
        let may = match decision {
            Decision::Allow => "may",
            Decision::Deny => "may not",
        };
        let agent = quoted(asked.agent);
        let reason = format!("agent {agent} {may} use {}: {because} ({rule})", asked.what);
        Self { decision, rule, reason }
    }
}

/// Who asks for what: the first half of every sentence.
pub(super) struct Asked<'a> {
    pub(super) agent: &'a str,
    pub(super) what: What<'a>,
}

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    Builtin(&'a str),
    Server(&'a str),
    Tool { server: &'a str, tool: &'a str },
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(tool) => write!(f, "the built-in tool {}", quoted(tool)),
            Self::Server(server) => write!(f, "server {}", quoted(server)),
            Self::Tool { server, tool } => {
                write!(f, "tool {} of server {}", quoted(tool), quoted(server))
            }
        }
    }
}

/// A name as it stands in a sentence: names come from callers and can be anything.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", one_line(&shorten(name, 80)))
}
