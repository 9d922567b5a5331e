//! Private MCP servers of an agent, over the control protocol: native tool names, own policy, invisible to others.

mod boundaries;
mod leases;
mod mcp_features;
mod properties;

use serde_json::{Value, json};
use test_case::test_case;

use crate::gateway_real::node_program;
use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::mcp::result_text;
use crate::support::text::{error_text, mask};

const API_KEY: &str = "sk-very-private-4711";

/// An agent whose server may read below `shelf/` and has an API key in its environment.
fn librarian_agent(fixture: &ClaudeContext, program: &str, more: &str) -> String {
    fixture.write("shelf/book.txt", "call me Ishmael");
    format!(
        "---\nname: librarian\ndescription: Reads books\n{more}policy:\n  mcp_servers: {{ books: {{ trust: true }} }}\n\
         mcp_servers:\n  - name: books\n    command: {program}\n    args: [shelf]\n    env: {{ API_KEY: \"${{LIBRARY_KEY}}\", CARD_TOKEN: card-0815-4711 }}\n\
         ---\nYou read books.\n"
    )
}

fn run_librarian(fixture: &ClaudeContext, prompt: &str) -> Value {
    let mut command = fixture.adjutant(["run", "librarian", prompt, "--json"]);
    crate::support::claude_context::report(&command.env("LIBRARY_KEY", API_KEY).output().unwrap())
}

fn read_book_script(fixture: &ClaudeContext) -> String {
    let path = fixture.root().join("shelf/book.txt");
    format!("CALL mcp__books__read_text_file {}", json!({ "path": path }))
}

#[test_case(NEW)]
#[test_case(OLD)]
fn an_agent_uses_its_own_server_by_its_native_names(version: &str) {
    let (Some(fixture), Some(program)) =
        (ClaudeContext::new(version), node_program("mcp-server-filesystem"))
    else {
        return;
    };
    fixture.agent("librarian", &librarian_agent(&fixture, &program, ""));
    let report = run_librarian(&fixture, &read_book_script(&fixture));
    assert_eq!(report["result"], r#"{"content":"call me Ishmael"}"#);
    let audit = fixture.audit_log();
    let calls = fixture.audit_entries().into_iter();
    let calls = calls.filter(|entry| entry["operation"] == "tools/call");
    let calls = calls.map(|entry| (entry["caller"]["known_by"].clone(), entry["tool"].clone()));
    assert_eq!(calls.collect::<Vec<_>>(), [(json!("pipe"), json!("read_text_file"))], "{audit}");
    for kept in [fixture.all_requests_text(), audit, report.to_string()] {
        assert!(!kept.contains(API_KEY), "the key left the server: {kept}");
    }
}

#[test]
fn tools_missing_from_the_agent_file_are_not_offered_and_rejected() {
    let (Some(fixture), Some(program)) =
        (ClaudeContext::new(NEW), node_program("mcp-server-filesystem"))
    else {
        return;
    };
    let tools = "tools: [\"mcp:books:read_text_file\"]\n";
    fixture.agent("librarian", &librarian_agent(&fixture, &program, tools));
    let target = fixture.root().join("shelf/new.txt");
    let write =
        format!("CALL mcp__books__write_file {}", json!({ "path": target, "content": "x" }));
    let report = run_librarian(&fixture, &format!("{write}\n{}", read_book_script(&fixture)));
    assert!(!target.exists(), "{report}");
    assert_eq!(
        report["result"],
        "<tool_use_error>Error: No such tool available: \
         mcp__books__write_file</tool_use_error>\n{\"content\":\"call me Ishmael\"}"
    );
    let offered = fixture.model.requests()[0].body["tools"].to_string();
    assert!(
        offered.contains("mcp__books__read_text_file")
            && !offered.contains("mcp__books__write_file"),
        "{offered}"
    );
}

#[test]
fn server_that_cannot_start_fails_the_run_before_its_first_turn() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let program = "/no/such/server";
    fixture.agent("librarian", &librarian_agent(&fixture, program, ""));
    let report = run_librarian(&fixture, "SAY hello");
    assert_eq!(report["error"]["code"], "SERVER_UNAVAILABLE", "{report}");
    assert_eq!(
        mask(&error_text(&report)),
        "SERVER_UNAVAILABLE: `librarian` cannot start: server `books` is unavailable: there is \
         no program `/no/such/server`: install it, or name another. Look at `mcp_servers` and \
         `tools` in [ROOT]/agents/librarian/agent.md."
    );
    assert!(fixture.model.requests().is_empty(), "the model was asked");
    let optional = librarian_agent(&fixture, program, "")
        .replace("    args:", "    optional: true\n    args:");
    fixture.agent("librarian", &optional);
    let report = run_librarian(&fixture, "SAY hello");
    assert_eq!(report["result"], "hello", "{report}");
    assert_eq!(
        report["note"],
        "It ran without an optional server: server `books` is unavailable: there is no program \
         `/no/such/server`: install it, or name another."
    );
}

