//! Attestations that wait for their calls: each is used once, expires, and cannot be contradicted unnoticed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::attestation::Attestation;
use super::inbox;

/// How long one is good. A person may be asked for permission between the hook and the call.
const LIFETIME: Duration = Duration::from_hours(1);
/// How many wait; more than any agent calls at once.
const MAX_WAITING: usize = 1024;
/// How many ids of calls that were judged are remembered, so that none is judged twice.
const MAX_SPENT: usize = 8192;

/// The way an attestation came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over the MCP connection itself: Claude Code alone holds its other end.
    Connection,
    /// From a process of the hook, by the private socket or file.
    Hook,
}

/// The attestations of one connection with Claude Code.
#[derive(Debug, Default)]
pub struct Attestations {
    book: Mutex<Book>,
    /// Where hooks leave files, if they must.
    inbox: OnceLock<PathBuf>,
}

#[derive(Debug, Default)]
struct Book {
    waiting: HashMap<String, Entry>,
    order: VecDeque<String>,
    spent: Spent,
    /// Whether Claude Code attests over the connection; then nothing less will do.
    over_connection: bool,
}

#[derive(Debug)]
struct Entry {
    said: Attestation,
    came: Instant,
    over_connection: bool,
    is_contradicted: bool,
}

/// Why it cannot be said who makes a call. It is refused then: nobody is taken for somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// Two attestations differ, so one of them is a lie.
    #[error("two attestations of this call contradict each other")]
    Contradicted,
    /// It was made for a call of another tool.
    #[error("the attestation of this call is about another tool")]
    OtherTool,
    /// A call with this id was judged before, or waited too long.
    #[error("the attestation of this call was used before or has expired")]
    Spent,
}

impl Attestations {
    /// Keeps an attestation until its call comes. Says whether it was taken.
    pub fn add(&self, said: Attestation, way: Way) -> bool {
        self.add_at(said, way, Instant::now())
    }

    /// Uses up what is attested about a call; `None` if nothing is.
    pub fn take(&self, tool_use_id: &str, tool: &str) -> Result<Option<Attestation>, Doubt> {
        if let Some(inbox) = self.inbox.get() {
            inbox::collect(inbox, self);
        }
        self.take_at(tool_use_id, tool, Instant::now())
    }

    /// Looks into this folder before each call from now on.
    pub(super) fn read_files_in(&self, inbox: PathBuf) {
        // The first one stays: there is one meeting place for a connection.
        let _ = self.inbox.set(inbox);
    }

    fn add_at(&self, said: Attestation, way: Way, now: Instant) -> bool {
        let mut book = self.book();
        let over_connection = way == Way::Connection;
        book.over_connection |= over_connection;
        book.drop_expired(now);
        if book.spent.has(&said.tool_use_id) {
            return false;
        }
        if let Some(entry) = book.waiting.get_mut(&said.tool_use_id) {
            entry.is_contradicted |= entry.said != said;
            entry.over_connection |= over_connection;
            return true;
        }
        if book.waiting.len() >= MAX_WAITING {
            book.drop_oldest();
        }
        let id = said.tool_use_id.clone();
        book.order.push_back(id.clone());
        book.waiting.insert(id, Entry { said, came: now, over_connection, is_contradicted: false });
        true
    }

    fn take_at(&self, id: &str, tool: &str, now: Instant) -> Result<Option<Attestation>, Doubt> {
        let mut book = self.book();
        book.drop_expired(now);
        let Some(entry) = book.waiting.remove(id) else {
            return if book.spent.has(id) { Err(Doubt::Spent) } else { Ok(None) };
        };
        book.order.retain(|waiting| waiting != id);
        book.spent.add(id.to_owned());
        if entry.is_contradicted {
            return Err(Doubt::Contradicted);
        }
        if !entry.said.is_about(tool) {
            return Err(Doubt::OtherTool);
        }
        let is_enough = entry.over_connection || !book.over_connection;
        Ok(is_enough.then_some(entry.said))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn drop_expired(&mut self, now: Instant) {
        while let Some(oldest) = self.order.front().and_then(|id| self.waiting.get(id)) {
            if now.saturating_duration_since(oldest.came) < LIFETIME {
                return;
            }
            self.drop_oldest();
        }
    }

    /// What is dropped is remembered as spent: its call must not fall back to another name.
    fn drop_oldest(&mut self) {
        if let Some(id) = self.order.pop_front() {
            self.waiting.remove(&id);
            self.spent.add(id);
        }
    }
}

/// Ids that are over, the newest of them.
#[derive(Debug, Default)]
struct Spent {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl Spent {
    fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }

