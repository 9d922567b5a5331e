use super::super::log::EventOptions;
use super::*;
use crate::process::ProcessStat;
use serde_json::json;
use std::thread;

fn log(folder: &tempfile::TempDir) -> EventLog {
    EventLog::new(folder.path(), EventOptions::default())
}

fn own() -> Option<ClaudeProcess> {
    ProcessStat::current().map(ClaudeProcess::of)
}

/// A process that no longer exists.
fn dead() -> Option<ClaudeProcess> {
    ProcessStat::current()
        .map(|own| ClaudeProcess::of(ProcessStat { start_time: own.start_time - 1, ..own }))
}

fn append(log: &EventLog, claude: Option<ClaudeProcess>, name: &str, more: &Value) {
    let mut payload = more.as_object().unwrap().clone();
    payload.insert("hook_event_name".to_owned(), name.into());
    payload.entry("session_id").or_insert("s".into());
    payload.insert("transcript_path".to_owned(), "/t/s.jsonl".into());
    assert!(log.append_hook(payload, || claude, LOCK_TIMEOUT).unwrap());
}

fn lines(log: &EventLog) -> Vec<Value> {
    let text = std::fs::read_to_string(log.file()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["hook_event_name"].as_str().unwrap()).collect()
}

/// Writes a session that is killed with open spans.
fn killed(log: &EventLog) {
    append(log, dead(), "SessionStart", &json!({}));
    append(log, dead(), "PreToolUse", &json!({ "tool_use_id": "t1", "tool_name": "Task" }));
    append(log, dead(), "SubagentStart", &json!({ "agent_id": "a1", "agent_type": "reviewer" }));
    let call = json!({ "tool_use_id": "t2", "tool_name": "Bash", "agent_id": "a1", "agent_type": "reviewer" });
    append(log, dead(), "PreToolUse", &call);
}

#[test]
fn a_killed_session_is_ended_once_by_concurrent_processes() {
    let folder = tempfile::tempdir().unwrap();
    let logs: Vec<EventLog> = (0..4).map(|_| log(&folder)).collect();
    killed(&logs[0]);
    thread::scope(|scope| {
        for log in &logs {
            scope.spawn(|| log.end_killed_sessions(EndDetection::Immediate).unwrap());
        }
    });
    let lines = lines(&logs[0]);
    let ends = ["PostToolUseFailure", "PostToolUseFailure", "SubagentStop", "SessionEnd"];
    assert_eq!(names(&lines)[4..], ends);
    assert!(lines[4..].iter().all(|line| line["duration_ms"].is_u64()), "{lines:#?}");
    let agents: Vec<&Value> = lines[4..].iter().map(|line| &line["agent_type"]).collect();
    assert_eq!(agents, [&Value::Null, &json!("reviewer"), &json!("reviewer"), &Value::Null]);
    assert_eq!(lines[5]["agent_transcript_path"], "/t/s/subagents/agent-a1.jsonl");
    assert_eq!((&lines[6]["agent_id"], &lines[7]["reason"]), (&json!("a1"), &json!("killed")));
}

#[test]
fn running_sessions_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder);
    append(&log, own(), "SessionStart", &json!({}));
    append(&log, None, "SessionStart", &json!({ "session_id": "of-which-no-process-is-known" }));
    log.end_killed_sessions(EndDetection::Immediate).unwrap();
    assert_eq!(names(&lines(&log)), ["SessionStart", "SessionStart"]);
}

#[test]
fn late_events_of_killed_sessions_are_ignored_and_sessions_can_restart() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder);
    killed(&log);
    log.end_killed_sessions(EndDetection::Later).unwrap();
    let before = lines(&log).len();
    append(&log, dead(), "PostToolUse", &json!({ "tool_use_id": "t2" }));
    append(&log, dead(), "SessionEnd", &json!({}));
    assert_eq!(lines(&log).len(), before);
    append(&log, own(), "SessionStart", &json!({ "source": "resume" }));
    append(&log, own(), "SessionEnd", &json!({}));
    log.end_killed_sessions(EndDetection::Later).unwrap();
    let lines = lines(&log);
    assert_eq!(names(&lines)[before..], ["SessionStart", "SessionEnd"]);
    assert!(lines[before + 1]["duration_ms"].is_u64());
    assert_eq!(std::fs::read_dir(folder.path().join("open-sessions")).unwrap().count(), 0);
}

/// A crash between the file and the event, or the reverse, neither duplicates nor omits an end.
#[test]
fn open_spans_are_determined_by_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder);
    killed(&log);
    let cards = OpenSessions::beside_log(log.file());
    let before = cards.read("s").unwrap().unwrap();
    append(&log, dead(), "PostToolUse", &json!({ "tool_use_id": "t2" }));
    cards.write(&before).unwrap();
    log.end_killed_sessions(EndDetection::Later).unwrap();
    let lines = lines(&log);
    assert_eq!(
        names(&lines)[4..],
        ["PostToolUse", "PostToolUseFailure", "SubagentStop", "SessionEnd"]
    );
    assert_eq!(lines[5]["tool_use_id"], "t1");
}
