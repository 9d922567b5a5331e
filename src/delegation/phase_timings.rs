//! Where the time of a call goes.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

/// The steps of a call that take time, in the order they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Span {
    /// Waiting at the door, and for the conversation.
    Queue,
    /// From the agent's file to what will be started.
    Plan,
    /// Connecting its servers.
    Servers,
    /// Starting the process.
    Spawn,
    /// Until the process is ready for a prompt.
    Initialize,
    /// From the prompt to the first sign of the turn.
    FirstFrame,
    /// The model, and what the process does around it.
    Model,
    /// Its tools.
    Tools,
    /// Judging the answer.
    Judge,
    /// Writing down what must be safe before the answer goes.
    Record,
}

impl Span {
    const ALL: [Self; 10] = [
        Self::Queue,
        Self::Plan,
        Self::Servers,
        Self::Spawn,
        Self::Initialize,
        Self::FirstFrame,
        Self::Model,
        Self::Tools,
        Self::Judge,
        Self::Record,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Plan => "plan",
            Self::Servers => "servers",
            Self::Spawn => "spawn",
            Self::Initialize => "initialize",
            Self::FirstFrame => "first_frame",
            Self::Model => "model",
            Self::Tools => "tools",
            Self::Judge => "judge",
            Self::Record => "record",
        }
    }
}

/// What each step of one call took; what did not happen took nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Timing(Vec<(Span, Duration)>);

impl Timing {
    /// Adds to a step: a call may have several processes.
    pub(super) fn add(&mut self, span: Span, time: Duration) {
        self.0.push((span, time));
    }

    /// Counts the time since `began` for a step.
    pub(super) fn since(&mut self, span: Span, began: Instant) {
        self.add(span, began.elapsed());
    }

    /// Milliseconds by step, in order, for the record.
    pub(super) fn milliseconds(&self) -> Map<String, Value> {
        Span::ALL
            .into_iter()
            .filter_map(|span| {
                let times = self.0.iter().filter(|(of, _)| *of == span).map(|(_, time)| *time);
                let total: Duration = times.sum();
                let tenths = (total.as_secs_f64() * 10_000.0).round() / 10.0;
                (!total.is_zero()).then(|| (span.name().to_owned(), tenths.into()))
            })
            .collect()
    }
}

/// What is seen of a turn while it runs: its first sign, and when tools were at work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    first_frame: Option<Instant>,
    at_work: u32,
    tools_since: Option<Instant>,
    tools: Duration,
}

impl Clock {
    pub(super) fn first_frame(&mut self) {
        self.first_frame.get_or_insert_with(Instant::now);
    }

    pub(super) fn tool_started(&mut self) {
        self.at_work += 1;
        self.tools_since.get_or_insert_with(Instant::now);
    }

    pub(super) fn tool_finished(&mut self) {
        self.at_work = self.at_work.saturating_sub(1);
        if self.at_work == 0
            && let Some(since) = self.tools_since.take()
        {
            self.tools += since.elapsed();
        }
    }

    /// The parts of a turn that began at `began` and is over now.
    pub(super) fn count(&self, began: Instant, timing: &mut Timing) {
        let whole = began.elapsed();
        let first = self.first_frame.map_or(whole, |first| first.duration_since(began));
        let tools = self.tools + self.tools_since.map_or(Duration::ZERO, |since| since.elapsed());
        timing.add(Span::FirstFrame, first);
        timing.add(Span::Tools, tools);
        timing.add(Span::Model, whole.saturating_sub(first + tools));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_in_order_and_added_up() {
        let mut timing = Timing::default();
        timing.add(Span::Model, Duration::from_millis(20));
        timing.add(Span::Queue, Duration::from_micros(1_234));
        timing.add(Span::Model, Duration::from_millis(5));
        let told = serde_json::to_string(&timing.milliseconds()).unwrap();
        assert_eq!(told, r#"{"queue":1.2,"model":25.0}"#);
    }

    #[test]
    fn tools_side_by_side_count_once() {
        let mut clock = Clock::default();
        let began = Instant::now();
        clock.tool_started();
        clock.tool_started();
        clock.tool_finished();
        assert_eq!(clock.tools, Duration::ZERO, "one is still at work");
        clock.tool_finished();
        assert!(clock.tools <= began.elapsed());
    }
}
