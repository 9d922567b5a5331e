//! The two sides of a comparison, measured in turn.

use std::path::{Path, PathBuf};

use crate::common::statistics::median;

/// One value for each build.
#[derive(Clone, Copy)]
pub struct Pair<T> {
    pub old: T,
    pub new: T,
}

/// The two binaries.
pub type Programs = Pair<PathBuf>;

impl Programs {
    /// A value made for each binary, the old one first.
    pub fn each<T>(&self, mut make: impl FnMut(&Path) -> T) -> Pair<T> {
        Pair { old: make(&self.old), new: make(&self.new) }
    }

    /// The same where either can be impossible.
    pub fn try_each<T>(&self, mut make: impl FnMut(&Path) -> Option<T>) -> Option<Pair<T>> {
        Some(Pair { old: make(&self.old)?, new: make(&self.new)? })
    }
}

impl<T> Pair<T> {
    /// Measures both sides. The old one is first in even rounds, the new one in odd rounds: whatever the first leaves
    /// behind for the second affects both alike.
    pub fn measure<V>(&mut self, round: usize, mut measure: impl FnMut(&mut T) -> V) -> Pair<V> {
        if round.is_multiple_of(2) {
            let old = measure(&mut self.old);
            Pair { old, new: measure(&mut self.new) }
        } else {
            let new = measure(&mut self.new);
            Pair { old: measure(&mut self.old), new }
        }
    }

    /// `count` alternating measurements of both sides, by side.
    pub fn repeat<V>(
        &mut self,
        count: usize,
        mut measure: impl FnMut(&mut T) -> V,
    ) -> Pair<Vec<V>> {
        let mut all = Pair { old: Vec::new(), new: Vec::new() };
        for turn in 0..count {
            let one = self.measure(turn, &mut measure);
            all.old.push(one.old);
            all.new.push(one.new);
        }
        all
    }

    pub fn map<V>(&self, map: impl Fn(&T) -> V) -> Pair<V> {
        Pair { old: map(&self.old), new: map(&self.new) }
    }
}

/// The results of `rounds` rounds, after one that is not counted.
pub fn alternate<R>(rounds: usize, mut round: impl FnMut() -> R) -> Vec<R> {
    round();
    (0..rounds).map(|_| round()).collect()
}

/// The median of the rounds, by side.
pub fn medians(rounds: &[Pair<f64>]) -> Pair<f64> {
    Pair {
        old: median(rounds.iter().map(|round| round.old).collect()),
        new: median(rounds.iter().map(|round| round.new).collect()),
    }
}
