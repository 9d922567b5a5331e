//! Resumed sessions with the real `claude` of both versions, checked by the requests that reach the model.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::claude_context::{ClaudeContext, NEW, OLD, report};
use crate::support::mcp::{McpClient, result_text};
use crate::support::text::{error_text, mask};
use crate::support::wait::wait_until;

const SESSION_AGENT: &str = "---\nname: keeper\ndescription: Remembers\nsession: true\ntimeout_ms: 120000\n---\nYou remember what was said.\n";

fn claude_project(version: &str) -> Option<ClaudeContext> {
    let fixture = ClaudeContext::new(version)?;
    fixture.agent("keeper", SESSION_AGENT);
    Some(fixture)
}

/// Body of the last request to the model, which contains everything the agent knows.
fn last_request(fixture: &ClaudeContext) -> Value {
    Value::clone(&fixture.model.requests().last().expect("the model was asked").body)
}

fn last_messages(fixture: &ClaudeContext) -> String {
    last_request(fixture)["messages"].to_string()
}

fn transcripts(fixture: &ClaudeContext) -> Vec<PathBuf> {
    let projects = fixture.home().join(".claude/projects");
    let folders = fs::read_dir(projects).into_iter().flatten().flatten();
    let files =
        folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let files = files.map(|file| file.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

fn call_agent(server: &mut McpClient, prompt: &str) -> Value {
    let answer =
        server.call_tool("run_subagent", json!({"agent_name": "keeper", "prompt": prompt}));
    assert_ne!(answer["isError"], true, "{}", result_text(&answer));
    answer["structuredContent"].clone()
}

fn stored_sessions(fixture: &ClaudeContext) -> Value {
    let text = fs::read(fixture.root().join("data/sessions.json")).unwrap();
    serde_json::from_slice::<Value>(&text).unwrap()["conversations"].clone()
}

#[test_case(NEW)]
#[test_case(OLD)]
fn second_call_sees_the_first_and_costs_only_its_own_turn(version: &str) {
    let Some(fixture) = claude_project(version) else { return };
    let first = fixture.run("keeper", "USAGE 1000 100\nSAY the word is plum");
    let second = fixture.run("keeper", "USAGE 1000 100\nSAY fine");
    assert_eq!((&first["result"], &second["result"]), (&json!("the word is plum"), &json!("fine")));
    assert_eq!(first["session_id"], second["session_id"]);
    assert_eq!((first.get("note"), second.get("note")), (None, None));
    let remembered = last_messages(&fixture);
    assert!(remembered.contains("SAY the word is plum"), "the first question: {remembered}");
    assert!(remembered.contains("\"the word is plum\""), "the first answer: {remembered}");

    let (one, two) = (first["cost_usd"].as_f64().unwrap(), second["cost_usd"].as_f64().unwrap());
    assert!(
        one > 0.0 && (one - two).abs() < one / 2.0,
        "each call costs what it costs: {one}, {two}"
    );
    let entry = &stored_sessions(&fixture)[0];
    assert_eq!((&entry["turns"], &entry["state"]), (&json!(2), &json!("ready")));
    assert!((entry["cost_usd"].as_f64().unwrap() - one - two).abs() < 1e-5, "{entry}");
}

const SESSION_AGENT_WITH_SHELL: &str = "---\nname: keeper\ndescription: Remembers\nsession: true\ntimeout_ms: 20000\n\
    permissions:\n  allow: [\"Bash\"]\n---\nYou remember what was said.\n";

#[test_case(NEW)]
#[test_case(OLD)]
fn session_continues_after_its_first_call_timed_out(version: &str) {
    let Some(fixture) = claude_project(version) else { return };
    fixture.agent("keeper", SESSION_AGENT_WITH_SHELL);
    let call = json!({ "command": "tail -f /dev/null" });
    let first = fixture.run("keeper", &format!("SAY the word is plum\nCALL Bash {call}"));
    assert_eq!(first["error"]["code"], "TIMEOUT", "{first}");
    let second = fixture.run("keeper", "SAY fine");
    assert_eq!(second["result"], "fine", "{second}");
    assert_eq!((second.get("note"), &second["session_id"]), (None, &first["session_id"]));
    let remembered = last_messages(&fixture);
    assert!(remembered.contains("the word is plum"), "{remembered}");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn session_continues_after_sigkill_and_in_a_second_server(version: &str) {
    let Some(fixture) = claude_project(version) else { return };
    let mut killed = fixture.serve();
    let first = call_agent(&mut killed, "SAY the word is plum");
    killed.child().kill().unwrap();
    killed.child().wait().unwrap();

    let (mut one, mut two) = (fixture.serve(), fixture.serve());
    let second = call_agent(&mut one, "SAY the number is seven");
    let third = call_agent(&mut two, "SAY the day is Monday");
    let fourth = call_agent(&mut one, "SAY done");
    for later in [&second, &third, &fourth] {
        assert_eq!(later["session_id"], first["session_id"]);
        assert_eq!(later.get("note"), None);
    }
    let remembered = last_messages(&fixture);
    for part in ["\"the word is plum\"", "\"the number is seven\"", "\"the day is Monday\""] {
        assert!(remembered.contains(part), "{part}: {remembered}");
    }
}

#[test_case(NEW)]
#[test_case(OLD)]
fn deleted_transcript_leads_to_a_new_session_and_a_note(version: &str) {
    let Some(fixture) = claude_project(version) else { return };
    let first = fixture.run("keeper", "SAY the word is plum");
    for transcript in transcripts(&fixture) {
        fs::remove_file(transcript).unwrap();
    }
    let asked = fixture.model.requests().len();
    let second = fixture.run("keeper", "SAY who are you");
    assert_eq!(second["result"], "who are you", "{second}");
    assert_eq!(
        second["note"],
        "Claude Code no longer has the earlier conversation («No conversation found»), so a new \
         one was begun"
    );
    assert_ne!(first["session_id"], second["session_id"]);
    assert_eq!(fixture.model.requests().len(), asked + 1, "the model is asked once");
    assert!(!last_messages(&fixture).contains("plum"));

    let third = fixture.run("keeper", "SAY good");
    assert_eq!((&third["session_id"], third.get("note")), (&second["session_id"], None));
    assert_eq!(stored_sessions(&fixture)[0]["replaces"], first["session_id"]);
}

#[test]
fn every_run_gets_the_current_memory_and_agent_file() {
    let Some(fixture) = claude_project(NEW) else { return };
    fixture.write("agents/keeper/memory.md", "Ada likes plums.");
    let first = fixture.run("keeper", "SAY yes");
    let system = |fixture: &ClaudeContext| last_request(fixture)["system"].to_string();
    assert!(system(&fixture).contains("Ada likes plums."), "{}", system(&fixture));

    fixture.write("agents/keeper/memory.md", "Ada likes pears now.");
    let second = fixture.run("keeper", "SAY yes");
    assert!(system(&fixture).contains("Ada likes pears now."), "{}", system(&fixture));
    assert_eq!(second.get("note"), None, "its memory is no contract");

    fixture.agent("keeper", &SESSION_AGENT.replace("You remember", "You always remember"));
    let third = fixture.run("keeper", "SAY yes");
    assert_eq!(third["session_id"], first["session_id"]);
    assert_eq!(
        third["note"],
        "the agent's file has changed since the last call; the conversation goes on under the \
         new contract"
    );
    assert!(system(&fixture).contains("You always remember"), "{}", system(&fixture));
}

#[test_case(NEW)]
#[test_case(OLD)]
fn runs_without_a_session_share_no_context_and_leave_no_transcript(version: &str) {
    let Some(fixture) = claude_project(version) else { return };
    fixture.agent("passer", "---\nname: passer\ndescription: Forgets\n---\nYou forget.\n");
    fixture.run("passer", "SAY the word is plum");
    let second = fixture.run("passer", "SAY what word");
    assert_eq!(second["result"], "what word");
    assert!(!last_messages(&fixture).contains("plum"));
    assert_eq!(second.get("session_id"), None);
    assert_eq!(transcripts(&fixture), Vec::<PathBuf>::new());
}

#[test]
fn session_keys_and_fresh_separate_sessions() {
    let Some(fixture) = claude_project(NEW) else { return };
    let run = |arguments: &[&str]| {
        let mut command = fixture.adjutant(["run", "keeper", "--json"]);
        report(&command.args(arguments).output().unwrap())
    };
    let one = run(&["SAY plum", "--session-key", "pr-1"]);
    let two = run(&["SAY pear", "--session-key", "pr-2"]);
    assert_ne!(one["session_id"], two["session_id"]);
    assert!(!last_messages(&fixture).contains("plum"));
    let again = run(&["SAY and", "--session-key", "pr-1"]);
    assert_eq!(again["session_id"], one["session_id"]);
    let fresh = run(&["SAY new", "--session-key", "pr-1", "--fresh"]);
    assert_ne!(fresh["session_id"], one["session_id"]);
    assert!(!last_messages(&fixture).contains("plum"));
    let bad = run(&["SAY x", "--session-key", "../x"]);
    assert_eq!(bad["error"]["code"], "INVALID_ARGUMENT", "{bad}");
}

#[test]
fn concurrent_calls_of_one_session_wait_up_to_session_wait_ms() {
    let Some(fixture) = claude_project(NEW) else { return };
    fixture.write("agents/defaults.yaml", "session_wait_ms: 60000\n");
    let (mut one, mut two) = (fixture.serve(), fixture.serve());
    let call = |prompt: &str| json!({"name": "run_subagent", "arguments": {"agent_name": "keeper", "prompt": prompt}});
    let first = one.send_request("tools/call", call("SLEEP 1\nSAY the word is plum"));
    wait_until("the first request", || fixture.model.requests().pop());
    let second = two.send_request("tools/call", call("SAY fine"));
    assert_ne!(one.answer(first)["isError"], true);
    assert_ne!(two.answer(second)["isError"], true);
    assert!(last_messages(&fixture).contains("plum"), "the second waited for the first");

    fixture.write("agents/defaults.yaml", "session_wait_ms: 50\n");
    let asked = fixture.model.requests().len();
    let first = one.send_request("tools/call", call("SLEEP 3\nSAY slowly"));
    wait_until("a request", || (fixture.model.requests().len() > asked).then_some(()));
    let busy =
        report(&fixture.adjutant(["run", "keeper", "SAY quickly", "--json"]).output().unwrap());
    assert_eq!(busy["error"]["code"], "SESSION_BUSY", "{busy}");
    let error = &error_text(&busy);
    let expected = format!(
        "SESSION_BUSY: the conversation `keeper` is in use by process {} since [TIME] (run [ID]). \
         Call again later, or give another `session_key`.",
        one.pid()
    );
    assert_eq!(mask(error), mask(&expected));
    assert!(error.contains(&format!("process {} ", one.pid())), "{error}");
    assert_ne!(one.answer(first)["isError"], true);
}

/// H1: the session store cannot be written; the run itself still succeeds.
#[test]
fn h1_unwritable_session_store_adds_a_note_to_the_answer() {
    let Some(fixture) = claude_project(NEW) else { return };
    fixture.write("data/sessions.lock/in-the-way", "");
    fixture.write("data/leases", "");
    let report = fixture.run("keeper", "SAY here I am");
    assert_eq!(report["result"], "here I am", "{report}");
    assert_eq!(
        report["note"],
        "the conversation could not be kept: the lock `data/sessions.lock` could not be had: Is \
         a directory (os error 21) other processes could not be kept out of this conversation: \
         File exists (os error 17)"
    );
}
