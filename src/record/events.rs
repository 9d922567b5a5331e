//! What happened, one JSON line each, in the shape of Claude Code's hook payloads.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::base::{RunId, Timestamp, append_line, create_private_dir};

/// `data/events.jsonl`.
#[derive(Clone, Debug)]
pub struct EventLog {
    file: PathBuf,
}

/// One thing that happened in a run.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// When.
    pub time: Timestamp,
    /// What, for example `RunStarted`.
    pub name: &'static str,
    /// In which run: one instance of an agent.
    pub run: RunId,
    /// Of which agent.
    pub agent: &'a str,
    /// What else there is to say.
    pub details: Map<String, Value>,
}

impl EventLog {
    /// The log below a project's `data/`.
    pub fn new(data_dir: &Path) -> Self {
        Self { file: data_dir.join("events.jsonl") }
    }

    /// Where it is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Adds a line. A log that cannot be written never stops a run: it is said in our own log.
    pub fn append(&self, event: &Event<'_>) {
        let folder = self.file.parent().map_or(Ok(()), create_private_dir);
        if let Err(error) = folder.and_then(|()| append_line(&self.file, &line(event))) {
            tracing::warn!(%error, file = %self.file.display(), "an event could not be recorded");
        }
    }
}

fn line(event: &Event<'_>) -> String {
    let mut object = Map::new();
    object.insert("time".to_owned(), event.time.to_string().into());
    object.insert("hook_event_name".to_owned(), event.name.into());
    object.insert("agent_id".to_owned(), event.run.to_string().into());
    object.insert("agent_type".to_owned(), event.agent.into());
    object.insert("run_id".to_owned(), event.run.to_string().into());
    object.extend(event.details.clone());
    Value::Object(object).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::now;

    #[test]
    fn h3_a_name_with_a_line_break_stays_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let log = EventLog::new(&folder.path().join("data"));
        let run = RunId::new();
        let details = Map::from_iter([("prompt".to_owned(), Value::from("a\n{\"forged\":1}"))]);
        log.append(&Event { time: now(), name: "RunStarted", run, agent: "x\ny", details });
        let text = std::fs::read_to_string(log.file()).unwrap();
        assert_eq!(text.lines().count(), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["agent_type"], "x\ny");
        assert_eq!(value["run_id"], run.to_string());
    }
}
