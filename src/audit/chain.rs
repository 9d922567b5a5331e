//! How lines hang together: each carries the hash of the one before, and a note beside the file says how far it goes.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What the first line of all carries.
pub(super) const BEFORE_THE_FIRST: &str =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// How far the chain goes: kept beside the file, one write after each line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// The number of the newest line; 0 before the first.
    pub(super) seq: u64,
    /// Its hash.
    pub(super) hash: String,
    /// The size of the file that ends with it.
    pub(super) bytes: u64,
}

impl Head {
    pub(super) fn start() -> Self {
        Self { seq: 0, hash: BEFORE_THE_FIRST.to_owned(), bytes: 0 }
    }

    pub(super) fn read(note: &[u8]) -> Option<Self> {
        serde_json::from_slice(note).ok()
    }

    /// The head after one more line, given without its line feed.
    pub(super) fn after(&self, line: &[u8]) -> Self {
        let bytes = self.bytes + line.len() as u64 + 1;
        Self { seq: self.seq + 1, hash: hash_of(line), bytes }
    }
}

/// What a line says about its place.
#[derive(Debug, Deserialize)]
pub(super) struct Place {
    pub(super) seq: u64,
    pub(super) prev: String,
    /// Only in a line that says so.
    pub(super) removed: Option<Removed>,
}

/// Old lines that were removed as `log_retention` says: the chain begins behind them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Removed {
    /// The number of the last of them.
    pub(super) through: u64,
    /// Its hash, which the first line that is left carries.
    pub(super) hash: String,
}

/// The SHA-256 of a line without its line feed, in hexadecimal.
pub(super) fn hash_of(line: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(*DIGITS.get(usize::from(nibble)).unwrap_or(&b'0'));
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(line) {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// The name of a rotated file: `audit.jsonl` becomes `audit.000000000042.jsonl` by the number of its last line.
pub(super) fn rotated_name(stem: &str, extension: &str, last: u64) -> String {
    format!("{stem}.{last:012}.{extension}")
}

/// The number in a rotated file's name.
pub(super) fn rotated_number(name: &str, stem: &str, extension: &str) -> Option<u64> {
    let number = name.strip_prefix(stem)?.strip_prefix('.')?;
    let number = number.strip_suffix(extension)?.strip_suffix('.')?;
    (number.len() == 12).then(|| number.parse().ok()).flatten()
}