    fn add(&mut self, id: String) {
        if !self.ids.insert(id.clone()) {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > MAX_SPENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: &str = "run_subagent";

    fn said(id: &str, agent: Option<&str>) -> Attestation {
        Attestation {
            tool_use_id: id.to_owned(),
            tool_name: format!("mcp__adjutant__{TOOL}"),
            session_id: "s".to_owned(),
            agent_id: agent.map(|_| "a1".to_owned()),
            agent_type: agent.map(str::to_owned),
        }
    }

    fn name(taken: Option<Attestation>) -> Option<String> {
        taken.map(|taken| taken.caller().name)
    }

    #[test]
    fn c2_an_attestation_is_used_once_and_cannot_be_replayed() {
        let book = Attestations::default();
        assert_eq!(book.take("t1", TOOL), Ok(None), "a call that nothing attests");
        assert!(book.add(said("t1", Some("reviewer")), Way::Hook));
        assert_eq!(name(book.take("t1", TOOL).unwrap()).as_deref(), Some("reviewer"));
        assert_eq!(book.take("t1", TOOL), Err(Doubt::Spent));
        assert!(!book.add(said("t1", None), Way::Hook), "late");
        assert_eq!(book.take("t1", TOOL), Err(Doubt::Spent));
    }

    #[test]
    fn c2_one_that_differs_or_is_for_another_tool_is_a_refusal() {
        let book = Attestations::default();
        book.add(said("t1", Some("reviewer")), Way::Hook);
        book.add(said("t1", None), Way::Hook);
        // The truth once more does not make it good again.
        book.add(said("t1", Some("reviewer")), Way::Hook);
        assert_eq!(book.take("t1", TOOL), Err(Doubt::Contradicted));
        book.add(said("t2", None), Way::Hook);
        book.add(said("t2", None), Way::Hook);
        assert_eq!(name(book.take("t2", TOOL).unwrap()).as_deref(), Some("main"), "twice the same");
        book.add(said("t3", None), Way::Hook);
        assert_eq!(book.take("t3", "execute_tool"), Err(Doubt::OtherTool));
    }

    #[test]
    fn c2_an_attestation_expires_and_its_call_becomes_nobody_else() {
        let book = Attestations::default();
        let now = Instant::now();
        book.add_at(said("t1", Some("reviewer")), Way::Hook, now);
        let late = now + LIFETIME;
        assert_eq!(book.take_at("t1", TOOL, late), Err(Doubt::Spent));
    }

    #[test]
    fn c2_ten_thousand_of_them_stay_within_bounds() {
        let book = Attestations::default();
        for n in 0..20_000 {
            book.add(said(&format!("t{n}"), None), Way::Hook);
        }
        let inside = book.book();
        assert_eq!(inside.waiting.len(), MAX_WAITING);
        assert_eq!(inside.order.len(), MAX_WAITING);
        assert_eq!((inside.spent.ids.len(), inside.spent.order.len()), (MAX_SPENT, MAX_SPENT));
        drop(inside);
        assert!(book.take("t19999", TOOL).unwrap().is_some());
        assert_eq!(book.take("t18000", TOOL), Err(Doubt::Spent), "it was pushed out");
    }

    #[test]
    fn c3_where_the_connection_attests_a_process_alone_cannot() {
        let book = Attestations::default();
        book.add(said("t1", Some("reviewer")), Way::Connection);
        assert_eq!(name(book.take("t1", TOOL).unwrap()).as_deref(), Some("reviewer"));
        book.add(said("t2", None), Way::Hook);
        assert_eq!(book.take("t2", TOOL), Ok(None), "somebody's word, and nothing of Claude Code");
        book.add(said("t3", Some("reviewer")), Way::Hook);
        book.add(said("t3", Some("reviewer")), Way::Connection);
        assert_eq!(name(book.take("t3", TOOL).unwrap()).as_deref(), Some("reviewer"));
        book.add(said("t4", None), Way::Hook);
        book.add(said("t4", Some("reviewer")), Way::Connection);
        assert_eq!(book.take("t4", TOOL), Err(Doubt::Contradicted));
    }
}
