//! Bearer tokens: the secret, shown once, and its stored hash.

use std::fmt;
use std::hint::black_box;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Prefix by which people and secret scanners recognise a leaked token.
const TOKEN_PREFIX: &str = "adjutant_";

/// The secret of a token, shown once when it is created. `Debug` does not print it.
pub(crate) struct TokenSecret(String);

impl TokenSecret {
    /// Generates a secret with 244 random bits from the operating system.
    pub(crate) fn random() -> Self {
        Self(format!("{TOKEN_PREFIX}{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()))
    }

    /// Returns the secret, to show it to the user once.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the hash that is stored.
    pub(crate) fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl fmt::Debug for TokenSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenText(…)")
    }
}

/// The SHA-256 of a token.
///
/// Neither salted nor slow: a token has 244 random bits and cannot be guessed.
#[derive(Clone, Copy, Debug, Eq)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hashes a text presented as a token.
    pub(crate) fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }
}

/// Constant-time comparison.
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
        parse_hash(&text)
            .ok_or_else(|| D::Error::custom("a hash must be `sha256:` and 64 hex digits"))
    }
}

fn parse_hash(text: &str) -> Option<TokenHash> {
    let digits = text.strip_prefix("sha256:").filter(|digits| digits.len() == 64)?;
    let mut bytes = [0; 32];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(TokenHash(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_round_trip_and_equal_only_themselves() {
        let text = TokenSecret::random();
        let written = serde_json::to_string(&text.hash()).unwrap();
        assert_eq!(serde_json::from_str::<TokenHash>(&written).unwrap(), text.hash());
        assert_ne!(TokenSecret::random().hash(), text.hash());
        assert!(serde_json::from_str::<TokenHash>("\"sha256:00\"").is_err());
        assert!(!format!("{text:?}").contains(text.expose()));
    }
}
