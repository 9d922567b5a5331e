//! Counters of gateway calls by agent, server, tool and outcome, in bounded memory.

use std::collections::BTreeMap;

use super::metrics::{CallOutcome, CallSample};
use crate::util::shorten;

/// Limit of rows per table; further combinations are counted as `(others)`.
const MAX_KEYS: usize = 1_000;
const OTHERS: &str = "(others)";

/// Counters by agent, server, tool and outcome.
///
/// Denied calls have a table of their own: their names may be invented and must not displace real ones.
#[derive(Debug, Default)]
pub(crate) struct CallCounts {
    allowed: CountTable,
    denied: CountTable,
}

/// Nested maps with one level per name, so that counting known names does not copy them.
#[derive(Debug, Default)]
struct CountTable {
    row_count: usize,
    agents: BTreeMap<String, BTreeMap<String, BTreeMap<String, OutcomeCounts>>>,
}

type OutcomeCounts = BTreeMap<&'static str, u64>;

/// One row of the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCount {
    pub agent: String,
    /// Empty if the call named no server.
    pub server: String,
    /// Empty if the call named no tool.
    pub tool: String,
    /// `answered`, `failed` or `denied`.
    pub outcome: &'static str,
    pub count: u64,
}

impl CallCounts {
    pub(crate) fn add(&mut self, measured: &CallSample<'_>) {
        let (table, outcome) = match measured.outcome {
            CallOutcome::Answered => (&mut self.allowed, "answered"),
            CallOutcome::Failed => (&mut self.allowed, "failed"),
            CallOutcome::Denied => (&mut self.denied, "denied"),
        };
        let (server, tool) =
            (measured.server.unwrap_or_default(), measured.tool.unwrap_or_default());
        match table.existing(measured.agent, server, tool, outcome) {
            Some(count) => *count += 1,
            None => table.add_row(
                shorten(measured.agent, 160),
                shorten(server, 160),
                shorten(tool, 160),
                outcome,
            ),
        }
    }

    pub(crate) fn rows(&self) -> Vec<CallCount> {
        self.allowed.rows().chain(self.denied.rows()).collect()
    }
}

impl CountTable {
    fn existing(
        &mut self,
        agent: &str,
        server: &str,
        tool: &str,
        outcome: &'static str,
    ) -> Option<&mut u64> {
        self.agents.get_mut(agent)?.get_mut(server)?.get_mut(tool)?.get_mut(outcome)
    }

    /// Adds a row, or counts the call as `(others)` if the table is full.
    fn add_row(&mut self, agent: String, server: String, tool: String, outcome: &'static str) {
        let has_room =
            self.row_count < MAX_KEYS || self.existing(&agent, &server, &tool, outcome).is_some();
        let [agent, server, tool] = match has_room {
            true => [agent, server, tool],
            false => [(); 3].map(|()| OTHERS.to_owned()),
        };
        let outcomes = self.agents.entry(agent).or_default().entry(server).or_default().entry(tool);
        let count = outcomes.or_default().entry(outcome).or_insert(0);
        self.row_count += usize::from(*count == 0);
        *count += 1;
    }

    fn rows(&self) -> impl Iterator<Item = CallCount> {
        self.agents.iter().flat_map(|(agent, servers)| {
            servers.iter().flat_map(move |(server, tools)| {
                tools.iter().flat_map(move |(tool, outcomes)| {
                    outcomes.iter().map(move |(outcome, count)| CallCount {
                        agent: agent.clone(),
                        server: server.clone(),
                        tool: tool.clone(),
                        outcome,
                        count: *count,
                    })
                })
            })
        })
    }
}
