//! Refusals in the audit log: every kind from every place, but not each of a hundred thousand.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::refusal::Refusal;
use crate::gateway::Gateway;
use crate::identity::Caller;
use crate::record::AuditLine;

/// Of refusals that are alike one line is written in this time; the next one says how many came in between.
const QUIET: Duration = Duration::from_secs(10);
/// More kinds than this are counted together.
const MOST_KINDS: usize = 1_000;

/// Writes refusals down.
pub(super) struct RefusalLog {
    gateway: Arc<Gateway>,
    recent: Mutex<HashMap<Kind, Recent>>,
}

type Kind = (&'static str, Option<IpAddr>);

struct Recent {
    written: Instant,
    left_out: u64,
}

impl RefusalLog {
    pub(super) fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, recent: Mutex::default() }
    }

    /// Writes a refusal down, unless one like it was just written.
    pub(super) fn note(&self, refusal: &Refusal, from: IpAddr, caller: Option<&Caller>) {
        let Some(code) = refusal.audit_code() else { return };
        let Some(left_out) = self.count((code, Some(from)), Instant::now()) else { return };
        let mut line = AuditLine::new("http_request");
        if let Some(caller) = caller {
            line = line.by(caller);
        }
        let more = match left_out {
            0 => String::new(),
            more => format!(", and {more} more like it since the last such line"),
        };
        let line = line.refused(code, format!("{} (from {from}{more})", refusal.sentence()));
        self.gateway.record(&line);
        tracing::warn!(%from, code, "a request over HTTP was refused");
    }

    /// How many were left out since the last line, if it is time for another.
    fn count(&self, kind: Kind, at: Instant) -> Option<u64> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= MOST_KINDS {
            recent.retain(|_, one| at.saturating_duration_since(one.written) < QUIET);
        }
        let known = recent.contains_key(&kind) || recent.len() < MOST_KINDS;
        let kind = if known { kind } else { (kind.0, None) };
        let Some(one) = recent.get_mut(&kind) else {
            recent.insert(kind, Recent { written: at, left_out: 0 });
            return Some(0);
        };
        if at.saturating_duration_since(one.written) < QUIET {
            one.left_out += 1;
            return None;
        }
        one.written = at;
        Some(std::mem::take(&mut one.left_out))
    }
}
