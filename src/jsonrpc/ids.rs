//! Ids of our own requests.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest id, 2^53 − 1: JavaScript servers read numbers as doubles.
const MAX_REQUEST_ID: u64 = (1 << 53) - 1;

/// Generator of unpredictable request ids: a counter, hashed with a random key (SipHash) and truncated to 53 bits.
///
/// Ids collide by chance after about 10^8 requests of one connection: a map of pending requests must skip ids in use.
#[derive(Debug, Default)]
pub(crate) struct RequestIds {
    key: RandomState,
    count: AtomicU64,
}

impl RequestIds {
    /// Returns the id of the next request, at least 1.
    pub(crate) fn next_id(&self) -> u64 {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        (self.key.hash_one(count) & MAX_REQUEST_ID).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_fit_into_a_double_and_are_unordered() {
        let (one, other) = (RequestIds::default(), RequestIds::default());
        let ids: Vec<u64> = (0..1_000).map(|_| one.next_id()).collect();
        assert!(ids.iter().all(|id| (1..=MAX_REQUEST_ID).contains(id)));
        assert!(ids.windows(2).any(|pair| pair[0] > pair[1]), "no counter");
        assert!(ids.iter().any(|id| *id > 1 << 50), "not from a small range");
        assert!((0..1_000).all(|_| !ids.contains(&other.next_id())), "another key");
    }
}
