//! The identity of a caller: name and how it is known.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::util::{RESERVED_MAIN, one_line, shorten};

/// The agent or client that makes a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// Name that `allowed_callers` and the gateway's rules are checked against.
    pub name: String,
    pub known_by: KnownBy,
    /// The Claude Code session of the call, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The instance of a native subagent; absent for the main agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The call's id in Claude Code, equal to the one in hooks and transcripts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
}

impl Caller {
    /// Returns a caller without session and call id.
    pub fn new(name: impl Into<String>, known_by: KnownBy) -> Self {
        Self { name: name.into(), known_by, session_id: None, agent_id: None, tool_use_id: None }
    }

    /// Returns the main agent as fallback identity.
    pub fn main() -> Self {
        Self::new(RESERVED_MAIN, KnownBy::Fallback)
    }

    /// Returns the caller with the name given for a client (`--caller`). `main` is the default and counts as fallback.
    pub fn named(name: &str) -> Self {
        let known_by = if name == RESERVED_MAIN { KnownBy::Fallback } else { KnownBy::Asserted };
        Self::new(name, known_by)
    }

    /// Formats name and source for a message: `` `code-reviewer` (attested) ``. The name is cut to 80 characters.
    pub fn describe(&self) -> String {
        format!("`{}` ({})", shorten(&one_line(&self.name), 80), self.known_by)
    }

    /// Returns true if the identity is proven by pipe, attestation or token, not claimed or assumed.
    pub fn is_verified(&self) -> bool {
        match self.known_by {
            KnownBy::Pipe | KnownBy::Attested | KnownBy::Token => true,
            KnownBy::Asserted | KnownBy::Fallback => false,
        }
    }
}

/// Sources of a caller's name, most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KnownBy {
    /// The pipe of a subagent's own process.
    Pipe,
    /// An attestation of this call by a hook of Claude Code.
    Attested,
    /// The bearer token, which was created for this name.
    Token,
    /// The caller's own claim (`agent_id`, `--caller`).
    Asserted,
    /// The configured default, because nothing identifies the caller.
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
