//! Timeline of a run, built from its events: queueing, work, tool calls, denials.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::reader::{RecordedEvent, read_events};
use crate::api::{ErrorObject, RunObject, RunState, StepObject, TokenCounts};
use crate::util::{RunId, Timestamp, one_line, shorten};

/// One run with its events, up to the present if it has not ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunTimeline {
    pub run_id: RunId,
    /// Name of the agent.
    pub agent: String,
    /// The caller, as in the events: name, source of the name, session and call.
    pub caller: Option<Value>,
    pub session_id: Option<String>,
    /// Path of the transcript.
    pub transcript: Option<String>,
    /// Time of the request.
    pub queued: Timestamp,
    /// Time at which a process started to work on the run.
    pub started: Option<Timestamp>,
    pub ended: Option<Timestamp>,
    /// `SUCCESS` or an error code; `None` until the run ends.
    pub outcome: Option<String>,
    pub error: Option<ErrorObject>,
    /// From the request to the end.
    pub duration_ms: Option<u64>,
    /// US dollars.
    pub cost_usd: Option<f64>,
    /// Turns of the model.
    pub turns: Option<u64>,
    /// By kind: `input`, `output`, `cache_read`, `cache_creation`.
    pub tokens: TokenCounts,
    /// Milliseconds by phase of the run, such as `queue_ms`, in order.
    pub timing: Map<String, Value>,
    /// The steps in order.
    pub steps: Vec<TimelineStep>,
}

/// A step of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimelineStep {
    /// Start of the step.
    pub time: Timestamp,
    pub kind: TimelineStepKind,
    /// The tool, the native subagent, or the event.
    pub name: String,
    /// One-line summary.
    pub about: String,
    /// Duration; `None` until the step ends, and for events without duration.
    pub duration_ms: Option<u64>,
    pub tool_use_id: Option<String>,
    /// The native subagent that made the step, if any.
    pub within: Option<String>,
}

impl TimelineStep {
    fn to_object(&self) -> StepObject {
        StepObject {
            started_at: self.time.into(),
            kind: self.kind.as_str().to_owned(),
            name: self.name.clone(),
            about: self.about.clone(),
            duration_ms: self.duration_ms,
            tool_use_id: self.tool_use_id.clone(),
            within: self.within.clone(),
        }
    }
}

/// Kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimelineStepKind {
    /// A tool call in progress.
    Running,
    /// A tool call that succeeded.
    Tool,
    /// A tool call that failed.
    Failed,
    /// A tool call that was denied.
    Denied,
    /// A native subagent.
    Subagent,
    /// Any other event.
    Event,
}

impl TimelineStepKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Tool => "tool",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Subagent => "subagent",
            Self::Event => "event",
        }
    }
}

impl RunTimeline {
    fn new(run_id: RunId, event: &RecordedEvent) -> Self {
        Self {
            run_id,
            agent: String::new(),
            caller: None,
            session_id: None,
            transcript: None,
            queued: event.time,
            started: None,
            ended: None,
            outcome: None,
            error: None,
            duration_ms: None,
            cost_usd: None,
            turns: None,
            tokens: BTreeMap::new(),
            timing: Map::new(),
            steps: Vec::new(),
        }
    }

    /// Returns the number of steps of a kind.
    pub(crate) fn count(&self, kind: TimelineStepKind) -> usize {
        self.steps.iter().filter(|step| step.kind == kind).count()
    }

    pub(crate) fn caller_name(&self) -> &str {
        self.caller
            .as_ref()
            .and_then(|caller| caller.get("name"))
            .and_then(Value::as_str)
            .unwrap_or("-")
    }

    /// Returns a field of the caller, for example its `agent_id` or `session_id`.
    pub(crate) fn caller_field(&self, key: &str) -> Option<&str> {
        self.caller.as_ref()?.get(key)?.as_str()
    }

    /// Converts the run; steps and timing only `with_steps`.
    pub(crate) fn to_object(&self, with_steps: bool) -> RunObject {
        let state = match (self.ended, self.started) {
            (Some(_), _) => RunState::Ended,
            (None, Some(_)) => RunState::Running,
            (None, None) => RunState::Queued,
        };
        RunObject {
            state,
            caller: self.caller.clone().and_then(|caller| serde_json::from_value(caller).ok()),
            session_id: self.session_id.clone(),
            agent_transcript_path: self.transcript.clone(),
            started_at: self.started.map(Into::into),
            ended_at: self.ended.map(Into::into),
            outcome: self.outcome.clone(),
            error: self.error.clone(),
            duration_ms: self.duration_ms,
            cost_usd: self.cost_usd.map(Into::into),
            turns: self.turns,
            tokens: self.tokens.clone(),
            steps: with_steps.then(|| self.steps.iter().map(TimelineStep::to_object).collect()),
            timing: with_steps.then(|| self.timing.clone()),
            ..RunObject::new(self.run_id, &self.agent, self.queued)
        }
    }

