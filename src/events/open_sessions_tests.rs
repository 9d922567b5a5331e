use super::*;
use crate::util::now;
use serde_json::json;
use std::time::Duration;

fn payload(name: &str, more: &Value) -> Map<String, Value> {
    let mut payload = more.as_object().unwrap().clone();
    payload.insert("hook_event_name".to_owned(), name.into());
    payload.insert("session_id".to_owned(), "s".into());
    payload
}

fn ends(taken: &EventEffects) -> Vec<(&str, &str)> {
    let text = |end: &'_ Map<String, Value>, key: &str| {
        end[key].as_str().unwrap().to_owned().leak() as &str
    };
    let about = |end| {
        if text(end, "hook_event_name") == "SubagentStop" { "agent_id" } else { "tool_use_id" }
    };
    taken
        .ends_before
        .iter()
        .map(|end| (text(end, "hook_event_name"), text(end, about(end))))
        .collect()
}

#[test]
fn an_end_has_a_duration_and_ends_nested_spans() {
    let mut card = OpenSession::new("s");
    let began = now();
    let mut take = |name: &str, seconds: u64, more: &Value| {
        card.apply(&payload(name, more), began + Duration::from_secs(seconds))
    };
    take("SessionStart", 0, &json!({}));
    take("UserPromptSubmit", 1, &json!({}));
    take("PreToolUse", 2, &json!({ "tool_use_id": "t1", "tool_name": "Bash" }));
    take("PreToolUse", 2, &json!({ "tool_use_id": "t2", "tool_name": "Read" }));
    take("SubagentStart", 3, &json!({ "agent_id": "a1", "agent_type": "reviewer" }));
    take("SubagentStart", 3, &json!({ "agent_id": "a2", "agent_type": "reviewer" }));
    take("PreToolUse", 4, &json!({ "tool_use_id": "t3", "tool_name": "Bash", "agent_id": "a1" }));
    // After compaction `SessionStart` is sent again for the same session.
    take("SessionStart", 4, &json!({ "source": "compact" }));
    let done = take("PostToolUse", 5, &json!({ "tool_use_id": "t1" }));
    assert_eq!((done.duration_ms, ends(&done)), (Some(3_000), vec![]));
    assert_eq!(
        take("PostToolUse", 5, &json!({ "tool_use_id": "unknown" })),
        EventEffects::default()
    );
    let stop = take("SubagentStop", 8, &json!({ "agent_id": "a1" }));
    assert_eq!(stop.duration_ms, Some(5_000));
    assert_eq!(ends(&stop), [("PostToolUseFailure", "t3")], "its call, and nobody else's");
    assert_eq!(
        (&stop.ends_before[0]["duration_ms"], &stop.ends_before[0]["agent_id"]),
        (&json!(4_000), &json!("a1"))
    );
    let stop = take("Stop", 9, &json!({}));
    assert_eq!((stop.duration_ms, ends(&stop)), (Some(8_000), vec![("PostToolUseFailure", "t2")]));
    let end = take("SessionEnd", 10, &json!({}));
    assert_eq!((end.duration_ms, end.ends_session), (Some(10_000), true));
    assert_eq!(ends(&end), [("SubagentStop", "a2")]);
}

#[test]
fn unsafe_session_ids_have_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let cards = OpenSessions::beside_log(&folder.path().join("events.jsonl"));
    for session in ["", "../x", "a/b", "a.b", &"x".repeat(101)] {
        cards.write(&OpenSession::new(session)).unwrap();
        assert_eq!(cards.read(session).unwrap(), None);
    }
    assert!(!folder.path().join("x.json").exists());
    cards.write(&OpenSession::new("real-1_x")).unwrap();
    assert_eq!(cards.session_ids().unwrap(), ["real-1_x"]);
}
