//! How often each agent called each tool of each server, and whether it was allowed.

use std::collections::BTreeMap;

use super::metrics::{Ending, Measured};
use crate::base::shorten;

/// More than this are counted together.
const MAX_KEYS: usize = 1_000;
const OTHERS: &str = "(others)";

/// Counts by agent, server, tool and ending. Names that were refused need not exist: they have a table of their own,
/// so that made-up ones push no real one out.
#[derive(Debug, Default)]
pub(super) struct CallCounts {
    allowed: BTreeMap<Key, u64>,
    denied: BTreeMap<Key, u64>,
}

type Key = (String, String, String, &'static str);

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCount {
    /// Who called.
    pub agent: String,
    /// Which server; empty where none was named.
    pub server: String,
    /// Which tool; empty where none was named.
    pub tool: String,
    /// `answered`, `failed` or `denied`.
    pub ending: &'static str,
    /// How often.
    pub count: u64,
}

impl CallCounts {
    pub(super) fn add(&mut self, measured: &Measured<'_>) {
        let (table, ending) = match measured.ending {
            Ending::Answered => (&mut self.allowed, "answered"),
            Ending::Failed => (&mut self.allowed, "failed"),
            Ending::Denied => (&mut self.denied, "denied"),
        };
        let name = |text: Option<&str>| shorten(text.unwrap_or_default(), 160);
        let agent = shorten(measured.agent, 160);
        let key = (agent, name(measured.server), name(measured.tool), ending);
        let known = table.len() < MAX_KEYS || table.contains_key(&key);
        let others = || (OTHERS.to_owned(), OTHERS.to_owned(), OTHERS.to_owned(), ending);
        *table.entry(if known { key } else { others() }).or_default() += 1;
    }

    pub(super) fn rows(&self) -> Vec<CallCount> {
        let row = |((agent, server, tool, ending), count): (&Key, &u64)| CallCount {
            agent: agent.clone(),
            server: server.clone(),
            tool: tool.clone(),
            ending,
            count: *count,
        };
        self.allowed.iter().chain(&self.denied).map(row).collect()
    }
}
