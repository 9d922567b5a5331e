//! HTTP sessions: owners, use and limits, and the request ids in use in each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::jsonrpc::Id;
use crate::util::Mutex;

/// Idle time after which a session is closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(30);

#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpSessionLimits {
    pub(crate) per_caller: usize,
    pub(crate) total: usize,
}

/// Limits that suffice for the clients of a team; a session costs some 10 KB.
pub(crate) const SESSION_LIMITS: HttpSessionLimits =
    HttpSessionLimits { per_caller: 1_100, total: 4_400 };

/// Sessions of clients with a protocol revision that has sessions. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct HttpSessions {
    limits: HttpSessionLimits,
    table: Arc<Mutex<HttpSessionTable>>,
}

/// Started and reserved sessions; both count towards the limits.
#[derive(Debug, Default)]
struct HttpSessionTable {
    started: HashMap<String, HttpSession>,
    /// Number of reserved sessions by owner. No entry is 0.
    reserved: HashMap<String, usize>,
}

#[derive(Debug)]
struct HttpSession {
    owner: String,
    last_used: Instant,
    active_requests: usize,
}

impl HttpSessions {
    pub(crate) fn new(limits: HttpSessionLimits) -> Self {
        Self { limits, table: Arc::default() }
    }

    /// Reserves a session. At the limit it replaces the least recently used idle session of `owner`.
    ///
    /// Returns `None` if the limit is reached and all sessions of `owner` are in use. Check and reservation are one
    /// step under the lock: parallel requests cannot exceed the limits together.
    pub(crate) fn reserve(&self, owner: &str) -> Option<HttpSessionReservation> {
        let mut table = self.table.lock();
        let mut replaced = None;
        if table.is_full(owner, self.limits) {
            let oldest = table.oldest_unused(owner)?;
            table.started.remove(&oldest);
            replaced = Some(oldest);
        }
        *table.reserved.entry(owner.to_owned()).or_default() += 1;
        Some(HttpSessionReservation { sessions: self.clone(), owner: owner.to_owned(), replaced })
    }

    /// Marks a session as in use by one request; `None` if the session belongs to another caller.
    ///
    /// An unknown session is accepted here: rmcp answers 404.
    pub(crate) fn begin_request(&self, id: &str, owner: &str) -> Option<HttpSessionUse> {
        let mut table = self.table.lock();
        if let Some(session) = table.started.get_mut(id) {
            if session.owner != owner {
                return None;
            }
            session.active_requests += 1;
        }
        Some(HttpSessionUse { sessions: self.clone(), id: id.to_owned() })
    }

    pub(crate) fn remove(&self, id: &str) {
        self.table.lock().started.remove(id);
    }

    /// Returns the sessions that have been idle for 30 min.
    pub(crate) fn idle_sessions(&self, at: Instant) -> Vec<String> {
        let is_idle = |session: &HttpSession| {
            session.active_requests == 0
                && at.saturating_duration_since(session.last_used) >= IDLE_TIMEOUT
        };
        let table = self.table.lock();
        table
            .started
            .iter()
            .filter(|(_, session)| is_idle(session))
            .map(|(id, _)| id.clone())
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.lock().started.len()
    }
}

impl HttpSessionTable {
    fn is_full(&self, owner: &str, limits: HttpSessionLimits) -> bool {
        let begun = self.started.values().filter(|session| session.owner == owner).count();
        let own = begun + self.reserved.get(owner).copied().unwrap_or(0);
        let all = self.started.len() + self.reserved.values().sum::<usize>();
        own >= limits.per_caller || all >= limits.total
    }

    fn oldest_unused(&self, owner: &str) -> Option<String> {
        let unused = self
            .started
            .iter()
            .filter(|(_, session)| session.owner == owner && session.active_requests == 0);
        unused.min_by_key(|(_, session)| session.last_used).map(|(id, _)| id.clone())
    }

    fn release(&mut self, owner: &str) {
        if let Some(count) = self.reserved.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.reserved.remove(owner);
            }
        }
    }
}

/// A session that counts towards the limits before it has started; released when dropped.
#[derive(Debug)]
pub(crate) struct HttpSessionReservation {
    sessions: HttpSessions,
    owner: String,
    replaced: Option<String>,
}

impl HttpSessionReservation {
    /// Returns the session that was removed to make room and must be closed, if any.
    pub(crate) fn replaced(&self) -> Option<&str> {
        self.replaced.as_deref()
    }

