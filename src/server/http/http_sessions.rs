//! Whose session is whose, which are in use, and how many there may be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A session that nobody has used for this long is over. Much longer than a person's pause.
const IDLE: Duration = Duration::from_mins(30);

/// How many sessions there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionLimits {
    pub(super) per_caller: usize,
    pub(super) in_all: usize,
}

/// Enough for the clients of a team; each costs some ten kilobytes.
pub(super) const SESSION_LIMITS: SessionLimits = SessionLimits { per_caller: 1_100, in_all: 4_400 };

/// The sessions of clients that speak a revision with sessions. Clones are the same book.
#[derive(Clone, Debug)]
pub(super) struct SessionBook {
    limits: SessionLimits,
    seats: Arc<Mutex<HashMap<String, Seat>>>,
}

#[derive(Debug)]
struct Seat {
    owner: String,
    used: Instant,
    streams: usize,
}

/// Whether there is room for one more session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is.
    Free,
    /// If this one, which nobody uses, is closed.
    After(String),
    /// There is none: all are in use.
    None,
}

impl SessionBook {
    pub(super) fn new(limits: SessionLimits) -> Self {
        Self { limits, seats: Arc::default() }
    }

    /// Whether `owner` may begin one more session.
    pub(super) fn room(&self, owner: &str) -> Room {
        let seats = self.lock();
        let own = seats.values().filter(|seat| seat.owner == owner).count();
        if own < self.limits.per_caller && seats.len() < self.limits.in_all {
            return Room::Free;
        }
        let oldest = seats
            .iter()
            .filter(|(_, seat)| seat.owner == owner && seat.streams == 0)
            .min_by_key(|(_, seat)| seat.used);
        oldest.map_or(Room::None, |(id, _)| Room::After(id.clone()))
    }

    /// Notes a session that has begun.
    pub(super) fn begun(&self, id: &str, owner: &str) {
        let seat = Seat { owner: owner.to_owned(), used: Instant::now(), streams: 0 };
        self.lock().insert(id.to_owned(), seat);
    }

    /// Takes up a session for one request; `None` where somebody else's is meant. An unknown one is
    /// nobody's: whoever keeps the sessions says so.
    pub(super) fn take_up(&self, id: &str, owner: &str) -> Option<InUse> {
        let mut seats = self.lock();
        if let Some(seat) = seats.get_mut(id) {
            if seat.owner != owner {
                return None;
            }
            seat.streams += 1;
        }
        Some(InUse { book: self.clone(), id: id.to_owned() })
    }

    /// Strikes out a session that is over.
    pub(super) fn ended(&self, id: &str) {
        self.lock().remove(id);
    }

    /// The sessions that nobody has used for long.
    pub(super) fn forgotten(&self, at: Instant) -> Vec<String> {
        let is_idle =
            |seat: &Seat| seat.streams == 0 && at.saturating_duration_since(seat.used) >= IDLE;
        let seats = self.lock();
        seats.iter().filter(|(_, seat)| is_idle(seat)).map(|(id, _)| id.clone()).collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session while one of its requests is being answered.
#[derive(Debug)]
pub(super) struct InUse {
    book: SessionBook,
    id: String,
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(seat) = self.book.lock().get_mut(&self.id) {
            seat.streams = seat.streams.saturating_sub(1);
            seat.used = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> SessionBook {
        SessionBook::new(SessionLimits { per_caller: 2, in_all: 3 })
    }

    #[test]
    fn j3_a_session_is_its_owners_alone() {
        let book = book();
        book.begun("one", "a");
        assert!(book.take_up("one", "b").is_none());
        assert!(book.take_up("one", "a").is_some());
        assert!(book.take_up("unknown", "b").is_some(), "rmcp answers 404 to that");
    }

    #[test]
    fn j4_sessions_are_bounded_and_the_oldest_unused_one_makes_room() {
        let book = book();
        book.begun("one", "a");
        book.begun("two", "a");
        let using = book.take_up("one", "a");
        assert_eq!(book.room("a"), Room::After("two".into()));
        let _also = book.take_up("two", "a");
        assert_eq!(book.room("a"), Room::None);
        assert_eq!(book.room("b"), Room::Free);
        drop(using);
        assert_eq!(book.room("a"), Room::After("one".into()));
        book.ended("one");
        assert_eq!(book.room("a"), Room::Free);
    }

    #[test]
    fn a_session_in_use_is_never_forgotten() {
        let book = book();
        book.begun("one", "a");
        let later = Instant::now() + IDLE;
        let using = book.take_up("one", "a");
        assert!(book.forgotten(later).is_empty(), "a call may take longer than any pause");
        drop(using);
        assert_eq!(book.forgotten(later + IDLE), ["one"]);
    }
}
