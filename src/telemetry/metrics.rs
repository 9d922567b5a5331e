//! Counts and latencies of gateway calls per agent, server and tool, in bounded memory.

use std::collections::BTreeMap;

use std::time::Duration;

use serde::Serialize;

use super::call_counts::{CallCount, CallCounts};
use super::histogram::Histogram;
use crate::util::{Mutex, shorten};

/// Limit per kind; callers choose the names, so further ones are counted as `(others)`.
const MAX_KEYS: usize = 500;
const OTHERS: &str = "(others)";

/// The gateway metrics of one process. Thread-safe.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    groups: Mutex<MetricGroups>,
}

#[derive(Debug, Default)]
struct MetricGroups {
    agents: BTreeMap<String, MetricSeries>,
    servers: BTreeMap<String, MetricSeries>,
    tools: BTreeMap<String, MetricSeries>,
    calls: CallCounts,
    /// Buffer for `server/tool`.
    tool_key: String,
}

#[derive(Debug, Default)]
struct MetricSeries {
    calls: u64,
    errors: u64,
    denied: u64,
    latency: Histogram,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Answered,
    /// The request ended with an error.
    Failed,
    /// The rules denied the request.
    Denied,
}

/// One request to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSample<'a> {
    /// Name of the caller.
    pub agent: &'a str,
    pub server: Option<&'a str>,
    /// True if a server with this name is configured.
    pub server_exists: bool,
    pub tool: Option<&'a str>,
    pub outcome: CallOutcome,
    pub latency: Duration,
}

/// All metrics for the gateway's status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct MetricsReport {
    /// By agent.
    pub agents: BTreeMap<String, SeriesReport>,
    /// By server.
    pub servers: BTreeMap<String, SeriesReport>,
    /// By `server/tool`.
    pub tools: BTreeMap<String, SeriesReport>,
}

/// Metrics of one agent, server or tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SeriesReport {
    /// All requests.
    pub calls: u64,
    /// Requests that ended with an error.
    pub errors: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Median latency in milliseconds.
    pub p50_ms: Option<f64>,
    /// 95th percentile in milliseconds.
    pub p95_ms: Option<f64>,
    /// 99th percentile in milliseconds.
    pub p99_ms: Option<f64>,
}

impl Metrics {
    pub(crate) fn count_in(&self, measured: &CallSample<'_>) {
        let groups = &mut *self.groups.lock();
        count(&mut groups.agents, measured.agent, measured);
        groups.calls.add(measured);
        let Some(server) = measured.server else { return };
        // The names of a denied call may be invented; they would fill the table.
        let denied = measured.outcome == CallOutcome::Denied;
        if !denied || measured.server_exists {
            count(&mut groups.servers, server, measured);
        }
        if let Some(tool) = measured.tool.filter(|_| !denied) {
            groups.tool_key.clear();
            groups.tool_key.extend([server, "/", tool]);
            count(&mut groups.tools, &groups.tool_key, measured);
        }
    }

    /// Returns the counters by agent, server, tool and outcome.
    pub(crate) fn calls(&self) -> Vec<CallCount> {
        self.groups.lock().calls.rows()
    }

    pub(crate) fn report(&self) -> MetricsReport {
        let groups = self.groups.lock();
        let rows = |group: &BTreeMap<String, MetricSeries>| {
            group.iter().map(|(name, series)| (name.clone(), series.report())).collect()
        };
        MetricsReport {
            agents: rows(&groups.agents),
            servers: rows(&groups.servers),
            tools: rows(&groups.tools),
        }
    }
}

impl MetricSeries {
    fn add(&mut self, measured: &CallSample<'_>) {
        self.calls += 1;
        match measured.outcome {
            CallOutcome::Answered => {}
            CallOutcome::Failed => self.errors += 1,
            CallOutcome::Denied => self.denied += 1,
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

fn count(group: &mut BTreeMap<String, MetricSeries>, name: &str, measured: &CallSample<'_>) {
    if let Some(known) = group.get_mut(name) {
        return known.add(measured);
    }
    let name = if group.len() < MAX_KEYS { shorten(name, 160) } else { OTHERS.to_owned() };
    group.entry(name).or_default().add(measured);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(agent: &'a str, tool: &'a str, outcome: CallOutcome) -> CallSample<'a> {
        let latency = Duration::from_millis(2);
        CallSample {
            agent,
            server: Some("db"),
            server_exists: true,
            tool: Some(tool),
            outcome,
            latency,
        }
    }

    #[test]
    fn calls_errors_and_denials_are_counted_separately() {
        let metrics = Metrics::default();
        metrics.count_in(&call("dev", "query", CallOutcome::Answered));
        metrics.count_in(&call("dev", "query", CallOutcome::Failed));
        metrics.count_in(&call("dev", "no_such_tool", CallOutcome::Denied));
        let made_up = CallSample {
            server: Some("made-up"),
            server_exists: false,
            ..call("dev", "x", CallOutcome::Denied)
        };
        metrics.count_in(&made_up);
        let report = metrics.report();
        let dev = &report.agents["dev"];
        assert_eq!((dev.calls, dev.errors, dev.denied), (4, 1, 2));
        assert_eq!(report.tools.keys().collect::<Vec<_>>(), ["db/query"]);
        let db = &report.servers["db"];
        assert_eq!((db.calls, db.denied), (3, 1));
        assert!(!report.servers.contains_key("made-up"), "names that were refused need not exist");
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let metrics = Metrics::default();
        for number in 0..2_000 {
            metrics.count_in(&call(&format!("agent-{number}"), "x", CallOutcome::Answered));
        }
        let report = metrics.report();
        assert_eq!(report.agents.len(), MAX_KEYS + 1);
        assert_eq!(report.agents[OTHERS].calls, 2_000 - MAX_KEYS as u64);
    }
}
