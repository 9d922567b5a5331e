//! Tools of a server that nobody trusts: a rule, or a person, or nothing.

use serde_json::json;
use test_case::test_case;

use super::{audit, calls};
use crate::gateway::faulty;
use crate::support::mcp::McpClient;
use crate::support::stage::{NEW, OLD, Stage};

/// An agent with a server of its own that its file does not trust.
fn stage(version: &str, more: &str) -> Option<Stage> {
    let stage = Stage::new(version)?;
    let text = format!(
        "---\nname: user\ndescription: Uses it\n{more}mcp_servers:\n  own: {{ command: {} }}\n---\nYou use it.\n",
        faulty()
    );
    stage.context.agent("user", &text);
    Some(stage)
}

const TWICE: &str = "CALL mcp__own__pid {}\nCALL mcp__own__pid {}";

#[test_case(NEW)]
#[test_case(OLD)]
fn without_a_terminal_it_is_denied_and_said(version: &str) {
    let Some(stage) = stage(version, "") else { return };
    let report = stage.run("user", "CALL mcp__own__pid {}");
    let rule = report["denials"][0]["rule"].as_str().unwrap_or_default();
    for part in ["its server is not trusted", "`adjutant run` has no terminal"] {
        assert!(rule.contains(part), "{part} is missing: {report}");
    }
    assert!(stage.told().contains("its server is not trusted"), "the agent is told");
    let lines = audit(&stage.context);
    assert_eq!((&lines[0]["rule"], lines.len()), (&json!("nobody"), 1), "{lines:?}");
    let log = std::fs::read_to_string(stage.context.root().join("data/audit.jsonl")).unwrap();
    assert!(!log.contains("\"tools/call\""), "nothing reached the server: {log}");
}

#[test]
fn a_rule_is_enough() {
    let Some(stage) = stage(NEW, "permissions: { allow: [mcp__own__pid] }\n") else { return };
    let report = stage.run("user", "CALL mcp__own__pid {}");
    assert!(report["result"].as_str().is_some_and(|pid| pid.parse::<u32>().is_ok()), "{report}");
}

#[test]
fn a_person_is_enough_and_is_asked_once_for_the_run() {
    let Some(stage) = stage(NEW, "") else { return };
    let mut client = McpClient::connect_asking(stage.adjutant(["serve"]));
    let id = client.begin("tools/call", calls("user", TWICE));
    let question = client.question("its server is not trusted");
    let message = question["params"]["message"].as_str().unwrap();
    assert!(message.contains("Tool: mcp__own__pid"), "{message}");
    client.reply(&question, "allow_for_run");
    let result = client.answer(id);
    assert!(result["structuredContent"].get("denials").is_none(), "{result}");
    let lines = audit(&stage.context);
    let rules: Vec<&str> = lines.iter().filter_map(|line| line["rule"].as_str()).collect();
    assert_eq!(rules, ["allow_for_run", "allowed_for_run"], "{lines:?}");
}
