//! Counts, durations and costs of runs per agent and outcome, in bounded memory, for `/metrics`.

use std::collections::BTreeMap;

use std::time::Duration;

use crate::outcome::{Code, Outcome, Report};
use crate::util::{Mutex, shorten};

/// Upper bounds of the duration buckets in seconds.
pub(crate) const RUN_BUCKETS: [f64; 10] =
    [0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0];
/// Limit of agent and outcome pairs; further ones are counted as `(others)`.
const MAX_KEYS: usize = 500;
const OTHERS: &str = "(others)";
/// Replaces names that are no agent's: callers invent them, and they would fill the table.
const UNKNOWN_AGENT: &str = "(unknown)";

/// The run metrics of one process. Thread-safe.
#[derive(Debug, Default)]
pub(crate) struct RunMetrics {
    series: Mutex<BTreeMap<(String, &'static str), RunSeries>>,
}

/// Metrics of the runs of one agent with one outcome.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSeries {
    /// Number of runs.
    pub runs: u64,
    /// Sum of the durations in seconds.
    pub seconds: f64,
    /// Sum of the costs in US dollars.
    pub cost_usd: f64,
    /// Number of runs with a duration of at most each of [`RUN_BUCKETS`] (cumulative).
    pub buckets: [u64; RUN_BUCKETS.len()],
}

/// One agent and outcome with its metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    pub agent: String,
    /// `SUCCESS` or an error code.
    pub outcome: &'static str,
    pub series: RunSeries,
}

impl RunMetrics {
    pub(crate) fn count(&self, report: &Report) {
        let (agent, outcome) = series_key(report);
        let mut series = self.series.lock();
        let known = series.len() < MAX_KEYS || series.contains_key(&(agent.clone(), outcome));
        let agent = if known { agent } else { OTHERS.to_owned() };
        series.entry((agent, outcome)).or_default().add(report);
    }

    pub(crate) fn rows(&self) -> Vec<RunRow> {
        let series = self.series.lock();
        let row = |((agent, outcome), series): (&(String, &'static str), &RunSeries)| RunRow {
            agent: agent.clone(),
            outcome,
            series: series.clone(),
        };
        series.iter().map(row).collect()
    }
}

impl RunSeries {
    fn add(&mut self, report: &Report) {
        let seconds = Duration::from_millis(report.duration_ms).as_secs_f64();
        self.runs += 1;
        self.seconds += seconds;
        self.cost_usd += report.cost_usd.unwrap_or_default();
        for (bucket, end) in self.buckets.iter_mut().zip(RUN_BUCKETS) {
            *bucket += u64::from(seconds <= end);
        }
    }
}

fn series_key(report: &Report) -> (String, &'static str) {
    let agent = || shorten(&report.agent, 160);
    match &report.outcome {
        Outcome::Answered(_) => (agent(), "SUCCESS"),
        Outcome::Failed(failure) => match failure.code {
            Code::AgentNotFound | Code::InvalidArgument => {
                (UNKNOWN_AGENT.to_owned(), failure.code.as_str())
            }
            code => (agent(), code.as_str()),
        },
    }
}
