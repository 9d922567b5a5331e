//! Statistics of runs per agent: number, outcomes, durations and costs.

use std::collections::BTreeMap;

use super::timeline::{RunTimeline, TimelineStepKind};
use crate::api::AgentStatsObject;

/// Statistics of one agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgentStats {
    /// All runs.
    pub runs: u64,
    /// Runs that have not ended.
    pub running: u64,
    /// Failed runs by error code.
    pub failures: BTreeMap<String, u64>,
    /// Median duration in milliseconds.
    pub p50_ms: Option<u64>,
    /// 95th percentile of the duration in milliseconds.
    pub p95_ms: Option<u64>,
    /// US dollars.
    pub cost_usd: f64,
    /// By kind: `input`, `output`, `cache_read`, `cache_creation`.
    pub tokens: BTreeMap<String, u64>,
    /// Tool calls that were executed.
    pub tools: u64,
    /// Tool calls that were denied.
    pub denials: u64,
}

impl AgentStats {
    pub(crate) fn to_object(&self, agent: &str) -> AgentStatsObject {
        AgentStatsObject {
            agent: agent.to_owned(),
            runs: self.runs,
            running: self.running,
            failures: self.failures.clone(),
            p50_ms: self.p50_ms,
            p95_ms: self.p95_ms,
            cost_usd: self.cost_usd.into(),
            tokens: self.tokens.clone(),
            tools: self.tools,
            denials: self.denials,
        }
    }
}

pub(crate) fn stats_by_agent(stories: &[RunTimeline]) -> BTreeMap<String, AgentStats> {
    let mut agents: BTreeMap<String, Vec<&RunTimeline>> = BTreeMap::new();
    for story in stories {
        agents.entry(story.agent.clone()).or_default().push(story);
    }
    agents.into_iter().map(|(agent, stories)| (agent, stats_of(&stories))).collect()
}

fn stats_of(stories: &[&RunTimeline]) -> AgentStats {
    let mut stats = AgentStats::default();
    for story in stories {
        stats.runs += 1;
        match story.outcome.as_deref() {
            None => stats.running += 1,
            Some("SUCCESS") => {}
            Some(code) => *stats.failures.entry(code.to_owned()).or_default() += 1,
        }
        stats.cost_usd += story.cost_usd.unwrap_or_default();
        for (name, count) in &story.tokens {
            *stats.tokens.entry(name.clone()).or_default() += count;
        }
        stats.tools +=
            (story.count(TimelineStepKind::Tool) + story.count(TimelineStepKind::Failed)) as u64;
        stats.denials += story.count(TimelineStepKind::Denied) as u64;
    }
    let mut durations: Vec<u64> = stories.iter().filter_map(|story| story.duration_ms).collect();
    durations.sort_unstable();
    stats.p50_ms = percentile(&durations, 50);
    stats.p95_ms = percentile(&durations, 95);
    stats
}

/// Returns the nearest-rank percentile.
fn percentile(sorted: &[u64], hundredths: usize) -> Option<u64> {
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_observed_values() {
        let row: Vec<u64> = (1..=20).collect();
        assert_eq!((percentile(&row, 50), percentile(&row, 95)), (Some(10), Some(19)));
        assert_eq!((percentile(&[7], 50), percentile(&[7], 95)), (Some(7), Some(7)));
        assert_eq!(percentile(&[], 50), None);
    }
}
