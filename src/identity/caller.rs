//! A caller's name, with how it is known.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::base::{RESERVED_MAIN, one_line, shorten};

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The name that `allowed_callers` and the gateway's rules are checked against.
    pub name: String,
    /// How that name is known.
    pub known_by: KnownBy,
    /// The session of Claude Code that the call comes from, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Which instance of a native subagent calls; the main agent has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The call's id in Claude Code, the same that its hooks and transcripts carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
}

impl Caller {
    /// A caller of whose session and call nothing is known.
    pub fn new(name: impl Into<String>, known_by: KnownBy) -> Self {
        Self { name: name.into(), known_by, session_id: None, agent_id: None, tool_use_id: None }
    }

    /// The main agent, because nothing said otherwise.
    pub fn main() -> Self {
        Self::new(RESERVED_MAIN, KnownBy::Fallback)
    }

    /// The name that a person gave to a client of ours; the usual one says nothing.
    pub fn named(name: &str) -> Self {
        let known_by = if name == RESERVED_MAIN { KnownBy::Fallback } else { KnownBy::Asserted };
        Self::new(name, known_by)
    }

    /// The name with how it is known, for a person: `` `code-reviewer` (attested) ``.
    pub fn described(&self) -> String {
        format!("`{}` ({})", shorten(&one_line(&self.name), 80), self.known_by)
    }

    /// Whether the name is more than something the caller said, or nobody contradicted.
    pub fn is_sure(&self) -> bool {
        match self.known_by {
            KnownBy::Pipe | KnownBy::Attested | KnownBy::Token => true,
            KnownBy::Asserted | KnownBy::Fallback => false,
        }
    }
}

/// How a caller's name is known, surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// It came over a subagent's own pipe.
    Pipe,
    /// A hook of Claude Code attested this very call.
    Attested,
    /// Its bearer token was made for this name.
    Token,
    /// It said so itself (`agent_id`, `--caller`).
    Asserted,
    /// Nothing was said; the configured fallback.
    Fallback,
}

impl fmt::Display for KnownBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pipe => "known by its pipe",
            Self::Attested => "attested",
            Self::Token => "known by its token",
            Self::Asserted => "as it says itself",
            Self::Fallback => "as nothing says otherwise",
        })
    }
}
