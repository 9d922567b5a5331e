//! The hash chain of the audit log: each entry contains the SHA-256 of the entry before.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::store::Sequence;

/// Previous hash of the first entry.
pub(crate) const GENESIS_HASH: &str =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// End of the chain, stored in `<file>.head` after each write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChainHead {
    /// Number of the newest entry; 0 before the first.
    pub(crate) seq: u64,
    pub(crate) hash: String,
    /// Length of the file up to and including that entry.
    pub(crate) bytes: u64,
}

impl Default for ChainHead {
    fn default() -> Self {
        Self { seq: 0, hash: GENESIS_HASH.to_owned(), bytes: 0 }
    }
}

impl Sequence for ChainHead {
    fn number(&self) -> u64 {
        self.seq
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// An invalid line counts, too; `verify` reports it.
    fn after(self, line: &[u8]) -> Self {
        let seq = serde_json::from_slice::<ChainLink>(line).map_or(self.seq + 1, |link| link.seq);
        Self { seq, hash: sha256_hex(line), ..self }
    }
}

/// The chain fields of an entry.
#[derive(Debug, Deserialize)]
pub(crate) struct ChainLink {
    pub(crate) seq: u64,
    pub(crate) prev: String,
    /// Present in `log_pruned` entries only.
    pub(crate) removed: Option<RemovedEntries>,
}

/// Entries that were removed according to `log_retention`: the chain starts behind them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemovedEntries {
    /// Number of the last removed entry.
    pub(crate) through: u64,
    /// Its hash, which the first remaining entry contains.
    pub(crate) hash: String,
}

/// Returns the SHA-256 of a line without its line feed, in hexadecimal.
pub(crate) fn sha256_hex(line: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(*DIGITS.get(usize::from(nibble)).unwrap_or(&b'0'));
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(line) {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}