    fn apply(&mut self, event: &RecordedEvent) {
        let within = event.text("parent_agent_id").and(event.text("agent_type"));
        if within.is_none() {
            event.agent().clone_into(&mut self.agent);
            self.apply_subject(event);
        }
        match event.name() {
            "RunQueued" => self.queued = event.time,
            "RunStarted" => drop(self.started.get_or_insert(event.time)),
            "RunEnded" => self.apply_end(event),
            "PreToolUse" => self.steps.push(new_step(
                event,
                TimelineStepKind::Running,
                tool_label(event),
                within,
            )),
            "PostToolUse" => self.finish_tool(event, TimelineStepKind::Tool),
            "PostToolUseFailure" => self.finish_tool(event, TimelineStepKind::Failed),
            "PermissionDenied" => self.finish_tool(event, TimelineStepKind::Denied),
            "SubagentStart" => {
                let name = event.agent().to_owned();
                let mut started = new_step(event, TimelineStepKind::Subagent, name, None);
                started.tool_use_id = event.text("agent_id").map(str::to_owned);
                self.steps.push(started);
            }
            "SubagentStop" => self.finish_native_subagent(event),
            "SessionStart" | "SessionEnd" | "PermissionRequest" => {}
            name => {
                self.steps.push(new_step(event, TimelineStepKind::Event, name.to_owned(), within));
            }
        }
    }

    fn apply_subject(&mut self, event: &RecordedEvent) {
        if let Some(caller) = event.fields.get("caller") {
            self.caller = Some(caller.clone());
        }
        if let Some(session) = event.text("session_id") {
            self.session_id = Some(session.to_owned());
        }
        if let Some(path) = event.text("agent_transcript_path") {
            self.transcript = Some(path.to_owned());
        }
    }

    fn apply_end(&mut self, event: &RecordedEvent) {
        self.ended = Some(event.time);
        self.outcome = event.text("outcome").map(str::to_owned);
        let error = event.fields.get("error").cloned();
        self.error = error.and_then(|error| serde_json::from_value(error).ok());
        self.duration_ms = event.duration_ms();
        self.cost_usd = event.number("cost_usd");
        self.turns = event.fields.get("turns").and_then(Value::as_u64);
        let timing = event.fields.get("timing").and_then(Value::as_object);
        self.timing = timing.cloned().unwrap_or_default();
        let tokens = event.fields.get("tokens").and_then(Value::as_object);
        let counted = tokens.into_iter().flatten();
        self.tokens =
            counted.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect();
    }

    fn finish_tool(&mut self, event: &RecordedEvent, kind: TimelineStepKind) {
        let id = event.text("tool_use_id");
        let open = self.steps.iter_mut().rfind(|step| {
            step.kind == TimelineStepKind::Running && step.tool_use_id.as_deref() == id
        });
        let why =
            event.text("error").or(event.text("reason")).map(|text| shorten(&one_line(text), 200));
        if let Some(step) = open {
            step.kind = kind;
            step.duration_ms = event.duration_ms().or_else(|| elapsed(step.time, event.time));
            if let Some(why) = why {
                step.about = format!("{} – {why}", step.about);
            }
        } else {
            let mut lone = new_step(event, kind, tool_label(event), None);
            lone.about = why.unwrap_or(lone.about);
            self.steps.push(lone);
        }
    }

    fn finish_native_subagent(&mut self, event: &RecordedEvent) {
        let id = event.text("agent_id");
        let open = self.steps.iter_mut().rfind(|step| {
            step.kind == TimelineStepKind::Subagent
                && step.duration_ms.is_none()
                && step.tool_use_id.as_deref() == id
        });
        if let Some(step) = open {
            step.duration_ms = event.duration_ms().or_else(|| elapsed(step.time, event.time));
        }
    }
}

/// Returns the milliseconds between two times; `None` if negative.
pub(crate) fn elapsed(from: Timestamp, to: Timestamp) -> Option<u64> {
    u64::try_from(to.duration_since(from).as_millis()).ok()
}

fn new_step(
    event: &RecordedEvent,
    kind: TimelineStepKind,
    name: String,
    within: Option<&str>,
) -> TimelineStep {
    TimelineStep {
        time: event.time,
        kind,
        name,
        about: summarize(event),
        duration_ms: None,
        tool_use_id: event.text("tool_use_id").map(str::to_owned),
        within: within.map(str::to_owned),
    }
}

/// Returns the tool's name, with `mcp__brave__search` shortened to `brave/search`.
fn tool_label(event: &RecordedEvent) -> String {
    let name = event.text("tool_name").unwrap_or("a tool");
    match name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
        Some((server, tool)) => format!("{server}/{tool}"),
        None => name.to_owned(),
    }
}

/// Returns the most informative text of an event, shortened to 120 characters.
fn summarize(event: &RecordedEvent) -> String {
    const TELLING: [&str; 8] =
        ["command", "file_path", "path", "url", "query", "pattern", "prompt", "description"];
    let input = event.fields.get("tool_input").and_then(Value::as_object);
    let told = input.and_then(|input| {
        let named = TELLING.iter().find_map(|key| input.get(*key)?.as_str());
        named.or_else(|| input.values().find_map(Value::as_str))
    });
    let other = || {
        let keys = ["prompt", "message", "trigger", "reason", "last_assistant_message"];
        keys.iter().find_map(|key| event.text(key))
    };
    told.or_else(other).map(|text| shorten(&one_line(text), 120)).unwrap_or_default()
}

/// Returns the timelines of all runs since the given time, in the order of their start.
pub(crate) fn read_timelines(
    path: &Path,
    since: Option<Timestamp>,
) -> io::Result<Vec<RunTimeline>> {
    let mut stories: BTreeMap<RunId, RunTimeline> = BTreeMap::new();
    // Runs queued before `since` are left out entirely.
    read_events(path, since, |_, event| {
        let Some(run) = event.run() else { return };
        if event.name() == "RunQueued" || since.is_none() || stories.contains_key(&run) {
            stories.entry(run).or_insert_with(|| RunTimeline::new(run, &event)).apply(&event);
        }
    })?;
    Ok(stories.into_values().collect())
}
