use super::*;

fn payload(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => panic!("an object"),
    }
}

fn of_hook(value: Value) -> Value {
    let event = Event::from_hook(payload(value)).expect("it names an event");
    Value::Object(event.into_payload())
}

#[test]
fn events_of_the_main_agent_have_no_agent_fields() {
    let event = of_hook(json!({
        "session_id": "s", "transcript_path": "/t/s.jsonl", "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "agent_type": "planted", "agent_transcript_path": "/planted",
    }));
    assert!(AGENT_FIELDS.iter().all(|field| event.get(field).is_none()), "{event}");
    assert_eq!((&event["session_id"], &event["tool_name"]), (&json!("s"), &json!("Bash")));
}

#[test]
fn events_of_native_subagents_have_all_agent_fields() {
    let event = of_hook(json!({
        "session_id": "s", "transcript_path": "/t/s.jsonl", "hook_event_name": "PreToolUse",
        "agent_id": "a1", "agent_type": "code-reviewer",
    }));
    assert_eq!(event["agent_transcript_path"], "/t/s/subagents/agent-a1.jsonl");
    assert_eq!((&event["agent_id"], &event["agent_type"]), (&json!("a1"), &json!("code-reviewer")));
}

#[test]
fn payloads_without_event_name_are_rejected() {
    assert!(Event::from_hook(Map::new()).is_none());
    assert!(Event::from_hook(payload(json!({"hook_event_name": 3}))).is_none());
}

#[test]
fn run_events_have_run_and_caller() {
    let mut subject = RunSubject::new(RunId::new(), "web", Some(Caller::main()));
    let run = subject.run.to_string();
    let queued = subject.event("RunQueued", json!({ "empty": null }), &Redactor::default());
    assert_eq!(queued.fields.get("agent_id").unwrap(), &json!(run));
    assert_eq!(queued.fields.get("agent_transcript_path"), None, "none is known yet");
    assert!(queued.fields.get("empty").is_none());
    subject.transcript = Some("/t/x.jsonl".into());
    subject.session_id = Some("x".to_owned());
    let stop = subject.event("Stop", json!({}), &Redactor::default());
    let line: Value = serde_json::from_str(&with_sequence_number(7, &stop.encode_body())).unwrap();
    assert_eq!(
        line,
        json!({
            "format": 2, "seq": 7, "time": UtcTime::from(stop.time).to_string(), "hook_event_name": "Stop", "session_id": "x",
            "agent_id": run, "agent_type": "web", "agent_transcript_path": "/t/x.jsonl", "run_id": run,
            "caller": { "name": "main", "known_by": "fallback" },
        })
    );
}

#[test]
fn native_subagents_of_a_run_have_a_parent() {
    let subject = RunSubject::new(RunId::new(), "web", None);
    let inner = payload(json!({
        "hook_event_name": "SubagentStart", "agent_id": "n1", "agent_type": "Explore", "transcript_path": "/t/x.jsonl",
    }));
    let event = subject.hook_event(inner, &Redactor::default());
    assert_eq!(event.fields.get("agent_id").unwrap(), "n1");
    assert_eq!(event.fields.get("agent_transcript_path").unwrap(), "/t/x/subagents/agent-n1.jsonl");
    assert_eq!(event.fields.get("parent_agent_type").unwrap(), "web");
    assert_eq!(event.fields.get("run_id").unwrap(), &json!(subject.run.to_string()));
}

#[test]
fn h3_a_name_with_a_line_break_stays_one_line() {
    let subject = RunSubject::new(RunId::new(), "x\ny\u{2028}", None);
    let line = subject
        .event("RunStarted", json!({"prompt": "a\n{\"forged\":1}"}), &Redactor::default())
        .encode_body();
    assert!(!line.contains(['\n', '\u{2028}']));
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["agent_type"], "x\ny\u{2028}");
}

#[test]
fn an_oversized_event_keeps_its_leading_fields() {
    let subject = RunSubject::new(RunId::new(), "web", None);
    let many: Vec<String> = (0..60).map(|_| "y".repeat(1_900)).collect();
    let event = subject.event(
        "PostToolUse",
        json!({"tool_name": "Bash", "tool_response": many}),
        &Redactor::default(),
    );
    let line = event.encode_body();
    assert!(line.len() < 4_000);
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["tool_name"], &line["agent_type"]), (&json!("Bash"), &json!("web")));
    assert!(line["left_out_bytes"].as_u64().unwrap() > 100_000);
}
