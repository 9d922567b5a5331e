//! Conversations that go on, with the real `claude` of both versions: what reaches the model is what counts.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::mcp::{McpClient, text};
use crate::support::stage::{NEW, OLD, Stage, report};

const KEEPER: &str = "---\nname: keeper\ndescription: Remembers\nsession: true\ntimeout_ms: 120000\n---\nYou remember what was said.\n";

fn stage(version: &str) -> Option<Stage> {
    let stage = Stage::new(version)?;
    stage.context.agent("keeper", KEEPER);
    Some(stage)
}

/// What the last request to the model held: all that the agent knows.
fn last_request(stage: &Stage) -> Value {
    Value::clone(&stage.model.requests().last().expect("the model was asked").body)
}

fn remembered(stage: &Stage) -> String {
    last_request(stage)["messages"].to_string()
}

fn transcripts(stage: &Stage) -> Vec<PathBuf> {
    let projects = stage.context.home().join(".claude/projects");
    let folders = fs::read_dir(projects).into_iter().flatten().flatten();
    let files =
        folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let files = files.map(|file| file.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

fn ask(server: &mut McpClient, prompt: &str) -> Value {
    let answer = server.call("run_subagent", json!({"agent_name": "keeper", "prompt": prompt}));
    assert_ne!(answer["isError"], true, "{}", text(&answer));
    answer["structuredContent"].clone()
}

fn stored(stage: &Stage) -> Value {
    let text = fs::read(stage.context.root().join("data/sessions.json")).unwrap();
    serde_json::from_slice::<Value>(&text).unwrap()["conversations"].clone()
}

#[test_case(NEW)]
#[test_case(OLD)]
fn the_second_call_sees_the_first_and_pays_for_itself_alone(version: &str) {
    let Some(stage) = stage(version) else { return };
    let first = stage.run("keeper", "USAGE 1000 100\nSAY the word is plum");
    let second = stage.run("keeper", "USAGE 1000 100\nSAY fine");
    assert_eq!((&first["result"], &second["result"]), (&json!("the word is plum"), &json!("fine")));
    assert_eq!(first["session_id"], second["session_id"]);
    assert_eq!((first.get("note"), second.get("note")), (None, None));
    let remembered = remembered(&stage);
    assert!(remembered.contains("SAY the word is plum"), "the first question: {remembered}");
    assert!(remembered.contains("\"the word is plum\""), "the first answer: {remembered}");

    let (one, two) = (first["cost_usd"].as_f64().unwrap(), second["cost_usd"].as_f64().unwrap());
    assert!(
        one > 0.0 && (one - two).abs() < one / 2.0,
        "each call costs what it costs: {one}, {two}"
    );
    let entry = &stored(&stage)[0];
    assert_eq!((&entry["turns"], &entry["state"]), (&json!(2), &json!("ready")));
    assert!((entry["cost_usd"].as_f64().unwrap() - one - two).abs() < 1e-5, "{entry}");
}

const SHELL: &str = "---\nname: keeper\ndescription: Remembers\nsession: true\ntimeout_ms: 20000\n\
    permissions:\n  allow: [\"Bash\"]\n---\nYou remember what was said.\n";

#[test_case(NEW)]
#[test_case(OLD)]
fn a_conversation_goes_on_after_its_first_call_ran_out_of_time(version: &str) {
    let Some(stage) = stage(version) else { return };
    stage.context.agent("keeper", SHELL);
    let call = json!({ "command": "tail -f /dev/null" });
    let first = stage.run("keeper", &format!("SAY the word is plum\nCALL Bash {call}"));
    assert_eq!(first["code"], "TIMEOUT", "{first}");
    let second = stage.run("keeper", "SAY fine");
    assert_eq!(second["result"], "fine", "{second}");
    assert_eq!((second.get("note"), &second["session_id"]), (None, &first["session_id"]));
    let remembered = remembered(&stage);
    assert!(remembered.contains("the word is plum"), "{remembered}");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn it_goes_on_after_sigkill_and_from_a_second_server(version: &str) {
    let Some(stage) = stage(version) else { return };
    let mut killed = stage.serve();
    let first = ask(&mut killed, "SAY the word is plum");
    killed.child().kill().unwrap();
    killed.child().wait().unwrap();

    let (mut one, mut two) = (stage.serve(), stage.serve());
    let second = ask(&mut one, "SAY the number is seven");
    let third = ask(&mut two, "SAY the day is Monday");
    let fourth = ask(&mut one, "SAY done");
    for later in [&second, &third, &fourth] {
        assert_eq!(later["session_id"], first["session_id"]);
        assert_eq!(later.get("note"), None);
    }
    let remembered = remembered(&stage);
    for part in ["\"the word is plum\"", "\"the number is seven\"", "\"the day is Monday\""] {
        assert!(remembered.contains(part), "{part}: {remembered}");
    }
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_transcript_deleted_behind_our_back_is_a_fresh_start_and_a_note(version: &str) {
    let Some(stage) = stage(version) else { return };
    let first = stage.run("keeper", "SAY the word is plum");
    for transcript in transcripts(&stage) {
        fs::remove_file(transcript).unwrap();
    }
    let asked = stage.model.requests().len();
    let second = stage.run("keeper", "SAY who are you");
    assert_eq!(second["result"], "who are you", "{second}");
    assert!(
        second["note"].as_str().unwrap().contains("no longer has the earlier conversation"),
        "{second}"
    );
    assert_ne!(first["session_id"], second["session_id"]);
    assert_eq!(stage.model.requests().len(), asked + 1, "the model is asked once");
    assert!(!remembered(&stage).contains("plum"));

    let third = stage.run("keeper", "SAY good");
    assert_eq!((&third["session_id"], third.get("note")), (&second["session_id"], None));
    assert_eq!(stored(&stage)[0]["replaces"], first["session_id"]);
}

#[test]
fn memory_is_part_of_every_launch_and_a_changed_file_is_the_new_contract() {
    let Some(stage) = stage(NEW) else { return };
    stage.context.write("agents/keeper/memory.md", "Ada likes plums.");
    let first = stage.run("keeper", "SAY yes");
    let system = |stage: &Stage| last_request(stage)["system"].to_string();
    assert!(system(&stage).contains("Ada likes plums."), "{}", system(&stage));

    stage.context.write("agents/keeper/memory.md", "Ada likes pears now.");
    let second = stage.run("keeper", "SAY yes");
    assert!(system(&stage).contains("Ada likes pears now."), "{}", system(&stage));
    assert_eq!(second.get("note"), None, "its memory is no contract");

    stage.context.agent("keeper", &KEEPER.replace("You remember", "You always remember"));
    let third = stage.run("keeper", "SAY yes");
    assert_eq!(third["session_id"], first["session_id"]);
    assert!(third["note"].as_str().unwrap().contains("under the new contract"), "{third}");
    assert!(system(&stage).contains("You always remember"), "{}", system(&stage));
}

#[test_case(NEW)]
#[test_case(OLD)]
fn without_a_session_nothing_is_remembered_and_no_transcript_is_left(version: &str) {
    let Some(stage) = stage(version) else { return };
    stage.context.agent("passer", "---\nname: passer\ndescription: Forgets\n---\nYou forget.\n");
    stage.run("passer", "SAY the word is plum");
    let second = stage.run("passer", "SAY what word");
    assert_eq!(second["result"], "what word");
    assert!(!remembered(&stage).contains("plum"));
    assert_eq!(second.get("session_id"), None);
    assert_eq!(transcripts(&stage), Vec::<PathBuf>::new());
}

#[test]
fn keys_and_fresh_starts_keep_conversations_apart() {
    let Some(stage) = stage(NEW) else { return };
    let run = |arguments: &[&str]| {
        let mut command = stage.adjutant(["run", "keeper", "--json"]);
        report(&command.args(arguments).output().unwrap())
    };
    let one = run(&["SAY plum", "--session-key", "pr-1"]);
    let two = run(&["SAY pear", "--session-key", "pr-2"]);
    assert_ne!(one["session_id"], two["session_id"]);
    assert!(!remembered(&stage).contains("plum"));
    let again = run(&["SAY and", "--session-key", "pr-1"]);
    assert_eq!(again["session_id"], one["session_id"]);
    let fresh = run(&["SAY new", "--session-key", "pr-1", "--fresh"]);
    assert_ne!(fresh["session_id"], one["session_id"]);
    assert!(!remembered(&stage).contains("plum"));
    let bad = run(&["SAY x", "--session-key", "../x"]);
    assert_eq!(bad["code"], "INVALID_ARGUMENT", "{bad}");
}

#[test]
fn two_calls_for_one_conversation_wait_and_the_impatient_one_is_told() {
    let Some(stage) = stage(NEW) else { return };
    stage.context.write("agents/defaults.yaml", "session_wait_ms: 60000\n");
    let (mut one, mut two) = (stage.serve(), stage.serve());
    let call = |prompt: &str| json!({"name": "run_subagent", "arguments": {"agent_name": "keeper", "prompt": prompt}});
    let first = one.begin("tools/call", call("SLEEP 1\nSAY the word is plum"));
    wait_until(|| !stage.model.requests().is_empty());
    let second = two.begin("tools/call", call("SAY fine"));
    assert_ne!(one.answer(first)["isError"], true);
    assert_ne!(two.answer(second)["isError"], true);
    assert!(remembered(&stage).contains("plum"), "the second waited for the first");

    stage.context.write("agents/defaults.yaml", "session_wait_ms: 50\n");
    let asked = stage.model.requests().len();
    let first = one.begin("tools/call", call("SLEEP 3\nSAY slowly"));
    wait_until(|| stage.model.requests().len() > asked);
    let busy =
        report(&stage.adjutant(["run", "keeper", "SAY quickly", "--json"]).output().unwrap());
    assert_eq!(busy["code"], "SESSION_BUSY", "{busy}");
    assert!(busy["error"].as_str().unwrap().contains(&format!("process {}", one.pid())), "{busy}");
    assert_ne!(one.answer(first)["isError"], true);
}

/// H1: nothing can be written where the store should be; the call itself still answers.
#[test]
fn h1_where_data_cannot_be_written_the_call_answers_with_a_note() {
    let Some(stage) = stage(NEW) else { return };
    stage.context.write("data/sessions.lock/in-the-way", "");
    stage.context.write("data/leases", "");
    let report = stage.run("keeper", "SAY here I am");
    assert_eq!(report["result"], "here I am", "{report}");
    assert!(report["note"].as_str().unwrap().contains("could not be kept"), "{report}");
}

fn wait_until(done: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while !done() {
        assert!(std::time::Instant::now() < deadline, "it does not come");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
