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
    allowed: Table,
    denied: Table,
}

/// Counts by agent, server, tool and ending; one level for each name, so that a name that is known need not be copied.
#[derive(Debug, Default)]
struct Table {
    rows: usize,
    agents: BTreeMap<String, BTreeMap<String, BTreeMap<String, Endings>>>,
}

type Endings = BTreeMap<&'static str, u64>;

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
        let (server, tool) =
            (measured.server.unwrap_or_default(), measured.tool.unwrap_or_default());
        match table.known(measured.agent, server, tool, ending) {
            Some(count) => *count += 1,
            None => table.begin(
                shorten(measured.agent, 160),
                shorten(server, 160),
                shorten(tool, 160),
                ending,
            ),
        }
    }

    pub(super) fn rows(&self) -> Vec<CallCount> {
        self.allowed.rows().chain(self.denied.rows()).collect()
    }
}

impl Table {
    fn known(
        &mut self,
        agent: &str,
        server: &str,
        tool: &str,
        ending: &'static str,
    ) -> Option<&mut u64> {
        self.agents.get_mut(agent)?.get_mut(server)?.get_mut(tool)?.get_mut(ending)
    }

    /// Counts the first of a row, or one more of all those for which there is no row.
    fn begin(&mut self, agent: String, server: String, tool: String, ending: &'static str) {
        let has_room = self.rows < MAX_KEYS || self.known(&agent, &server, &tool, ending).is_some();
        let [agent, server, tool] = match has_room {
            true => [agent, server, tool],
            false => [(); 3].map(|()| OTHERS.to_owned()),
        };
        let endings = self.agents.entry(agent).or_default().entry(server).or_default().entry(tool);
        let count = endings.or_default().entry(ending).or_insert(0);
        self.rows += usize::from(*count == 0);
        *count += 1;
    }

    fn rows(&self) -> impl Iterator<Item = CallCount> {
        self.agents.iter().flat_map(|(agent, servers)| {
            servers.iter().flat_map(move |(server, tools)| {
                tools.iter().flat_map(move |(tool, endings)| {
                    endings.iter().map(move |(ending, count)| CallCount {
                        agent: agent.clone(),
                        server: server.clone(),
                        tool: tool.clone(),
                        ending,
                        count: *count,
                    })
                })
            })
        })
    }
}
