//! Name of a session: agent and key.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, de};
use sha2::{Digest, Sha256};

use crate::util::AgentName;

/// Key of calls without `session_key`.
pub(crate) const DEFAULT_KEY: &str = "default";

const MAX_KEY_BYTES: usize = 128;

/// Distinguishes the sessions of one agent, for example `pr-42`. At most 128 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SessionKey(Arc<str>);

impl SessionKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SessionKey {
    fn default() -> Self {
        Self(DEFAULT_KEY.into())
    }
}

impl FromStr for SessionKey {
    type Err = InvalidSessionKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_KEY_BYTES {
            return Err(InvalidSessionKey::TooLong { bytes: text.len() });
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:/#@+".contains(c);
        if let Some(found) = text.chars().find(|c| !allowed(*c)) {
            return Err(InvalidSessionKey::Character { found });
        }
        if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(InvalidSessionKey::Beginning);
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SessionKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer)
    }
}

/// Reason for rejecting a session key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSessionKey {
    /// More than 128 bytes.
    #[error("a session key has at most {MAX_KEY_BYTES} characters, this one has {bytes}")]
    TooLong {
        /// Length of the key.
        bytes: usize,
    },
    /// A character outside of letters, digits and `-_.:/#@+`.
    #[error("a session key has only letters, digits and `-_.:/#@+`, not {found:?}")]
    Character {
        /// First invalid character.
        found: char,
    },
    /// Empty, or begins with something other than a letter or digit.
    #[error("a session key begins with a letter or digit, for example `pr-42`")]
    Beginning,
}

/// Full name of a session, written `agent` or `agent@key`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionName {
    #[serde(deserialize_with = "parsed")]
    pub agent: AgentName,
    pub key: SessionKey,
}

impl SessionName {
    /// Returns a file name that no agent name or key can influence: 24 hexadecimal digits of a SHA-256
    /// digest.
    pub(crate) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(self.agent.as_str());
        hash.update([0]);
        hash.update(self.key.as_str());
        format!("{:x}", hash.finalize()).chars().take(24).collect()
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.as_str() == DEFAULT_KEY {
            write!(f, "{}", self.agent)
        } else {
            write!(f, "{}@{}", self.agent, self.key)
        }
    }
}

impl FromStr for SessionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (agent, key) = text.split_once('@').unwrap_or((text, DEFAULT_KEY));
        Ok(Self {
            agent: agent
                .parse()
                .map_err(|error: crate::util::InvalidAgentName| error.to_string())?,
            key: key.parse().map_err(|error: InvalidSessionKey| error.to_string())?,
        })
    }
}

/// Deserializes a value from its text form.
pub(crate) fn parsed<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr,
    T::Err: fmt::Display,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("pr-42")]
    #[test_case("owner/repo#12")]
    #[test_case("a@b:c+d.e_f")]
    fn valid_keys_are_accepted_unchanged(key: &str) {
        assert_eq!(key.parse::<SessionKey>().unwrap().as_str(), key);
    }

    #[test_case("" => InvalidSessionKey::Beginning)]
    #[test_case("../x" => InvalidSessionKey::Beginning)]
    #[test_case("--resume" => InvalidSessionKey::Beginning)]
    #[test_case("a b" => InvalidSessionKey::Character { found: ' ' })]
    #[test_case("a\u{1b}[2J" => InvalidSessionKey::Character { found: '\u{1b}' })]
    #[test_case("a\n{}" => InvalidSessionKey::Character { found: '\n' })]
    fn invalid_keys_report_the_reason(key: &str) -> InvalidSessionKey {
        key.parse::<SessionKey>().unwrap_err()
    }

    #[test_case("reviewer", "reviewer"; "the default key is not written")]
    #[test_case("reviewer@default", "reviewer")]
    #[test_case("reviewer@pr@42", "reviewer@pr@42"; "a key may have the sign itself")]
    fn names_are_parsed_as_they_are_displayed(text: &str, written: &str) {
        assert_eq!(text.parse::<SessionName>().unwrap().to_string(), written);
    }
}
