//! Counts, durations and costs of runs, per agent and outcome, in bounded memory, for `/metrics`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::base::shorten;
use crate::outcome::{Code, Outcome, Report};

/// The upper ends of the buckets in seconds; agents take from moments to minutes.
pub const RUN_BUCKETS: [f64; 10] = [0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0];
/// More pairs than this are counted together.
const MAX_KEYS: usize = 500;
const OTHERS: &str = "(others)";
/// A name that is no agent's was made up by its caller: it would only fill the table.
const UNKNOWN: &str = "(unknown)";

/// The runs of one process; share it by reference.
#[derive(Debug, Default)]
pub struct RunMetrics {
    series: Mutex<BTreeMap<(String, &'static str), RunSeries>>,
}

/// The runs of one agent that ended in one way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSeries {
    /// How many.
    pub runs: u64,
    /// All their seconds together.
    pub seconds: f64,
    /// All their dollars together.
    pub cost_usd: f64,
    /// How many took no longer than each of [`RUN_BUCKETS`].
    pub buckets: [u64; RUN_BUCKETS.len()],
}

/// One row: the agent, how its runs ended, and the numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// The agent.
    pub agent: String,
    /// `SUCCESS` or the code of the failure.
    pub outcome: &'static str,
    /// The numbers.
    pub series: RunSeries,
}

impl RunMetrics {
    /// Counts one run.
    pub fn count(&self, report: &Report) {
        let (agent, outcome) = key(report);
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let known = series.len() < MAX_KEYS || series.contains_key(&(agent.clone(), outcome));
        let agent = if known { agent } else { OTHERS.to_owned() };
        series.entry((agent, outcome)).or_default().add(report);
    }

    /// Everything counted so far.
    pub fn rows(&self) -> Vec<RunRow> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
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

fn key(report: &Report) -> (String, &'static str) {
    let agent = || shorten(&report.agent, 160);
    match &report.outcome {
        Outcome::Answered(_) => (agent(), "SUCCESS"),
        Outcome::Failed(failure) => match failure.code {
            Code::AgentNotFound | Code::InvalidArgument => {
                (UNKNOWN.to_owned(), failure.code.as_str())
            }
            code => (agent(), code.as_str()),
        },
    }
}