#[test]
fn d5_private_server_is_invisible_and_unreachable_for_other_callers() {
    let (Some(fixture), Some(program)) =
        (ClaudeContext::new(NEW), node_program("mcp-server-filesystem"))
    else {
        return;
    };
    fixture.agent("librarian", &librarian_agent(&fixture, &program, ""));
    fixture.write(".mcp.json", r#"{"mcpServers":{"other":{"command":"true"}}}"#);
    fixture.write(".mcp-gateway-rules.json", r#"{"agents":{"main":{"allow":{"servers":["*"]}}}}"#);
    let mut command = fixture.adjutant(["serve"]);
    command.env("LIBRARY_KEY", API_KEY);
    let mut client = crate::support::mcp::McpClient::connect(command);
    let script = read_book_script(&fixture);
    let used =
        client.call_tool("run_subagent", json!({ "agent_name": "librarian", "prompt": script }));
    assert!(result_text(&used).contains("Ishmael"), "the private server is up: {used}");
    let listed = client.call_tool("list_servers", json!({ "agent_id": "main" }));
    assert!(!listed.to_string().contains("books"), "{listed}");
    for name in ["books", "Books", "librarian/books", "librarian:books", "*"] {
        let arguments =
            json!({ "agent_id": "main", "server": name, "tool": "read_text_file", "args": {} });
        let refused = client.call_tool("execute_tool", arguments);
        assert_eq!(refused["isError"], true, "{name}: {refused}");
        let tools =
            client.call_tool("get_server_tools", json!({ "agent_id": "main", "server": name }));
        assert!(!tools.to_string().contains("read_text_file"), "{name}: {tools}");
    }
}

#[test]
fn e1_secrets_of_a_private_server_are_redacted_from_the_answer() {
    let (Some(fixture), Some(program)) =
        (ClaudeContext::new(NEW), node_program("mcp-server-filesystem"))
    else {
        return;
    };
    fixture.agent("librarian", &librarian_agent(&fixture, &program, ""));
    let report = run_librarian(
        &fixture,
        &format!("SAY the key is {API_KEY} with card-0815-4711, believe me"),
    );
    assert_eq!(report["result"], "the key is [API_KEY] with [CARD_TOKEN], believe me", "{report}");
    assert_eq!(
        report["note"],
        "The answer held a secret of the agent's servers; its name stands in its place."
    );
}

#[test]
fn misspelt_shared_server_fails_before_the_first_turn_and_suggests_a_name() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    fixture.agent(
        "librarian",
        "---\nname: librarian\ndescription: Reads books\nmcp_servers: [bokos]\n---\nYou read books.\n",
    );
    let servers = r#"{"mcpServers":{"books":{"command":"true"},"bokos2":{"command":"true"}}}"#;
    fixture.write(".mcp.json", servers);
    let rules = r#"{"agents":{"librarian":{"allow":{"servers":["books"]}}}}"#;
    fixture.write(".mcp-gateway-rules.json", rules);
    let report = run_librarian(&fixture, "SAY hello");
    assert_eq!(report["error"]["code"], "SERVER_UNAVAILABLE", "{report}");
    let error = &error_text(&report);
    assert_eq!(
        mask(error),
        "SERVER_UNAVAILABLE: `librarian` cannot start: server `bokos` is unavailable: no shared \
         server has that name; did you mean `books`?. Look at `mcp_servers` and `tools` in \
         [ROOT]/agents/librarian/agent.md."
    );
    assert!(!error.contains("bokos2"), "a name that it may not see: {error}");
    assert!(fixture.model.requests().is_empty(), "the model was asked");
}
