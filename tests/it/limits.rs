//! Money, turns and an API that is not there, with the real `claude`: each holds in the turn that passes it.

use std::net::TcpListener;
use std::time::Instant;

use adjutant::scripted::Reply;
use serde_json::{Value, json};
use test_case::test_case;

use crate::support::stage::{NEW, OLD, Stage};

/// Writes two hundred tokens with every message, half a cent with this model, and wants to go on for ever.
const CHATTY: &str = r#"USAGE 100 200
CALL Bash {"command": "touch one"}
USAGE 100 200
CALL Bash {"command": "touch two"}
USAGE 100 200
CALL Bash {"command": "touch three"}
SAY done"#;

fn stage(version: &str, settings: &str) -> Option<Stage> {
    let stage = Stage::new(version)?;
    let permissions = "model: claude-opus-4-8\npermissions: { allow: [\"Bash(touch:*)\"] }\n";
    stage.context.agent(
        "helper",
        &format!("---\nname: helper\ndescription: Helps\n{permissions}{settings}---\nHelp.\n"),
    );
    Some(stage)
}

fn told(report: &Value) -> &str {
    report["error"].as_str().unwrap_or_else(|| panic!("no error: {report}"))
}

#[test_case(NEW, "max_budget_usd: 0.01\n"; "2_1_325 in passing")]
#[test_case(OLD, "max_budget_usd: 0.01\n"; "2_1_197 in passing")]
#[test_case(NEW, "max_budget_usd: 0.01\nsession: true\n"; "2_1_325 in a conversation")]
#[test_case(OLD, "max_budget_usd: 0.01\nsession: true\n"; "2_1_197 in a conversation")]
fn a_budget_of_one_cent_stops_a_chatty_agent_in_the_turn_that_passes_it(v: &str, limits: &str) {
    let Some(stage) = stage(v, limits) else { return };
    let report = stage.run("helper", CHATTY);
    assert!(
        told(&report)
            .starts_with("BUDGET_EXCEEDED: `helper` has cost $0.0110 of $0.01 in this call"),
        "{report}"
    );
    assert_eq!(stage.model.requests().len(), 2, "{report}");
    assert!(stage.context.root().join("one").exists());
    assert!(!stage.context.root().join("two").exists(), "what was asked for too much is not done");
    let cost = report["cost_usd"].as_f64().expect("what it cost");
    assert!((cost - 0.011).abs() < 1e-9, "{report}");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_daily_budget_stops_the_run_that_passes_it_and_the_next(version: &str) {
    let Some(stage) = stage(version, "") else { return };
    stage.context.write("agents/defaults.yaml", "budgets: { helper: { per_day_usd: 0.01 } }\n");
    let report = stage.run("helper", CHATTY);
    let expected = "BUDGET_EXCEEDED: `helper` has cost $0.0110 of $0.01 today";
    assert!(told(&report).starts_with(expected), "{report}");
    assert_eq!(stage.model.requests().len(), 2, "{report}");
    assert!(stage.context.root().join("one").exists());
    assert!(!stage.context.root().join("two").exists(), "what was asked for too much is not done");
    assert!(told(&stage.run("helper", CHATTY)).starts_with(expected));
    assert_eq!(stage.model.requests().len(), 2, "nothing was started");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn turns_are_counted(version: &str) {
    let Some(stage) = stage(version, "max_turns: 2\n") else { return };
    let report = stage.run("helper", CHATTY);
    assert!(told(&report).starts_with("MAX_TURNS: `helper` used up its turns of 2"), "{report}");
    assert!(!stage.context.root().join("three").exists());
}

#[test_case("FAIL 401", "the credentials are not accepted")]
#[test_case("FAIL 404", "the API does not know the model")]
fn what_will_not_pass_is_told_at_once(script: &str, help: &str) {
    let Some(stage) = stage(NEW, "") else { return };
    let report = stage.run("helper", script);
    assert!(told(&report).to_lowercase().contains(&help.to_lowercase()), "{report}");
    assert!(stage.model.requests().len() <= 3, "it was not tried again and again");
    assert_eq!(report.get("partial"), None, "the agent wrote nothing: {report}");
}

/// A CLI that does not try again by itself: what is seen is our doing.
const AT_ONCE: &str = "env: { CLAUDE_CODE_MAX_RETRIES: \"0\" }\n";

#[test_case(NEW)]
#[test_case(OLD)]
fn what_may_pass_is_tried_once_more_in_the_same_conversation(version: &str) {
    let Some(stage) = stage(version, AT_ONCE) else { return };
    stage.model.set_handler(|body| {
        let asked = body["messages"].to_string().matches("SAY there").count();
        (asked < 2).then_some(Reply::Error { status: 529, is_final: true, message: None })
    });
    let report = stage.run("helper", "SAY there");
    assert_eq!(report["result"], "there", "{report}");
    assert!(report["note"].as_str().unwrap_or_default().contains("asked again"), "{report}");

    stage.model.set_handler(|_| Some(Reply::Error { status: 529, is_final: true, message: None }));
    let report = stage.run("helper", "SAY never");
    assert!(told(&report).contains("it may pass: try again later"), "{report}");
    assert_eq!(report.get("partial"), None, "the agent wrote nothing: {report}");
}

#[test]
fn nothing_is_tried_again_after_a_tool_has_run() {
    let Some(stage) = stage(NEW, AT_ONCE) else { return };
    let script = "CALL Bash {\"command\": \"touch one\"}\nFAIL 529 final\nSAY never";
    let report = stage.run("helper", script);
    assert!(told(&report).starts_with("CLAUDE_FAILED"), "{report}");
    assert_eq!(report.get("note"), None, "{report}");
    assert!(stage.context.root().join("one").exists());
}

/// Each call costs a cent and may cost two; what the conversation has cost before does not count.
#[test_case(NEW)]
#[test_case(OLD)]
fn a_budget_is_for_one_call_however_long_the_conversation(version: &str) {
    let Some(stage) = stage(version, "max_budget_usd: 0.02\nsession: true\n") else { return };
    for number in 0..4 {
        let report = stage.run("helper", "USAGE 100 400\nSAY cold");
        assert_eq!(report["result"], "cold", "call {number}: {report}");
        let cost = report["cost_usd"].as_f64().expect("what it cost");
        assert!((cost - 0.0105).abs() < 1e-9, "call {number}: {report}");
    }
}

/// What the API does, by the word in the prompt.
fn trouble(word: &str) -> Option<Reply> {
    let credit =
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing.";
    let (status, message) = match word {
        "no-credit" => (400, Some(credit)),
        "bad-request" => (400, None),
        "bad-key" => (401, Some("invalid x-api-key")),
        "no-model" => (404, Some("model: nope")),
        "too-many" => (429, None),
        "broken" => (500, None),
        "busy" => (529, Some("Overloaded")),
        "broken-off" => return Some(Reply::BrokenOff),
        _ => return None,
    };
    Some(Reply::Error { status, is_final: true, message })
}

/// Everything at once, each in a process of its own: what the CLI really says of it, and what the caller is told.
#[test_case(NEW, &["no-credit", "bad-request", "bad-key", "no-model", "too-many", "broken", "busy", "broken-off", "nowhere"])]
#[test_case(OLD, &["no-credit", "too-many", "broken-off", "nowhere"])]
fn each_trouble_with_the_api_is_told_for_what_it_is(version: &str, words: &[&str]) {
    let Some(stage) = stage(version, AT_ONCE) else { return };
    // A port that was free a moment ago: nobody listens there.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let env = format!(
        "env: {{ CLAUDE_CODE_MAX_RETRIES: \"0\", ANTHROPIC_BASE_URL: \"http://{nobody}\" }}"
    );
    let far = format!("---\nname: far\ndescription: Far away\n{env}\n---\nHelp.\n");
    stage.context.agent("far", &far);
    stage.model.set_handler(|body| {
        let told = body["messages"].to_string();
        trouble(told.split("IT IS ").nth(1)?.split(['"', '.']).next()?)
    });
    let task = |word: &&str| {
        let agent = if *word == "nowhere" { "far" } else { "helper" };
        json!({ "agent_name": agent, "prompt": format!("IT IS {word}.") })
    };
    let tasks: Vec<Value> = words.iter().map(task).collect();
    let answer = stage.serve().call("run_subagents", json!({ "tasks": tasks }));
    let results = answer["structuredContent"]["results"].as_array().expect("results");
    for (word, result) in words.iter().zip(results) {
        let (says, may_pass) = match *word {
            "no-credit" => (
                "Credit balance is too low. The account has no credit left, and trying again will not help",
                false,
            ),
            "bad-request" => {
                ("The API does not take the request, and trying again will not help", false)
            }
            "bad-key" => {
                ("The credentials are not accepted, and trying again will not help", false)
            }
            "no-model" => (
                "The API does not know the model, or not for this account, and trying again will not help",
                false,
            ),
            "too-many" => ("The account makes too many requests just now; it may pass", true),
            "broken" | "busy" => ("The API is busy or down; it may pass", true),
            _ => ("The API cannot be reached; it may pass", true),
        };
        let told = result["error"].as_str().unwrap_or_default();
        assert!(told.starts_with("CLAUDE_FAILED: ") && told.contains(says), "{word}: {result}");
        let note = result["note"].as_str().unwrap_or_default();
        assert_eq!(note.contains("was asked again"), may_pass, "{word}: {result}");
        let partial = (*word == "broken-off").then_some("half of it");
        assert_eq!(result["partial"].as_str(), partial, "{word}: {result}");
    }
}

/// The CLI asks ten times, for minutes. Whoever waits in vain is told what for.
#[test]
fn an_api_that_never_takes_a_request_is_bounded_by_the_deadline() {
    let Some(stage) = stage(NEW, "timeout_ms: 5000\n") else { return };
    let began = Instant::now();
    let report = stage.run("helper", "FAIL 429\nSAY never");
    assert!(
        told(&report).starts_with("TIMEOUT: `helper` had no answer within 5000 ms"),
        "{report}"
    );
    let note = report["note"].as_str().unwrap_or_default();
    let expected = "The API did not take the request: rate_limit (HTTP 429); attempt ";
    // On a machine that is very busy it may not have come to a second attempt.
    assert!(note.starts_with(expected) || stage.model.requests().len() < 2, "{report}");
    assert!(began.elapsed().as_secs() < 20);
}
