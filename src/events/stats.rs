//! What agents have done over a time: how many runs, how they ended, how long they took and what they cost.

use std::collections::BTreeMap;

use serde::Serialize;

use super::story::{RunStory, StepKind};

/// What one agent has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AgentStats {
    /// Runs that were asked for.
    pub runs: u64,
    /// Runs that go on.
    pub running: u64,
    /// Failures by their code.
    pub failures: BTreeMap<String, u64>,
    /// Half of the runs took at most this long, in milliseconds.
    pub p50_ms: Option<u64>,
    /// Of twenty runs nineteen took at most this long.
    pub p95_ms: Option<u64>,
    /// Dollars.
    pub cost_usd: f64,
    /// `input`, `output`, `cache_read`, `cache_creation`.
    pub tokens: BTreeMap<String, u64>,
    /// Tool calls that ran.
    pub tools: u64,
    /// Tool calls that were refused.
    pub denials: u64,
}

/// Counts by agent.
pub fn count_by_agent(stories: &[RunStory]) -> BTreeMap<String, AgentStats> {
    let mut agents: BTreeMap<String, Vec<&RunStory>> = BTreeMap::new();
    for story in stories {
        agents.entry(story.agent.clone()).or_default().push(story);
    }
    agents.into_iter().map(|(agent, stories)| (agent, count(&stories))).collect()
}

fn count(stories: &[&RunStory]) -> AgentStats {
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
        stats.tools += (story.count(StepKind::Tool) + story.count(StepKind::Failed)) as u64;
        stats.denials += story.count(StepKind::Denied) as u64;
    }
    let mut durations: Vec<u64> = stories.iter().filter_map(|story| story.duration_ms).collect();
    durations.sort_unstable();
    stats.p50_ms = percentile(&durations, 50);
    stats.p95_ms = percentile(&durations, 95);
    stats
}

/// The smallest value that so many of a hundred do not exceed.
fn percentile(sorted: &[u64], hundredths: usize) -> Option<u64> {
    let rank = (sorted.len() * hundredths).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let row: Vec<u64> = (1..=20).collect();
        assert_eq!((percentile(&row, 50), percentile(&row, 95)), (Some(10), Some(19)));
        assert_eq!((percentile(&[7], 50), percentile(&[7], 95)), (Some(7), Some(7)));
        assert_eq!(percentile(&[], 50), None);
    }
}
