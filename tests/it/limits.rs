//! Budgets, turn limits and API failures with the real `claude`: each limit stops the turn that exceeds it.

use std::net::TcpListener;
use std::time::Instant;

use adjutant::scripted_model::ModelReply;
use serde_json::{Value, json};
use test_case::test_case;

use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::text::{error_text, mask};

/// Writes 200 tokens with every message, which cost about $0.005 with this model, and asks for three tool calls.
const CHATTY_SCRIPT: &str = r#"USAGE 100 200
CALL Bash {"command": "touch one"}
USAGE 100 200
CALL Bash {"command": "touch two"}
USAGE 100 200
CALL Bash {"command": "touch three"}
SAY done"#;

fn claude_project(version: &str, settings: &str) -> Option<ClaudeContext> {
    let fixture = ClaudeContext::new(version)?;
    let permissions = "model: claude-opus-4-8\npermissions: { allow: [\"Bash(touch:*)\"] }\n";
    fixture.agent(
        "helper",
        &format!("---\nname: helper\ndescription: Helps\n{permissions}{settings}---\nHelp.\n"),
    );
    Some(fixture)
}

fn error_message(report: &Value) -> String {
    error_text(report)
}

#[test_case(NEW, "max_budget_usd: 0.01\n"; "2_1_325 one shot")]
#[test_case(OLD, "max_budget_usd: 0.01\n"; "2_1_197 one shot")]
#[test_case(NEW, "max_budget_usd: 0.01\nsession: true\n"; "2_1_325 in a session")]
#[test_case(OLD, "max_budget_usd: 0.01\nsession: true\n"; "2_1_197 in a session")]
fn budget_of_one_cent_stops_the_run_in_the_turn_that_exceeds_it(v: &str, limits: &str) {
    let Some(fixture) = claude_project(v, limits) else { return };
    let report = fixture.run("helper", CHATTY_SCRIPT);
    assert!(
        error_message(&report)
            .starts_with("BUDGET_EXCEEDED: `helper` has cost $0.0110 of $0.01 in this call"),
        "{report}"
    );
    assert_eq!(fixture.model.requests().len(), 2, "{report}");
    assert!(fixture.root().join("one").exists());
    assert!(!fixture.root().join("two").exists(), "what was asked for too much is not done");
    let cost = report["cost_usd"].as_f64().expect("what it cost");
    assert!((cost - 0.011).abs() < 1e-9, "{report}");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn daily_budget_stops_the_run_that_exceeds_it_and_rejects_the_next(version: &str) {
    let Some(fixture) = claude_project(version, "") else { return };
    fixture.write("agents/defaults.yaml", "budgets: { helper: { per_day_usd: 0.01 } }\n");
    let report = fixture.run("helper", CHATTY_SCRIPT);
    let expected = "BUDGET_EXCEEDED: `helper` has cost $0.0110 of $0.01 today";
    assert!(error_message(&report).starts_with(expected), "{report}");
    assert_eq!(fixture.model.requests().len(), 2, "{report}");
    assert!(fixture.root().join("one").exists());
    assert!(!fixture.root().join("two").exists(), "what was asked for too much is not done");
    assert!(error_message(&fixture.run("helper", CHATTY_SCRIPT)).starts_with(expected));
    assert_eq!(fixture.model.requests().len(), 2, "nothing was started");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn max_turns_stops_a_run(version: &str) {
    let Some(fixture) = claude_project(version, "max_turns: 2\n") else { return };
    let report = fixture.run("helper", CHATTY_SCRIPT);
    assert!(
        error_message(&report).starts_with("MAX_TURNS: `helper` used up its turns of 2"),
        "{report}"
    );
    assert!(!fixture.root().join("three").exists());
}

#[test_case("FAIL 401", "the credentials are not accepted")]
#[test_case("FAIL 404", "the API does not know the model")]
fn permanent_api_failures_are_reported_without_retries(script: &str, help: &str) {
    let Some(fixture) = claude_project(NEW, "") else { return };
    let report = fixture.run("helper", script);
    assert!(error_message(&report).to_lowercase().contains(&help.to_lowercase()), "{report}");
    assert!(fixture.model.requests().len() <= 3, "it was not tried again and again");
    assert_eq!(report.get("partial"), None, "the agent wrote nothing: {report}");
}

/// Disables the CLI's own retries, so that every observed retry is Adjutant's.
const NO_CLI_RETRIES: &str = "env: { CLAUDE_CODE_MAX_RETRIES: \"0\" }\n";

#[test_case(NEW)]
#[test_case(OLD)]
fn transient_api_failure_is_retried_once_in_the_same_session(version: &str) {
    let Some(fixture) = claude_project(version, NO_CLI_RETRIES) else { return };
    fixture.model.set_handler(|body| {
        let asked = body["messages"].to_string().matches("SAY there").count();
        (asked < 2).then_some(ModelReply::Error { status: 529, is_final: true, message: None })
    });
    let report = fixture.run("helper", "SAY there");
    assert_eq!(report["result"], "there", "{report}");
    assert_eq!(
        mask(report["note"].as_str().unwrap_or_default()),
        "The API failed once (API Error: 529 scripted failure 529. This is a server-side issue, \
         usually temporary — try again in a moment. If it persists, check your inference \
         gateway (127.0.0.1:[PORT]).), and was asked again."
    );

    fixture
        .model
        .set_handler(|_| Some(ModelReply::Error { status: 529, is_final: true, message: None }));
    let report = fixture.run("helper", "SAY never");
    assert_eq!(
        mask(&error_message(&report)),
        "CLAUDE_FAILED: claude failed for `helper`: API Error: 529 scripted failure 529. This \
         is a server-side issue, usually temporary — try again in a moment. If it persists, \
         check your inference gateway (127.0.0.1:[PORT]). The API is busy or down; it may pass: \
         try again later."
    );
    assert_eq!(report.get("partial"), None, "the agent wrote nothing: {report}");
}

#[test]
fn failed_run_is_not_retried_after_a_tool_has_run() {
    let Some(fixture) = claude_project(NEW, NO_CLI_RETRIES) else { return };
    let script = "CALL Bash {\"command\": \"touch one\"}\nFAIL 529 final\nSAY never";
    let report = fixture.run("helper", script);
    assert!(error_message(&report).starts_with("CLAUDE_FAILED"), "{report}");
    assert_eq!(report.get("note"), None, "{report}");
    assert!(fixture.root().join("one").exists());
}

/// Each call costs $0.01 and may cost $0.02: costs of earlier calls of the session do not count.
#[test_case(NEW)]
#[test_case(OLD)]
fn budget_applies_to_each_call_of_a_session(version: &str) {
    let Some(fixture) = claude_project(version, "max_budget_usd: 0.02\nsession: true\n") else {
        return;
    };
    for number in 0..4 {
        let report = fixture.run("helper", "USAGE 100 400\nSAY cold");
        assert_eq!(report["result"], "cold", "call {number}: {report}");
        let cost = report["cost_usd"].as_f64().expect("what it cost");
        assert!((cost - 0.0105).abs() < 1e-9, "call {number}: {report}");
    }
}

/// The API response for a word of the prompt.
fn api_failure_reply(word: &str) -> Option<ModelReply> {
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
        "broken-off" => return Some(ModelReply::BrokenStream),
        _ => return None,
    };
    Some(ModelReply::Error { status, is_final: true, message })
}

/// All failures in parallel, one process each: the caller gets the cause and whether a retry can help.
#[test_case(NEW, &["no-credit", "bad-request", "bad-key", "no-model", "too-many", "broken", "busy", "broken-off", "nowhere"])]
#[test_case(OLD, &["no-credit", "too-many", "broken-off", "nowhere"])]
fn each_api_failure_is_reported_with_its_cause(version: &str, words: &[&str]) {
    let Some(fixture) = claude_project(version, NO_CLI_RETRIES) else { return };
    // A port that was just released: nothing listens on it.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let env = format!(
        "env: {{ CLAUDE_CODE_MAX_RETRIES: \"0\", ANTHROPIC_BASE_URL: \"http://{nobody}\" }}"
    );
    let far = format!("---\nname: far\ndescription: Far away\n{env}\n---\nHelp.\n");
    fixture.agent("far", &far);
    fixture.model.set_handler(|body| {
        let told = body["messages"].to_string();
        api_failure_reply(told.split("IT IS ").nth(1)?.split(['"', '.']).next()?)
    });
    let task = |word: &&str| {
        let agent = if *word == "nowhere" { "far" } else { "helper" };
        json!({ "agent_name": agent, "prompt": format!("IT IS {word}.") })
    };
    let tasks: Vec<Value> = words.iter().map(task).collect();
    let answer = fixture.serve().call_tool("run_subagents", json!({ "tasks": tasks }));
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
        let told = error_text(result);
        assert!(told.starts_with("CLAUDE_FAILED: ") && told.contains(says), "{word}: {result}");
        let note = result["note"].as_str().unwrap_or_default();
        assert_eq!(note.contains("was asked again"), may_pass, "{word}: {result}");
        let partial = (*word == "broken-off").then_some("half of it");
        assert_eq!(result["partial"].as_str(), partial, "{word}: {result}");
    }
}

/// The CLI retries ten times over minutes; the caller gets `TIMEOUT` with the API failure in the note.
#[test]
fn run_deadline_bounds_an_api_that_rejects_every_request() {
    let Some(fixture) = claude_project(NEW, "timeout_ms: 5000\n") else { return };
    let began = Instant::now();
    let report = fixture.run("helper", "FAIL 429\nSAY never");
    assert!(
        error_message(&report).starts_with("TIMEOUT: `helper` had no answer within 5000 ms"),
        "{report}"
    );
    let note = report["note"].as_str().unwrap_or_default();
    let expected = "The API did not take the request: rate_limit (HTTP 429); attempt ";
    // On a busy machine the second attempt may not have started before the deadline.
    assert!(note.starts_with(expected) || fixture.model.requests().len() < 2, "{report}");
    assert!(began.elapsed().as_secs() < 20);
}
