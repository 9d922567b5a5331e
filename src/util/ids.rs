//! Agent names and run ids, parsed once at the edge and trusted afterwards.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Name of the main agent; reserved, no subagent can have it.
pub(crate) const RESERVED_MAIN: &str = "main";

const MAX_NAME_BYTES: usize = 64;

/// The name of an agent, equal to the name of its directory.
///
/// 1 to 64 bytes of ASCII letters, digits, `-`, `_` and `.`; safe as one path component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct AgentName(Arc<str>);

impl AgentName {
    /// Name of the template for agents. Empty, so that no agent can have it.
    pub(crate) fn unnamed() -> Self {
        Self("".into())
    }

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
            return Err(InvalidAgentName::FirstOrLastCharacter);
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

/// Reasons why a text is not an agent name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAgentName {
    #[error("an agent name must not be empty")]
    Empty,
    #[error("an agent name has at most {MAX_NAME_BYTES} characters, this one has {bytes}")]
    TooLong { bytes: usize },
    #[error("an agent name has only letters, digits, `-`, `_` and `.`, not {found:?}")]
    Character {
        /// The first invalid character.
        found: char,
    },
    /// Starts with something other than a letter or digit, or ends with a dot.
    #[error("an agent name begins with a letter or digit and does not end with a dot")]
    FirstOrLastCharacter,
    /// `main`, in any letter case.
    #[error("`main` is the main agent itself, never a subagent")]
    Reserved,
}

/// Id of one run of one agent: a UUIDv7, so ids sort by creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

impl RunId {
    /// Generates an id that sorts after all ids generated before.
    #[expect(clippy::new_without_default, reason = "an id is made on purpose, never by default")]
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Formats the id without hyphens, as in names of files, in the environment of a process and in stored documents.
    pub fn simple(self) -> impl fmt::Display {
        self.0.simple()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl JsonSchema for RunId {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "RunId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$" })
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
    fn valid_names_are_accepted_unchanged(name: &str) {
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
    #[test_case("." => InvalidAgentName::FirstOrLastCharacter)]
    #[test_case("--resume" => InvalidAgentName::FirstOrLastCharacter)]
    #[test_case("MAIN" => InvalidAgentName::Reserved)]
    fn a1_invalid_names_report_the_reason(name: &str) -> InvalidAgentName {
        name.parse::<AgentName>().unwrap_err()
    }
}
