//! Durations of the phases of a run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};

/// Phases of a run, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunPhase {
    /// Waiting for admission and for the session.
    Queue,
    /// Planning the launch.
    Plan,
    /// Connecting the agent's servers.
    Servers,
    /// Spawning the process.
    Spawn,
    /// From the spawn until the process is ready.
    Initialize,
    /// From the prompt to the first frame of the turn.
    FirstFrame,
    /// The rest of the turn: the model and the CLI.
    Model,
    Tools,
    /// Validating the answer.
    Judge,
    /// Writing costs and session before the answer is delivered.
    Record,
}

impl RunPhase {
    /// Returns the key of the phase in `RunEnded` events.
    fn key(self) -> &'static str {
        match self {
            Self::Queue => "queue_ms",
            Self::Plan => "plan_ms",
            Self::Servers => "servers_ms",
            Self::Spawn => "spawn_ms",
            Self::Initialize => "initialize_ms",
            Self::FirstFrame => "first_frame_ms",
            Self::Model => "model_ms",
            Self::Tools => "tools_ms",
            Self::Judge => "judge_ms",
            Self::Record => "record_ms",
        }
    }
}

/// Durations of the phases of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct PhaseTimings(BTreeMap<RunPhase, Duration>);

impl PhaseTimings {
    /// Adds to a phase. A run may have several processes.
    pub(crate) fn add(&mut self, phase: RunPhase, time: Duration) {
        *self.0.entry(phase).or_default() += time;
    }

    /// Returns milliseconds by phase, in order; phases without time are omitted.
    pub(crate) fn milliseconds(&self) -> Map<String, Value> {
        let spent = self.0.iter().filter(|(_, time)| !time.is_zero());
        let rounded = |time: &Duration| (*time + Duration::from_micros(500)).as_millis();
        spent
            .map(|(phase, time)| (phase.key().to_owned(), u64::try_from(rounded(time)).ok().into()))
            .collect()
    }
}

/// Splits a turn into time to first frame, tools and model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnClock {
    first_frame: Option<Instant>,
    running_tools: u32,
    tools_started_at: Option<Instant>,
    tool_time: Duration,
}

impl TurnClock {
    pub(crate) fn first_frame(&mut self) {
        self.first_frame.get_or_insert_with(Instant::now);
    }

    pub(crate) fn tool_started(&mut self) {
        self.running_tools += 1;
        self.tools_started_at.get_or_insert_with(Instant::now);
    }

    pub(crate) fn tool_finished(&mut self) {
        self.running_tools = self.running_tools.saturating_sub(1);
        if self.running_tools == 0
            && let Some(since) = self.tools_started_at.take()
        {
            self.tool_time += since.elapsed();
        }
    }

    /// Adds the parts of a turn that began at `began` and ends now.
    pub(crate) fn add_phases(&self, began: Instant, timing: &mut PhaseTimings) {
        let whole = began.elapsed();
        let first = self.first_frame.map_or(whole, |first| first.duration_since(began));
        let tools =
            self.tool_time + self.tools_started_at.map_or(Duration::ZERO, |since| since.elapsed());
        timing.add(RunPhase::FirstFrame, first);
        timing.add(RunPhase::Tools, tools);
        timing.add(RunPhase::Model, whole.saturating_sub(first + tools));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_reported_in_order_and_summed() {
        let mut timing = PhaseTimings::default();
        timing.add(RunPhase::Model, Duration::from_millis(20));
        timing.add(RunPhase::Queue, Duration::from_micros(1_234));
        timing.add(RunPhase::Model, Duration::from_millis(5));
        let told = serde_json::to_string(&timing.milliseconds()).unwrap();
        assert_eq!(told, r#"{"queue_ms":1,"model_ms":25}"#);
    }

    #[test]
    fn parallel_tools_count_once() {
        let mut clock = TurnClock::default();
        let began = Instant::now();
        clock.tool_started();
        clock.tool_started();
        clock.tool_finished();
        assert_eq!(clock.tool_time, Duration::ZERO, "one is still at work");
        clock.tool_finished();
        assert!(clock.tool_time <= began.elapsed());
    }
}
