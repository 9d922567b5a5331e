//! Tools of an untrusted MCP server: allowed by a permission rule or a person, otherwise denied.

use serde_json::json;
use test_case::test_case;

use super::{approval_entries, run_subagent_params};
use crate::gateway::faulty;
use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::mcp::McpClient;

/// A project whose agent has its own MCP server, not trusted in the agent's file.
fn untrusted_context(version: &str, more: &str) -> Option<ClaudeContext> {
    let fixture = ClaudeContext::new(version)?;
    let text = format!(
        "---\nname: user\ndescription: Uses it\n{more}mcp_servers:\n  own: {{ command: {} }}\n---\nYou use it.\n",
        faulty()
    );
    fixture.agent("user", &text);
    Some(fixture)
}

const TWO_CALLS: &str = "CALL mcp__own__pid {}\nCALL mcp__own__pid {}";

#[test_case(NEW)]
#[test_case(OLD)]
fn without_a_terminal_the_call_is_denied_and_the_agent_is_told(version: &str) {
    let Some(fixture) = untrusted_context(version, "") else { return };
    let report = fixture.run("user", "CALL mcp__own__pid {}");
    assert_eq!(
        report["denials"][0]["rule"],
        "mcp__own__pid: its server is not trusted and no rule for `mcp__own__pid` in `permissions.allow` \
         of its agent.md allows it; nobody can be asked: `adjutant run` has no terminal"
    );
    assert!(fixture.all_requests_text().contains("its server is not trusted"), "the agent is told");
    let lines = approval_entries(&fixture.context);
    assert_eq!((&lines[0]["rule"], lines.len()), (&json!("nobody"), 1), "{lines:?}");
    let log = fixture.audit_log();
    assert!(!log.contains("\"tools/call\""), "nothing reached the server: {log}");
}

#[test]
fn a_permission_rule_allows_the_call() {
    let Some(fixture) = untrusted_context(NEW, "permissions: { allow: [mcp__own__pid] }\n") else {
        return;
    };
    let report = fixture.run("user", "CALL mcp__own__pid {}");
    assert!(report["result"].as_str().is_some_and(|pid| pid.parse::<u32>().is_ok()), "{report}");
}

#[test]
fn a_person_allows_the_tool_for_the_rest_of_the_run() {
    let Some(fixture) = untrusted_context(NEW, "") else { return };
    let mut client = McpClient::connect_with_elicitation(fixture.adjutant(["serve"]));
    let id = client.send_request("tools/call", run_subagent_params("user", TWO_CALLS));
    let question = client.wait_for_elicitation("its server is not trusted");
    let message = question["params"]["message"].as_str().unwrap();
    insta::assert_snapshot!(message, @r"
    The subagent `user` asks for approval.

    Tool: mcp__own__pid
    Arguments: {}
    Why it asks: its server is not trusted and no rule for `mcp__own__pid` in `permissions.allow` of its agent.md allows it.

    «Allow for this run» covers every call of `mcp__own__pid`, whatever its arguments, until this run is over. No answer within 120 s is a no.
    ");
    client.answer_elicitation(&question, "allow_for_run");
    let result = client.answer(id);
    assert!(result["structuredContent"].get("denials").is_none(), "{result}");
    let lines = approval_entries(&fixture.context);
    let rules: Vec<&str> = lines.iter().filter_map(|line| line["rule"].as_str()).collect();
    assert_eq!(rules, ["allow_for_run", "allowed_for_run"], "{lines:?}");
}
