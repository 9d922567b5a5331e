//! Attestations that wait for their calls.
//!
//! An attestation can be used once, expires after 1 h, and is rejected if two attestations of the same call differ.
//! Hooks run before the call, so the attestation arrives first.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::attestation::Attestation;
use super::hook_listener::read_spool;
use crate::util::Mutex;

/// Validity of an attestation. A person may be asked for permission between the hook and the call.
const ATTESTATION_LIFETIME: Duration = Duration::from_hours(1);
/// Limit of waiting attestations; above it the oldest is dropped and counts as used.
const MAX_PENDING: usize = 1024;
/// Limit of remembered ids of used, expired or dropped attestations; the oldest are forgotten first.
const MAX_USED_IDS: usize = 8192;

/// The channel over which an attestation arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttestationChannel {
    /// The MCP connection: its other end is held by Claude Code alone.
    Connection,
    /// A hook process, through the private socket or a spooled file.
    Hook,
}

/// Registry of the attestations of one connection with Claude Code.
#[derive(Debug, Default)]
pub(crate) struct AttestationRegistry {
    state: Mutex<RegistryState>,
    /// Directory with attestation files, if the socket could not be created.
    spool_dir: OnceLock<PathBuf>,
}

#[derive(Debug, Default)]
struct RegistryState {
    /// Oldest first; at most [`MAX_PENDING`].
    pending: VecDeque<AttestationEntry>,
    used_ids: UsedIds,
    /// True once an attestation arrived over the MCP connection. From then on those of hook processes do not suffice.
    over_connection: bool,
}

#[derive(Debug)]
struct AttestationEntry {
    attestation: Attestation,
    received_at: Instant,
    over_connection: bool,
    is_contradicted: bool,
}

/// Reasons why an attestation is not accepted. The call is rejected then; it never falls back to another identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttestationError {
    /// Two attestations of this call differ.
    #[error("two attestations of this call contradict each other")]
    Contradictory,
    /// The attestation names another tool.
    #[error("the attestation of this call is about another tool")]
    OtherTool,
    /// An attestation with this id was used, has expired or was dropped.
    #[error("the attestation of this call was used before or has expired")]
    AlreadyUsed,
}

impl AttestationRegistry {
    /// Stores an attestation until its call arrives. Returns false if the id was used before.
    ///
    /// An attestation that differs from one stored for the same id invalidates both.
    pub(crate) fn add(&self, attestation: Attestation, channel: AttestationChannel) -> bool {
        self.add_at(attestation, channel, Instant::now())
    }

    /// Consumes the attestation of a call; `Ok(None)` if there is none or only one of a channel that does not suffice.
    ///
    /// Reads spooled files first, if there is a spool directory (blocks on disk).
    pub(crate) fn take(
        &self,
        tool_use_id: &str,
        tool: &str,
    ) -> Result<Option<Attestation>, AttestationError> {
        if let Some(spool_dir) = self.spool_dir.get() {
            read_spool(spool_dir, self);
        }
        self.take_at(tool_use_id, tool, Instant::now())
    }

    /// Sets the directory whose files are read before each [`Self::take`].
    pub(crate) fn set_spool_dir(&self, spool_dir: PathBuf) {
        // The first directory stays: a connection has one.
        let _ = self.spool_dir.set(spool_dir);
    }

    fn add_at(&self, attestation: Attestation, channel: AttestationChannel, now: Instant) -> bool {
        let mut state = self.state.lock();
        let over_connection = channel == AttestationChannel::Connection;
        state.over_connection |= over_connection;
        state.drop_expired(now);
        if state.used_ids.ids.contains(&attestation.tool_use_id) {
            return false;
        }
        let known = state.pending.iter_mut().find(|entry| entry.is_for(&attestation.tool_use_id));
        if let Some(entry) = known {
            entry.is_contradicted |= entry.attestation != attestation;
            entry.over_connection |= over_connection;
            return true;
        }
        if state.pending.len() >= MAX_PENDING {
            state.drop_oldest();
        }
        let (received_at, is_contradicted) = (now, false);
        let entry = AttestationEntry { attestation, received_at, over_connection, is_contradicted };
        state.pending.push_back(entry);
        true
    }

    fn take_at(
        &self,
        id: &str,
        tool: &str,
        now: Instant,
    ) -> Result<Option<Attestation>, AttestationError> {
        let mut state = self.state.lock();
        state.drop_expired(now);
        let position = state.pending.iter().position(|entry| entry.is_for(id));
        let Some(entry) = position.and_then(|position| state.pending.remove(position)) else {
            let is_used = state.used_ids.ids.contains(id);
            return if is_used { Err(AttestationError::AlreadyUsed) } else { Ok(None) };
        };
        state.used_ids.add(id.to_owned());
        if entry.is_contradicted {
            return Err(AttestationError::Contradictory);
        }
        if !entry.attestation.is_for_tool(tool) {
            return Err(AttestationError::OtherTool);
        }
        let is_enough = entry.over_connection || !state.over_connection;
        Ok(is_enough.then_some(entry.attestation))
    }
}

