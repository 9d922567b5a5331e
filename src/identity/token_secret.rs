//! A bearer token and what is kept of it.

use std::fmt;
use std::hint::black_box;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Makes a leaked token easy to find, for people and for scanners.
const PREFIX: &str = "adjutant_";

/// A token's text. It is shown once, when it is made.
pub struct TokenText(String);

impl TokenText {
    /// A new one, with 244 random bits from the system.
    pub fn random() -> Self {
        Self(format!("{PREFIX}{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()))
    }

    /// The text itself, for the one moment it is shown.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenText(…)")
    }
}

/// The SHA-256 of a token. A token is random and long, so that nobody can try all of them: a salt or a slow
/// hash would protect nothing more.
#[derive(Clone, Copy, Debug, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a text that claims to be a token.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

/// Takes the same time wherever two hashes differ.
impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |difference, (a, b)| black_box(difference | (a ^ b))) == 0
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl Serialize for TokenHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("sha256:{self}"))
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| D::Error::custom("a hash must be `sha256:` and 64 hex digits"))
    }
}

fn parse(text: &str) -> Option<TokenHash> {
    let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64)?;
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * place..2 * place + 2)?, 16).ok()?;
    }
    Some(TokenHash(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_reads_as_it_is_written_and_equals_only_itself() {
        let text = TokenText::random();
        let written = serde_json::to_string(&text.hash()).unwrap();
        assert_eq!(serde_json::from_str::<TokenHash>(&written).unwrap(), text.hash());
        assert_ne!(TokenText::random().hash(), text.hash());
        assert!(serde_json::from_str::<TokenHash>("\"sha256:00\"").is_err());
        assert!(!format!("{text:?}").contains(text.expose()));
    }
}
