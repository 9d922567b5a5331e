//! Names and ids: parsed once at the edge, trusted afterwards.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The main agent's name; it is never a subagent.
pub const RESERVED_MAIN: &str = "main";

const MAX_NAME_BYTES: usize = 64;

/// The name of an agent: its folder's name, safe to use as one path component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AgentName(Arc<str>);

impl AgentName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AgentName {
    type Err = InvalidAgentName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(InvalidAgentName::Empty);
        }
        if text.len() > MAX_NAME_BYTES {
            return Err(InvalidAgentName::TooLong { bytes: text.len() });
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if let Some(found) = text.chars().find(|c| !allowed(*c)) {
            return Err(InvalidAgentName::Character { found });
        }
        let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts_well || text.ends_with('.') {
            return Err(InvalidAgentName::Edge);
        }
        if text.eq_ignore_ascii_case(RESERVED_MAIN) {
            return Err(InvalidAgentName::Reserved);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for AgentName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for AgentName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Why a text is no agent name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAgentName {
    /// No text at all.
    #[error("an agent name must not be empty")]
    Empty,
    /// More than 64 bytes.
    #[error("an agent name has at most {MAX_NAME_BYTES} characters, this one has {bytes}")]
    TooLong {
        /// How long it was.
        bytes: usize,
    },
    /// A character outside of letters, digits, `-`, `_` and `.`.
    #[error("an agent name has only letters, digits, `-`, `_` and `.`, not {found:?}")]
    Character {
        /// The first one that is not allowed.
        found: char,
    },
    /// Begins with something other than a letter or digit, or ends with a dot.
    #[error("an agent name begins with a letter or digit and does not end with a dot")]
    Edge,
    /// `main`, in any case.
    #[error("`main` is the main agent itself, never a subagent")]
    Reserved,
}

/// One run of one agent. Ids made later sort later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

impl RunId {
    /// A new id, later than all before it.
    #[expect(clippy::new_without_default, reason = "an id is made on purpose, never by default")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_simple())
    }
}

impl FromStr for RunId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("web-search")]
    #[test_case("a")]
    #[test_case("Reviewer_2.1")]
    fn good_names_are_kept(name: &str) {
        assert_eq!(name.parse::<AgentName>().unwrap().as_str(), name);
    }

    #[test_case("" => InvalidAgentName::Empty)]
    #[test_case(&"x".repeat(10 << 10) => InvalidAgentName::TooLong { bytes: 10 << 10 }; "ten kilobytes")]
    #[test_case("a/b" => InvalidAgentName::Character { found: '/' })]
    #[test_case("/etc/passwd" => InvalidAgentName::Character { found: '/' })]
    #[test_case("../main" => InvalidAgentName::Character { found: '/' })]
    #[test_case("a\0" => InvalidAgentName::Character { found: '\0' })]
    #[test_case("a\nb" => InvalidAgentName::Character { found: '\n' })]
    #[test_case("\u{430}gent" => InvalidAgentName::Character { found: '\u{430}' })]
    #[test_case("." => InvalidAgentName::Edge)]
    #[test_case("--resume" => InvalidAgentName::Edge)]
    #[test_case("MAIN" => InvalidAgentName::Reserved)]
    fn a1_bad_names_say_why(name: &str) -> InvalidAgentName {
        name.parse::<AgentName>().unwrap_err()
    }
}
