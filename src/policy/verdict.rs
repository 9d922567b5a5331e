//! Verdict: allow or deny, with the rule and a message.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::api::DecisionWord;
use crate::util::{one_line, shorten};

/// Ordered by strictness, so that `max` combines two decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    Deny,
}

impl Decision {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl From<Decision> for DecisionWord {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Allow => Self::Allow,
            Decision::Deny => Self::Deny,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Location of the rule that decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// `None` if the rule is in no file.
    pub file: Option<Arc<Path>>,
    /// Path in the file: `agents.dev.deny.tools.db[0]`, `policy.tools.exclude[1]`.
    pub path: Arc<str>,
    /// Line in the file, counted from 1, if known.
    pub line: Option<u32>,
}

impl Rule {
    /// Returns a rule without a line.
    pub fn new(file: Option<&Path>, path: impl Into<Arc<str>>) -> Self {
        Self { file: file.map(Arc::from), path: path.into(), line: None }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.path)?;
        // Only the file name: the message reaches agents, which must not learn directories.
        if let Some(name) = self.file.as_deref().and_then(Path::file_name) {
            write!(f, " in {}", name.to_string_lossy())?;
        }
        match self.line {
            Some(line) => write!(f, " line {line}"),
            None => Ok(()),
        }
    }
}

/// A decision with its rule and message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub decision: Decision,
    pub rule: Rule,
    /// One sentence, the same for the agent, the audit log and `explain`.
    pub reason: String,
}

impl Verdict {
    pub fn is_allowed(&self) -> bool {
        self.decision == Decision::Allow
    }

    /// Returns the sentence shared by the error, the audit entry and `explain`.
    pub fn message(&self) -> &str {
        &self.reason
    }

    /// Returns the stricter of two verdicts; of two equal ones `self`.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        if other.decision > self.decision { other } else { self }
    }

    pub(crate) fn new(
        asked: &AccessRequest<'_>,
        decision: Decision,
        rule: Rule,
        because: &str,
    ) -> Self {
        let may = match decision {
            Decision::Allow => "may",
            Decision::Deny => "may not",
        };
        let agent = quote(asked.agent);
        let reason = format!("agent {agent} {may} use {}: {because} ({rule})", asked.resource);
        Self { decision, rule, reason }
    }
}

/// Agent and resource of a request: the subject of every message.
pub(crate) struct AccessRequest<'a> {
    pub(crate) agent: &'a str,
    pub(crate) resource: Resource<'a>,
}

#[derive(Clone, Copy)]
pub(crate) enum Resource<'a> {
    Builtin(&'a str),
    Server(&'a str),
    Tool { server: &'a str, tool: &'a str },
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin(tool) => write!(f, "the built-in tool {}", quote(tool)),
            Self::Server(server) => write!(f, "server {}", quote(server)),
            Self::Tool { server, tool } => {
                write!(f, "tool {} of server {}", quote(tool), quote(server))
            }
        }
    }
}

/// Quotes a name for a message: one line, at most 80 characters, because callers choose names freely.
pub(crate) fn quote(name: &str) -> String {
    format!("`{}`", one_line(&shorten(name, 80)))
}
