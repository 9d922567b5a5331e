use super::*;
use crate::base::ProcessStat;
use crate::record::EventOptions;
use serde_json::json;
use std::thread;

fn log(folder: &tempfile::TempDir) -> EventLog {
    EventLog::new(folder.path(), EventOptions::default())
}

fn own() -> Option<ClaudeStamp> {
    ProcessStat::own().map(ClaudeStamp::of)
}

/// A process that was there once.
fn dead() -> Option<ClaudeStamp> {
    ProcessStat::own().map(|own| ClaudeStamp::of(ProcessStat { started: own.started - 1, ..own }))
}

fn tell(log: &EventLog, claude: Option<ClaudeStamp>, name: &str, more: &Value) {
    let mut payload = more.as_object().unwrap().clone();
    payload.insert("hook_event_name".to_owned(), name.into());
    payload.entry("session_id").or_insert("s".into());
    payload.insert("transcript_path".to_owned(), "/t/s.jsonl".into());
    assert!(log.append_hook(payload, || claude, PATIENCE).unwrap());
}

fn lines(log: &EventLog) -> Vec<Value> {
    let text = std::fs::read_to_string(log.file()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["hook_event_name"].as_str().unwrap()).collect()
}

/// A session that is killed with everything open.
fn killed(log: &EventLog) {
    tell(log, dead(), "SessionStart", &json!({}));
    tell(log, dead(), "PreToolUse", &json!({ "tool_use_id": "t1", "tool_name": "Task" }));
    tell(log, dead(), "SubagentStart", &json!({ "agent_id": "a1", "agent_type": "reviewer" }));
    let call = json!({ "tool_use_id": "t2", "tool_name": "Bash", "agent_id": "a1", "agent_type": "reviewer" });
    tell(log, dead(), "PreToolUse", &call);
}

#[test]
fn a_killed_session_is_ended_once_however_many_notice_it() {
    let folder = tempfile::tempdir().unwrap();
    let logs: Vec<EventLog> = (0..4).map(|_| log(&folder)).collect();
    killed(&logs[0]);
    thread::scope(|scope| {
        for log in &logs {
            scope.spawn(|| log.end_killed_sessions(Noticed::AtOnce).unwrap());
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
fn what_goes_on_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder);
    tell(&log, own(), "SessionStart", &json!({}));
    tell(&log, None, "SessionStart", &json!({ "session_id": "of-which-no-process-is-known" }));
    log.end_killed_sessions(Noticed::AtOnce).unwrap();
    assert_eq!(names(&lines(&log)), ["SessionStart", "SessionStart"]);
}

#[test]
fn an_orphan_of_a_killed_session_comes_too_late_and_a_session_can_begin_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder);
    killed(&log);
    log.end_killed_sessions(Noticed::Later).unwrap();
    let before = lines(&log).len();
    tell(&log, dead(), "PostToolUse", &json!({ "tool_use_id": "t2" }));
    tell(&log, dead(), "SessionEnd", &json!({}));
    assert_eq!(lines(&log).len(), before);
    tell(&log, own(), "SessionStart", &json!({ "source": "resume" }));
    tell(&log, own(), "SessionEnd", &json!({}));
    log.end_killed_sessions(Noticed::Later).unwrap();
    let lines = lines(&log);
    assert_eq!(names(&lines)[before..], ["SessionStart", "SessionEnd"]);
    assert!(lines[before + 1]["duration_ms"].is_u64());
    assert_eq!(std::fs::read_dir(folder.path().join("open-sessions")).unwrap().count(), 0);
}

/// Whoever is killed between card and line, or between line and card, leaves no end twice and none missing.
#[test]
fn what_stands_in_the_log_decides_what_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let log = log(&folder);
    killed(&log);
    let cards = SessionCards::beside(log.file());
    let before = cards.read("s").unwrap();
    tell(&log, dead(), "PostToolUse", &json!({ "tool_use_id": "t2" }));
    cards.write(&before).unwrap();
    log.end_killed_sessions(Noticed::Later).unwrap();
    let lines = lines(&log);
    assert_eq!(
        names(&lines)[4..],
        ["PostToolUse", "PostToolUseFailure", "SubagentStop", "SessionEnd"]
    );
    assert_eq!(lines[5]["tool_use_id"], "t1");
}
