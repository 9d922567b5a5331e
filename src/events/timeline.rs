//! The story of a run, told from its events: when it waited and worked, which tools it used, what it was refused.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use super::event_reader::{RecordedEvent, read_events};
use crate::base::{RunId, Timestamp, one_line, shorten};

/// One run from beginning to end, or as far as it has come.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunStory {
    /// The run.
    pub run_id: RunId,
    /// The agent's name.
    pub agent: String,
    /// Who called it, with how that is known, and the session and call it came from.
    pub caller: Option<Value>,
    /// The run's conversation.
    pub session_id: Option<String>,
    /// Its transcript.
    pub transcript: Option<String>,
    /// When it was asked for.
    pub queued: Timestamp,
    /// When a process began to work for it.
    pub started: Option<Timestamp>,
    /// When it was over.
    pub ended: Option<Timestamp>,
    /// `SUCCESS`, a code, or nothing while it goes on.
    pub outcome: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// From the call's arrival to its end.
    pub duration_ms: Option<u64>,
    /// Dollars.
    pub cost_usd: Option<f64>,
    /// Turns of the model.
    pub turns: Option<u64>,
    /// `input`, `output`, `cache_read`, `cache_creation`.
    pub tokens: BTreeMap<String, u64>,
    /// Milliseconds by step of the call, in the order of the steps.
    pub timing_ms: Map<String, Value>,
    /// What happened, in order.
    pub steps: Vec<Step>,
}

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// When it began.
    pub time: Timestamp,
    /// What kind of thing it is.
    pub kind: StepKind,
    /// The tool, the native subagent, or the event.
    pub name: String,
    /// One line about it.
    pub about: String,
    /// How long it took; unknown while it goes on, and for what takes no time.
    pub duration_ms: Option<u64>,
    /// The call's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// The native subagent inside of the run whose step it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

/// The kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A tool that is being used.
    Running,
    /// A tool that gave a result.
    Tool,
    /// A tool that failed.
    Failed,
    /// A call that was refused.
    Denied,
    /// A native subagent.
    Subagent,
    /// Anything else.
    Event,
}

impl RunStory {
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
            timing_ms: Map::new(),
            steps: Vec::new(),
        }
    }

    /// How many steps are of that kind.
    pub fn count(&self, kind: StepKind) -> usize {
        self.steps.iter().filter(|step| step.kind == kind).count()
    }

    /// The caller's name.
    pub fn caller_name(&self) -> &str {
        self.caller
            .as_ref()
            .and_then(|caller| caller.get("name"))
            .and_then(Value::as_str)
            .unwrap_or("-")
    }

    /// Who called, with the instance and the session: what this story hangs on.
    pub fn caller_text(&self, key: &str) -> Option<&str> {
        self.caller.as_ref()?.get(key)?.as_str()
    }

    fn take(&mut self, event: &RecordedEvent) {
        let within = event.text("parent_agent_id").and(event.text("agent_type"));
        if within.is_none() {
            event.agent().clone_into(&mut self.agent);
            self.note_place(event);
        }
        match event.name() {
            "RunQueued" => self.queued = event.time,
            "RunStarted" => drop(self.started.get_or_insert(event.time)),
            "RunEnded" => self.note_end(event),
            "PreToolUse" => self.steps.push(step(event, StepKind::Running, tool(event), within)),
            "PostToolUse" => self.finish(event, StepKind::Tool),
            "PostToolUseFailure" => self.finish(event, StepKind::Failed),
            "PermissionDenied" => self.finish(event, StepKind::Denied),
            "SubagentStart" => {
                let name = event.agent().to_owned();
                let mut started = step(event, StepKind::Subagent, name, None);
                started.tool_use_id = event.text("agent_id").map(str::to_owned);
                self.steps.push(started);
            }
            "SubagentStop" => self.finish_native(event),
            "SessionStart" | "SessionEnd" | "PermissionRequest" => {}
            name => self.steps.push(step(event, StepKind::Event, name.to_owned(), within)),
        }
    }

    fn note_place(&mut self, event: &RecordedEvent) {
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

    fn note_end(&mut self, event: &RecordedEvent) {
        self.ended = Some(event.time);
        self.outcome = event.text("outcome").map(str::to_owned);
        self.error = event.text("error").map(str::to_owned);
        self.duration_ms = event.duration_ms();
        self.cost_usd = event.number("cost_usd");
        self.turns = event.fields.get("turns").and_then(Value::as_u64);
        let timing = event.fields.get("timing_ms").and_then(Value::as_object);
        self.timing_ms = timing.cloned().unwrap_or_default();
        let tokens = event.fields.get("tokens").and_then(Value::as_object);
        let counted = tokens.into_iter().flatten();
        self.tokens =
            counted.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect();
    }

    fn finish(&mut self, event: &RecordedEvent, kind: StepKind) {
        let id = event.text("tool_use_id");
        let open = self
            .steps
            .iter_mut()
            .rfind(|step| step.kind == StepKind::Running && step.tool_use_id.as_deref() == id);
        let why =
            event.text("error").or(event.text("reason")).map(|text| shorten(&one_line(text), 200));
        if let Some(step) = open {
            step.kind = kind;
            step.duration_ms = event.duration_ms().or_else(|| elapsed(step.time, event.time));
            if let Some(why) = why {
                step.about = format!("{} – {why}", step.about);
            }
        } else {
            let mut lone = step(event, kind, tool(event), None);
            lone.about = why.unwrap_or(lone.about);
            self.steps.push(lone);
        }
    }

    fn finish_native(&mut self, event: &RecordedEvent) {
        let id = event.text("agent_id");
        let open = self.steps.iter_mut().rfind(|step| {
            step.kind == StepKind::Subagent
                && step.duration_ms.is_none()
                && step.tool_use_id.as_deref() == id
        });
        if let Some(step) = open {
            step.duration_ms = event.duration_ms().or_else(|| elapsed(step.time, event.time));
        }
    }
}

/// The milliseconds between two moments.
pub(super) fn elapsed(from: Timestamp, to: Timestamp) -> Option<u64> {
    u64::try_from(to.duration_since(from).as_millis()).ok()
}

fn step(event: &RecordedEvent, kind: StepKind, name: String, within: Option<&str>) -> Step {
    Step {
        time: event.time,
        kind,
        name,
        about: about(event),
        duration_ms: None,
        tool_use_id: event.text("tool_use_id").map(str::to_owned),
        within: within.map(str::to_owned),
    }
}

/// `mcp__brave__search` as `brave/search`.
fn tool(event: &RecordedEvent) -> String {
    let name = event.text("tool_name").unwrap_or("a tool");
    match name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
        Some((server, tool)) => format!("{server}/{tool}"),
        None => name.to_owned(),
    }
}

/// The most telling of what an event says.
fn about(event: &RecordedEvent) -> String {
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

/// The stories of all runs that began since a moment, in that order.
pub fn read_stories(path: &Path, since: Option<Timestamp>) -> io::Result<Vec<RunStory>> {
    let mut stories: BTreeMap<RunId, RunStory> = BTreeMap::new();
    // A run that began before is told whole or not at all.
    read_events(path, since, |_, event| {
        let Some(run) = event.run() else { return };
        if event.name() == "RunQueued" || since.is_none() || stories.contains_key(&run) {
            stories.entry(run).or_insert_with(|| RunStory::new(run, &event)).take(&event);
        }
    })?;
    Ok(stories.into_values().collect())
}