    /// Replaces the reservation by the session that has started.
    pub(crate) fn commit(self, id: &str) {
        let (owner, last_used) = (self.owner.clone(), Instant::now());
        let session = HttpSession { owner, last_used, active_requests: 0 };
        // `self` is dropped after the insertion, so that the session counts at every moment.
        self.sessions.table.lock().started.insert(id.to_owned(), session);
    }
}

impl Drop for HttpSessionReservation {
    fn drop(&mut self) {
        self.sessions.table.lock().release(&self.owner);
    }
}

/// Use of a session by one request; ends when dropped.
#[derive(Debug)]
pub(crate) struct HttpSessionUse {
    sessions: HttpSessions,
    id: String,
}

impl Drop for HttpSessionUse {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.table.lock().started.get_mut(&self.id) {
            session.active_requests = session.active_requests.saturating_sub(1);
            session.last_used = Instant::now();
        }
    }
}

/// Ids of all requests in progress, with their sessions.
#[derive(Clone, Default)]
pub(crate) struct InFlight(Arc<Mutex<HashSet<(String, Id)>>>);

/// A registered request id; released when dropped.
pub(crate) struct InFlightId {
    registry: InFlight,
    key: (String, Id),
}

impl InFlight {
    /// Registers an id; `None` if a request of the same session already uses it.
    pub(crate) fn register(&self, session: &str, id: &Id) -> Option<InFlightId> {
        let key = (session.to_owned(), id.clone());
        let is_free = self.0.lock().insert(key.clone());
        is_free.then(|| InFlightId { registry: self.clone(), key })
    }
}

impl Drop for InFlightId {
    fn drop(&mut self) {
        self.registry.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http_sessions() -> HttpSessions {
        HttpSessions::new(HttpSessionLimits { per_caller: 2, total: 3 })
    }

    #[test]
    fn j3_a_session_belongs_only_to_its_owner() {
        let sessions = http_sessions();
        sessions.reserve("a").unwrap().commit("one");
        assert!(sessions.begin_request("one", "b").is_none());
        assert!(sessions.begin_request("one", "a").is_some());
        assert!(sessions.begin_request("unknown", "b").is_some(), "rmcp answers 404 to that");
    }

    #[test]
    fn j4_sessions_are_limited_and_the_oldest_unused_one_is_replaced() {
        let sessions = http_sessions();
        sessions.reserve("a").unwrap().commit("one");
        sessions.reserve("a").unwrap().commit("two");
        let using = sessions.begin_request("one", "a");
        let instead = sessions.reserve("a").unwrap();
        assert_eq!(instead.replaced(), Some("two"));
        instead.commit("three");
        let _also = sessions.begin_request("three", "a");
        assert!(sessions.reserve("a").is_none(), "all are in use");
        assert_eq!(sessions.reserve("b").unwrap().replaced(), None);
        drop(using);
        assert_eq!(sessions.reserve("a").unwrap().replaced(), Some("one"));
    }

    #[test]
    fn defect_23_a_reserved_session_counts_towards_the_limits() {
        let sessions = http_sessions();
        let (first, second) = (sessions.reserve("a").unwrap(), sessions.reserve("a").unwrap());
        assert!(sessions.reserve("a").is_none(), "two are all that one caller may have");
        let _other = sessions.reserve("b").unwrap();
        assert!(sessions.reserve("c").is_none(), "three are all that there may be");
        drop(first);
        second.commit("one");
        assert_eq!(sessions.reserve("a").unwrap().replaced(), None, "one place was given back");
        assert_eq!((sessions.len(), sessions.table.lock().reserved.len()), (1, 1));
    }

    #[test]
    fn a_session_in_use_never_becomes_idle() {
        let sessions = http_sessions();
        sessions.reserve("a").unwrap().commit("one");
        let later = Instant::now() + IDLE_TIMEOUT;
        let using = sessions.begin_request("one", "a");
        assert!(sessions.idle_sessions(later).is_empty(), "a call may take longer than any pause");
        drop(using);
        assert_eq!(sessions.idle_sessions(later + IDLE_TIMEOUT), ["one"]);
    }

    #[test]
    fn an_id_is_in_use_in_its_session_until_its_request_ends() {
        let all = InFlight::default();
        let id = Id::Number(1);
        let first = all.register("a", &id);
        assert!(first.is_some() && all.register("a", &id).is_none());
        assert!(all.register("b", &id).is_some());
        drop(first);
        assert!(all.register("a", &id).is_some());
    }
}
