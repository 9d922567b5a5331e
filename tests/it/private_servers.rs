//! MCP servers of an agent's own, through its pipe: native names, its own policy, nobody else's business.

mod boundaries;
mod leases;
#[path = "private_servers/mcp_features.rs"]
mod pipe;
mod properties;

use serde_json::{Value, json};
use test_case::test_case;

use crate::gateway_real::node_program;
use crate::support::mcp::text;
use crate::support::stage::{NEW, OLD, Stage};

const SECRET: &str = "sk-very-private-4711";

/// An agent whose server may read below `shelf/`, with a key in the server's environment.
fn librarian(stage: &Stage, program: &str, more: &str) -> String {
    stage.context.write("shelf/book.txt", "call me Ishmael");
    format!(
        "---\nname: librarian\ndescription: Reads books\n{more}policy:\n  mcp_servers: {{ books: {{ trust: true }} }}\n\
         mcp_servers:\n  - name: books\n    command: {program}\n    args: [shelf]\n    env: {{ API_KEY: \"${{LIBRARY_KEY}}\", CARD_TOKEN: card-0815-4711 }}\n\
         ---\nYou read books.\n"
    )
}

fn run(stage: &Stage, prompt: &str) -> Value {
    let mut command = stage.adjutant(["run", "librarian", prompt, "--json"]);
    crate::support::stage::report(&command.env("LIBRARY_KEY", SECRET).output().unwrap())
}

fn read(stage: &Stage) -> String {
    let path = stage.context.root().join("shelf/book.txt");
    format!("CALL mcp__books__read_text_file {}", json!({ "path": path }))
}

#[test_case(NEW)]
#[test_case(OLD)]
fn an_agent_uses_its_own_server_by_its_native_names(version: &str) {
    let (Some(stage), Some(program)) = (Stage::new(version), node_program("mcp-server-filesystem"))
    else {
        return;
    };
    stage.context.agent("librarian", &librarian(&stage, &program, ""));
    let report = run(&stage, &read(&stage));
    assert!(
        report["result"].as_str().is_some_and(|text| text.contains("call me Ishmael")),
        "{report}"
    );
    let audit = std::fs::read_to_string(stage.context.root().join("data/audit.jsonl")).unwrap();
    assert!(audit.contains("\"known_by\":\"pipe\"") && audit.contains("read_text_file"), "{audit}");
    for kept in [stage.told(), audit, report.to_string()] {
        assert!(!kept.contains(SECRET), "the key left the server: {kept}");
    }
}

#[test]
fn what_its_file_does_not_name_does_not_exist_and_is_refused() {
    let (Some(stage), Some(program)) = (Stage::new(NEW), node_program("mcp-server-filesystem"))
    else {
        return;
    };
    let tools = "tools: [\"mcp:books:read_text_file\"]\n";
    stage.context.agent("librarian", &librarian(&stage, &program, tools));
    let target = stage.context.root().join("shelf/new.txt");
    let write =
        format!("CALL mcp__books__write_file {}", json!({ "path": target, "content": "x" }));
    let report = run(&stage, &format!("{write}\n{}", read(&stage)));
    assert!(!target.exists(), "{report}");
    assert!(report["result"].as_str().is_some_and(|text| text.contains("Ishmael")), "{report}");
    let offered = stage.model.requests()[0].body["tools"].to_string();
    assert!(
        offered.contains("mcp__books__read_text_file")
            && !offered.contains("mcp__books__write_file"),
        "{offered}"
    );
}

#[test]
fn a_server_that_cannot_start_fails_the_call_before_its_first_turn() {
    let Some(stage) = Stage::new(NEW) else { return };
    let program = "/no/such/server";
    stage.context.agent("librarian", &librarian(&stage, program, ""));
    let report = run(&stage, "SAY hello");
    assert_eq!(report["code"], "SERVER_UNAVAILABLE", "{report}");
    assert!(report["error"].as_str().is_some_and(|text| text.contains("books")), "{report}");
    assert!(stage.model.requests().is_empty(), "the model was asked");
    let optional =
        librarian(&stage, program, "").replace("    args:", "    optional: true\n    args:");
    stage.context.agent("librarian", &optional);
    let report = run(&stage, "SAY hello");
    assert_eq!(report["result"], "hello", "{report}");
    assert!(report["note"].as_str().is_some_and(|note| note.contains("books")), "{report}");
}

#[test]
fn d5_nobody_else_sees_or_reaches_a_private_server() {
    let (Some(stage), Some(program)) = (Stage::new(NEW), node_program("mcp-server-filesystem"))
    else {
        return;
    };
    stage.context.agent("librarian", &librarian(&stage, &program, ""));
    stage.context.write(".mcp.json", r#"{"mcpServers":{"other":{"command":"true"}}}"#);
    stage
        .context
        .write(".mcp-gateway-rules.json", r#"{"agents":{"main":{"allow":{"servers":["*"]}}}}"#);
    let mut command = stage.adjutant(["serve"]);
    command.env("LIBRARY_KEY", SECRET);
    let mut client = crate::support::mcp::McpClient::connect(command);
    let script = read(&stage);
    let used = client.call("run_subagent", json!({ "agent_name": "librarian", "prompt": script }));
    assert!(text(&used).contains("Ishmael"), "the private server is up: {used}");
    let listed = client.call("list_servers", json!({ "agent_id": "main" }));
    assert!(!listed.to_string().contains("books"), "{listed}");
    for name in ["books", "Books", "librarian/books", "librarian:books", "*"] {
        let arguments =
            json!({ "agent_id": "main", "server": name, "tool": "read_text_file", "args": {} });
        let refused = client.call("execute_tool", arguments);
        assert_eq!(refused["isError"], true, "{name}: {refused}");
        let tools = client.call("get_server_tools", json!({ "agent_id": "main", "server": name }));
        assert!(!tools.to_string().contains("read_text_file"), "{name}: {tools}");
    }
}

#[test]
fn e1_a_secret_of_its_server_does_not_leave_with_the_answer() {
    let (Some(stage), Some(program)) = (Stage::new(NEW), node_program("mcp-server-filesystem"))
    else {
        return;
    };
    stage.context.agent("librarian", &librarian(&stage, &program, ""));
    let report = run(&stage, &format!("SAY the key is {SECRET} with card-0815-4711, believe me"));
    assert_eq!(report["result"], "the key is [API_KEY] with [CARD_TOKEN], believe me", "{report}");
    assert!(report["note"].as_str().is_some_and(|note| note.contains("secret")), "{report}");
}

#[test]
fn a_shared_server_that_is_misspelt_fails_before_the_first_turn_with_the_nearest_name() {
    let Some(stage) = Stage::new(NEW) else { return };
    stage.context.agent(
        "librarian",
        "---\nname: librarian\ndescription: Reads books\nmcp_servers: [bokos]\n---\nYou read books.\n",
    );
    let servers = r#"{"mcpServers":{"books":{"command":"true"},"bokos2":{"command":"true"}}}"#;
    stage.context.write(".mcp.json", servers);
    let rules = r#"{"agents":{"librarian":{"allow":{"servers":["books"]}}}}"#;
    stage.context.write(".mcp-gateway-rules.json", rules);
    let report = run(&stage, "SAY hello");
    assert_eq!(report["code"], "SERVER_UNAVAILABLE", "{report}");
    let error = report["error"].as_str().unwrap();
    assert!(error.contains("`bokos`") && error.contains("did you mean `books`?"), "{error}");
    assert!(!error.contains("bokos2"), "a name that it may not see: {error}");
    assert!(stage.model.requests().is_empty(), "the model was asked");
}
