//! Counts and latencies per agent, server and tool, in bounded memory, for the gateway's status.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::call_counts::{CallCount, CallCounts};
use super::histogram::Histogram;
use crate::base::shorten;

/// Names come from callers: beyond this many of a kind they are counted together.
const MAX_KEYS: usize = 500;
/// What those are counted under.
const OTHERS: &str = "(others)";

/// The metrics of one process; share it by reference.
#[derive(Debug, Default)]
pub struct Metrics {
    groups: Mutex<Groups>,
}

#[derive(Debug, Default)]
struct Groups {
    agents: BTreeMap<String, Series>,
    servers: BTreeMap<String, Series>,
    tools: BTreeMap<String, Series>,
    calls: CallCounts,
    /// Where `server/tool` is put together.
    name: String,
}

#[derive(Debug, Default)]
struct Series {
    calls: u64,
    errors: u64,
    denied: u64,
    latency: Histogram,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With an answer.
    Answered,
    /// With an error.
    Failed,
    /// It was not allowed.
    Denied,
}

/// One request that is to be counted.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Who called.
    pub agent: &'a str,
    /// Which server was asked, if one was.
    pub server: Option<&'a str>,
    /// Whether a server of this name is known to be there.
    pub server_exists: bool,
    /// Which tool of it, if one was.
    pub tool: Option<&'a str>,
    /// How it ended.
    pub ending: Ending,
    /// How long it took.
    pub latency: Duration,
}

/// Everything counted so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricsReport {
    /// By agent.
    pub agents: BTreeMap<String, SeriesReport>,
    /// By server.
    pub servers: BTreeMap<String, SeriesReport>,
    /// By `server/tool`.
    pub tools: BTreeMap<String, SeriesReport>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeriesReport {
    /// All requests.
    pub calls: u64,
    /// Those that ended with an error.
    pub errors: u64,
    /// Those that were not allowed.
    pub denied: u64,
    /// Half of all took no longer, in milliseconds.
    pub p50_ms: Option<f64>,
    /// 95 of 100 took no longer.
    pub p95_ms: Option<f64>,
    /// 99 of 100 took no longer.
    pub p99_ms: Option<f64>,
}

impl Metrics {
    /// Counts one request.
    pub fn count(&self, measured: &Measured<'_>) {
        let groups = &mut *self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        count(&mut groups.agents, measured.agent, measured);
        groups.calls.add(measured);
        let Some(server) = measured.server else { return };
        // A name that was refused need not exist: it would only fill the table.
        let denied = measured.ending == Ending::Denied;
        if !denied || measured.server_exists {
            count(&mut groups.servers, server, measured);
        }
        if let Some(tool) = measured.tool.filter(|_| !denied) {
            groups.name.clear();
            groups.name.extend([server, "/", tool]);
            count(&mut groups.tools, &groups.name, measured);
        }
    }

    /// Every combination of agent, server, tool and ending so far.
    pub fn calls(&self) -> Vec<CallCount> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).calls.rows()
    }

    /// Everything counted so far.
    pub fn report(&self) -> MetricsReport {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = |group: &BTreeMap<String, Series>| {
            group.iter().map(|(name, series)| (name.clone(), series.report())).collect()
        };
        MetricsReport {
            agents: rows(&groups.agents),
            servers: rows(&groups.servers),
            tools: rows(&groups.tools),
        }
    }
}

impl Series {
    fn add(&mut self, measured: &Measured<'_>) {
        self.calls += 1;
        match measured.ending {
            Ending::Answered => {}
            Ending::Failed => self.errors += 1,
            Ending::Denied => self.denied += 1,
        }
        self.latency.add(measured.latency);
    }

    fn report(&self) -> SeriesReport {
        SeriesReport {
            calls: self.calls,
            errors: self.errors,
            denied: self.denied,
            p50_ms: self.latency.percentile_ms(50),
            p95_ms: self.latency.percentile_ms(95),
            p99_ms: self.latency.percentile_ms(99),
        }
    }
}

fn count(group: &mut BTreeMap<String, Series>, name: &str, measured: &Measured<'_>) {
    if let Some(known) = group.get_mut(name) {
        return known.add(measured);
    }
    let name = if group.len() < MAX_KEYS { shorten(name, 160) } else { OTHERS.to_owned() };
    group.entry(name).or_default().add(measured);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(agent: &'a str, tool: &'a str, ending: Ending) -> Measured<'a> {
        let latency = Duration::from_millis(2);
        Measured {
            agent,
            server: Some("db"),
            server_exists: true,
            tool: Some(tool),
            ending,
            latency,
        }
    }

    #[test]
    fn calls_errors_and_refusals_are_told_apart() {
        let metrics = Metrics::default();
        metrics.count(&call("dev", "query", Ending::Answered));
        metrics.count(&call("dev", "query", Ending::Failed));
        metrics.count(&call("dev", "no_such_tool", Ending::Denied));
        let made_up = Measured {
            server: Some("made-up"),
            server_exists: false,
            ..call("dev", "x", Ending::Denied)
        };
        metrics.count(&made_up);
        let report = metrics.report();
        let dev = &report.agents["dev"];
        assert_eq!((dev.calls, dev.errors, dev.denied), (4, 1, 2));
        assert_eq!(report.tools.keys().collect::<Vec<_>>(), ["db/query"]);
        let db = &report.servers["db"];
        assert_eq!((db.calls, db.denied), (3, 1));
        assert!(!report.servers.contains_key("made-up"), "names that were refused need not exist");
    }

    #[test]
    fn memory_is_bounded_whatever_names_come() {
        let metrics = Metrics::default();
        for number in 0..2_000 {
            metrics.count(&call(&format!("agent-{number}"), "x", Ending::Answered));
        }
        let report = metrics.report();
        assert_eq!(report.agents.len(), MAX_KEYS + 1);
        assert_eq!(report.agents[OTHERS].calls, 2_000 - MAX_KEYS as u64);
    }
}
