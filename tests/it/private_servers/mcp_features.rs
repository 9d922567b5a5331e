//! What MCP has besides a call and its answer, through an agent's pipe.

use serde_json::{Value, json};
use test_case::test_case;

use crate::gateway::faulty;
use crate::gateway::http_server::{HttpServer, events};
use crate::gateway_real::node_program;
use crate::support::mcp::McpClient;
use crate::support::stage::{NEW, OLD, Stage};

/// An agent with one server `own`, whose tools it may use without asking.
fn agent(name: &str, program: &str, arguments: &str, more: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Has a server\npolicy:\n  mcp_servers: {{ own: {{ trust: true }} }}\n\
         {more}mcp_servers:\n  own: {{ command: {program}, args: [{arguments}] }}\n---\nYou use it.\n"
    )
}

/// Everything that a client heard about how its call goes.
fn heard(client: &McpClient) -> String {
    client.notifications.iter().map(Value::to_string).collect()
}

fn begin(client: &mut McpClient, agent: &str, prompt: &str) -> u64 {
    let arguments = json!({ "agent_name": agent, "prompt": prompt });
    let meta = json!({ "progressToken": "p" });
    client.begin(
        "tools/call",
        json!({ "name": "run_subagent", "arguments": arguments, "_meta": meta }),
    )
}

#[test_case(NEW)]
#[test_case(OLD)]
fn progress_reaches_the_agent_and_whoever_waits_for_it(version: &str) {
    let Some(stage) = Stage::new(version) else { return };
    stage.context.agent("worker", &agent("worker", &faulty(), "good", ""));
    let mut client = stage.serve();
    let call = begin(&mut client, "worker", "CALL mcp__own__progress {}");
    let answer = client.answer(call);
    assert_eq!(answer["structuredContent"]["result"], "done", "{answer}");
    assert!(heard(&client).contains("own: 5 of 5 step 5"), "{}", heard(&client));
}

#[test_case(NEW)]
#[test_case(OLD)]
fn a_call_that_is_taken_back_is_taken_back_from_the_server(version: &str) {
    let Some(stage) = Stage::new(version) else { return };
    stage.context.agent("worker", &agent("worker", &faulty(), "good", ""));
    let mut client = stage.serve();
    let call = begin(&mut client, "worker", "CALL mcp__own__sleep {\"ms\": 600000}");
    // Not before it is with the server: a call that is still on its way leaves nothing to take back.
    client.await_notification(|message| message.to_string().contains("own: 1 asleep"));
    client.notify("notifications/cancelled", json!({ "requestId": call, "reason": "enough" }));
    let log = stage.context.root().join("data/audit.jsonl");
    crate::gateway::until("the line of the call", || {
        let lines = std::fs::read_to_string(&log).ok()?;
        lines.lines().find(|line| line.contains("CANCELLED")).map(str::to_owned)
    });
    let asked = begin(&mut client, "worker", "CALL mcp__own__cancelled {}");
    let answer = client.answer(asked);
    assert_eq!(answer["structuredContent"]["result"], "1", "{answer}");
}

/// 2.1.197 hears of it too, and does not ask for the tools again.
#[test]
fn a_tool_that_appears_later_can_be_used() {
    let Some(stage) = Stage::new(NEW) else { return };
    stage.context.agent("worker", &agent("worker", &faulty(), "grows", ""));
    let echo = "CALL mcp__own__echo {}\n".repeat(3);
    let script = format!("CALL mcp__own__announce {{}}\n{echo}CALL mcp__own__late {{}}");
    let report = stage.run("worker", &script);
    let results = report["result"].as_str().unwrap_or_default();
    assert!(results.ends_with("\nlate"), "{report}");
    let offered = |request: usize| stage.model.requests()[request].body["tools"].to_string();
    assert!(!offered(0).contains("mcp__own__late"), "{}", offered(0));
}

#[test_case(NEW)]
#[test_case(OLD)]
fn images_structured_results_and_resources_arrive(version: &str) {
    let (Some(stage), Some(program)) = (Stage::new(version), node_program("mcp-server-everything"))
    else {
        return;
    };
    let tools = "tools: [\"builtin:ReadMcpResourceTool\", \"builtin:ListMcpResourcesTool\", \"mcp:own:*\"]\n\
                 permissions: { allow: [ReadMcpResourceTool, ListMcpResourcesTool] }\n";
    stage.context.agent("worker", &agent("worker", &program, "stdio", tools));
    let script = "CALL mcp__own__get-tiny-image {}\n\
                  CALL mcp__own__get-structured-content {\"location\": \"Chicago\"}\n\
                  CALL ListMcpResourcesTool {\"server\": \"own\"}\n\
                  CALL ReadMcpResourceTool {\"server\": \"own\", \"uri\": \"demo://resource/dynamic/text/1\"}";
    let report = stage.run("worker", script);
    let told = stage.told();
    for sign in ["\"type\":\"image\"", "temperature", "demo://resource/static", "Resource 1: "] {
        assert!(told.contains(sign), "{sign} is missing: {report}\n{told}");
    }
    let audit = std::fs::read_to_string(stage.context.root().join("data/audit.jsonl")).unwrap();
    assert!(audit.contains("\"operation\":\"resources/read\""), "{audit}");
    assert!(audit.contains("\"call_id\":\"toolu_"), "the call's id is in its line: {audit}");
    assert!(audit.contains("\"run_id\""), "{audit}");
}

/// `claude` asks a server at the end of its pipe for no prompts, in neither version: Adjutant puts them in.
#[test_case(NEW)]
#[test_case(OLD)]
fn a_task_may_begin_with_a_prompt_of_its_server(version: &str) {
    let (Some(stage), Some(program)) = (Stage::new(version), node_program("mcp-server-everything"))
    else {
        return;
    };
    stage.context.agent("worker", &agent("worker", &program, "stdio", ""));
    let report = stage.run("worker", "/mcp__own__args-prompt Paris Île de France");
    assert!(report.get("note").is_none(), "{report}");
    let told = stage.told();
    assert!(told.contains("weather in Paris, Île de France?"), "{told}");
    assert!(!told.contains("/mcp__own"), "{told}");
    let report = stage.run("worker", "/mcp__own__args-promt Paris");
    let note = report["note"].as_str().unwrap_or_default();
    assert!(note.contains("no prompt `args-promt`; is `args-prompt` meant?"), "{report}");
    let audit = std::fs::read_to_string(stage.context.root().join("data/audit.jsonl")).unwrap();
    assert_eq!(audit.matches("\"operation\":\"prompts/get\"").count(), 1, "{audit}");
}

#[test]
fn a_server_of_its_own_that_speaks_the_older_transport_is_reached() {
    let Some(stage) = Stage::new(NEW) else { return };
    let far = HttpServer::start(events("/messages?session=1"));
    let own = format!("  own: {{ type: sse, url: \"{}\" }}", far.url("/sse"));
    let text = agent("worker", "x", "", "").replace("  own: { command: x, args: [] }", &own);
    stage.context.agent("worker", &text);
    let report = stage.run("worker", "CALL mcp__own__who {\"a\": 1}");
    assert_eq!(report["result"], r#"{"n":0.1}"#, "{report}");
    let began = &far.requests()[0];
    assert_eq!((began.method.as_str(), began.path.as_str()), ("GET", "/sse"));
}
