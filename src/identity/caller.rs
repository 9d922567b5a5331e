//! A caller's name, with how it is known.

use serde::{Deserialize, Serialize};

use crate::base::RESERVED_MAIN;

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The name that `allowed_callers` and the gateway's rules are checked against.
    pub name: String,
    /// How that name is known.
    pub known_by: KnownBy,
}

impl Caller {
    /// The main agent, because nothing said otherwise.
    pub fn main() -> Self {
        Self { name: RESERVED_MAIN.to_owned(), known_by: KnownBy::Fallback }
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
