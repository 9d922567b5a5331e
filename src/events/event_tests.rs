use super::*;

fn payload(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => panic!("an object"),
    }
}

fn of_hook(value: Value) -> Value {
    let event = Event::of_hook(payload(value), &Redactor::default()).expect("it names an event");
    Value::Object(event.into_payload())
}

#[test]
fn the_main_agents_events_name_no_agent() {
    let event = of_hook(json!({
        "session_id": "s", "transcript_path": "/t/s.jsonl", "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "agent_type": "planted", "agent_transcript_path": "/planted",
    }));
    assert!(AGENT_FIELDS.iter().all(|field| event.get(field).is_none()), "{event}");
    assert_eq!((&event["session_id"], &event["tool_name"]), (&json!("s"), &json!("Bash")));
}

#[test]
fn every_event_of_a_native_subagent_has_all_three() {
    let event = of_hook(json!({
        "session_id": "s", "transcript_path": "/t/s.jsonl", "hook_event_name": "PreToolUse",
        "agent_id": "a1", "agent_type": "code-reviewer",
    }));
    assert_eq!(event["agent_transcript_path"], "/t/s/subagents/agent-a1.jsonl");
    assert_eq!((&event["agent_id"], &event["agent_type"]), (&json!("a1"), &json!("code-reviewer")));
}

#[test]
fn what_names_no_event_is_none() {
    assert!(Event::of_hook(Map::new(), &Redactor::default()).is_none());
    assert!(Event::of_hook(payload(json!({"hook_event_name": 3})), &Redactor::default()).is_none());
}

#[test]
fn an_event_of_ours_has_its_run_and_its_caller() {
    let mut subject = RunSubject::new(RunId::new(), "web", Some(Caller::main()));
    let run = subject.run.to_string();
    let queued = subject.event("RunQueued", json!({ "empty": null }), &Redactor::default());
    assert_eq!(queued.get("agent_id").unwrap(), &json!(run));
    assert_eq!(queued.get("agent_transcript_path"), Some(&Value::Null), "none is known yet");
    assert!(queued.get("empty").is_none());
    subject.transcript = Some("/t/x.jsonl".into());
    subject.session_id = Some("x".to_owned());
    let stop = subject.event("Stop", json!({}), &Redactor::default());
    let line: Value = serde_json::from_str(&number(7, &stop.body())).unwrap();
    assert_eq!(
        line,
        json!({
            "format": 1, "seq": 7, "time": stop.time.to_string(), "hook_event_name": "Stop", "session_id": "x",
            "agent_id": run, "agent_type": "web", "agent_transcript_path": "/t/x.jsonl", "run_id": run,
            "caller": { "name": "main", "known_by": "fallback" },
        })
    );
}

#[test]
fn a_native_subagent_inside_of_ours_names_its_parent() {
    let subject = RunSubject::new(RunId::new(), "web", None);
    let inner = payload(json!({
        "hook_event_name": "SubagentStart", "agent_id": "n1", "agent_type": "Explore", "transcript_path": "/t/x.jsonl",
    }));
    let event = subject.hook_event(inner, &Redactor::default());
    assert_eq!(event.get("agent_id").unwrap(), "n1");
    assert_eq!(event.get("agent_transcript_path").unwrap(), "/t/x/subagents/agent-n1.jsonl");
    assert_eq!(event.get("parent_agent_type").unwrap(), "web");
    assert_eq!(event.get("run_id").unwrap(), &json!(subject.run.to_string()));
}

#[test]
fn h3_a_name_with_a_line_break_stays_one_line() {
    let subject = RunSubject::new(RunId::new(), "x\ny\u{2028}", None);
    let line = subject
        .event("RunStarted", json!({"prompt": "a\n{\"forged\":1}"}), &Redactor::default())
        .body();
    assert!(!line.contains(['\n', '\u{2028}']));
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["agent_type"], "x\ny\u{2028}");
}

#[test]
fn a_huge_event_keeps_who_and_what() {
    let subject = RunSubject::new(RunId::new(), "web", None);
    let many: Vec<String> = (0..60).map(|_| "y".repeat(1_900)).collect();
    let event = subject.event(
        "PostToolUse",
        json!({"tool_name": "Bash", "tool_response": many}),
        &Redactor::default(),
    );
    let line = event.body();
    assert!(line.len() < 4_000);
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["tool_name"], &line["agent_type"]), (&json!("Bash"), &json!("web")));
    assert!(line["left_out_bytes"].as_u64().unwrap() > 100_000);
}