impl AttestationEntry {
    fn is_for(&self, tool_use_id: &str) -> bool {
        self.attestation.tool_use_id == tool_use_id
    }
}

impl RegistryState {
    fn drop_expired(&mut self, now: Instant) {
        let is_expired = |entry: &AttestationEntry| {
            now.saturating_duration_since(entry.received_at) >= ATTESTATION_LIFETIME
        };
        while self.pending.front().is_some_and(is_expired) {
            self.drop_oldest();
        }
    }

    /// Dropped ids count as used: the call must not fall back to another identity.
    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.pending.pop_front() {
            self.used_ids.add(oldest.attestation.tool_use_id);
        }
    }
}

/// The 8,192 newest ids that must not be used again.
#[derive(Debug, Default)]
struct UsedIds {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

impl UsedIds {
    fn add(&mut self, id: String) {
        if !self.ids.insert(id.clone()) {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > MAX_USED_IDS
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

    fn attestation(id: &str, agent: Option<&str>) -> Attestation {
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
        let registry = AttestationRegistry::default();
        assert_eq!(registry.take("t1", TOOL), Ok(None), "a call that nothing attests");
        assert!(registry.add(attestation("t1", Some("reviewer")), AttestationChannel::Hook));
        assert_eq!(name(registry.take("t1", TOOL).unwrap()).as_deref(), Some("reviewer"));
        assert_eq!(registry.take("t1", TOOL), Err(AttestationError::AlreadyUsed));
        assert!(!registry.add(attestation("t1", None), AttestationChannel::Hook), "late");
        assert_eq!(registry.take("t1", TOOL), Err(AttestationError::AlreadyUsed));
    }

    #[test]
    fn c2_contradictory_attestations_and_other_tools_are_rejected() {
        let registry = AttestationRegistry::default();
        registry.add(attestation("t1", Some("reviewer")), AttestationChannel::Hook);
        registry.add(attestation("t1", None), AttestationChannel::Hook);
        // Repeating the first attestation does not resolve the contradiction.
        registry.add(attestation("t1", Some("reviewer")), AttestationChannel::Hook);
        assert_eq!(registry.take("t1", TOOL), Err(AttestationError::Contradictory));
        registry.add(attestation("t2", None), AttestationChannel::Hook);
        registry.add(attestation("t2", None), AttestationChannel::Hook);
        assert_eq!(
            name(registry.take("t2", TOOL).unwrap()).as_deref(),
            Some("main"),
            "twice the same"
        );
        registry.add(attestation("t3", None), AttestationChannel::Hook);
        assert_eq!(registry.take("t3", "execute_tool"), Err(AttestationError::OtherTool));
    }

    #[test]
    fn c2_a_call_with_an_expired_attestation_is_rejected() {
        let registry = AttestationRegistry::default();
        let now = Instant::now();
        registry.add_at(attestation("t1", Some("reviewer")), AttestationChannel::Hook, now);
        let late = now + ATTESTATION_LIFETIME;
        assert_eq!(registry.take_at("t1", TOOL, late), Err(AttestationError::AlreadyUsed));
    }

    #[test]
    fn c2_pending_attestations_are_bounded() {
        let registry = AttestationRegistry::default();
        for n in 0..20_000 {
            registry.add(attestation(&format!("t{n}"), None), AttestationChannel::Hook);
        }
        let state = registry.state.lock();
        assert_eq!(state.pending.len(), MAX_PENDING);
        assert_eq!(
            (state.used_ids.ids.len(), state.used_ids.order.len()),
            (MAX_USED_IDS, MAX_USED_IDS)
        );
        drop(state);
        assert!(registry.take("t19999", TOOL).unwrap().is_some());
        assert_eq!(
            registry.take("t18000", TOOL),
            Err(AttestationError::AlreadyUsed),
            "it was pushed out"
        );
    }

    #[test]
    fn c3_hook_attestations_do_not_suffice_after_one_over_the_connection() {
        let registry = AttestationRegistry::default();
        registry.add(attestation("t1", Some("reviewer")), AttestationChannel::Connection);
        assert_eq!(name(registry.take("t1", TOOL).unwrap()).as_deref(), Some("reviewer"));
        registry.add(attestation("t2", None), AttestationChannel::Hook);
        assert_eq!(
            registry.take("t2", TOOL),
            Ok(None),
            "somebody's word, and nothing of Claude Code"
        );
        registry.add(attestation("t3", Some("reviewer")), AttestationChannel::Hook);
        registry.add(attestation("t3", Some("reviewer")), AttestationChannel::Connection);
        assert_eq!(name(registry.take("t3", TOOL).unwrap()).as_deref(), Some("reviewer"));
        registry.add(attestation("t4", None), AttestationChannel::Hook);
        registry.add(attestation("t4", Some("reviewer")), AttestationChannel::Connection);
        assert_eq!(registry.take("t4", TOOL), Err(AttestationError::Contradictory));
    }
}
