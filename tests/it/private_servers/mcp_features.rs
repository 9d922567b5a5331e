//! MCP features beyond tool calls, over the control protocol: progress, cancellation, list changes, resources, prompts.

use serde_json::{Value, json};
use test_case::test_case;

use crate::gateway::faulty;
use crate::gateway::mock_http_server::{MockHttpServer, legacy_sse};
use crate::gateway_real::node_program;
use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::fake_claude::fake_claude;
use crate::support::idle_processes::{call_agent, wait_for_idle_process};
use crate::support::mcp::McpClient;
use crate::support::wait::wait_until;

/// An agent with one trusted server `own`.
fn agent_file(name: &str, program: &str, arguments: &str, more: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Has a server\npolicy:\n  mcp_servers: {{ own: {{ trust: true }} }}\n\
         {more}mcp_servers:\n  own: {{ command: {program}, args: [{arguments}] }}\n---\nYou use it.\n"
    )
}

fn start_call(client: &mut McpClient, agent: &str, prompt: &str) -> u64 {
    let arguments = json!({ "agent_name": agent, "prompt": prompt });
    let meta = json!({ "progressToken": "p" });
    client.send_request(
        "tools/call",
        json!({ "name": "run_subagent", "arguments": arguments, "_meta": meta }),
    )
}

#[test_case(NEW)]
#[test_case(OLD)]
fn progress_of_a_tool_reaches_the_caller_of_the_run(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture.agent("worker", &agent_file("worker", &faulty(), "good", ""));
    let mut client = fixture.serve();
    let call = start_call(&mut client, "worker", "CALL mcp__own__progress {}");
    let answer = client.answer(call);
    assert_eq!(answer["structuredContent"]["result"], "done", "{answer}");
    let mut notifications = client.notifications.iter();
    let is_progress = |told: &Value| told["params"]["message"] == "own: 5 of 5 step 5 · 1 turn";
    assert!(notifications.any(is_progress), "{:#?}", client.notifications);
}

#[test_case(NEW)]
#[test_case(OLD)]
fn cancelling_a_run_cancels_its_call_downstream(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture.agent("worker", &agent_file("worker", &faulty(), "good", ""));
    let mut client = fixture.serve();
    let call = start_call(&mut client, "worker", "CALL mcp__own__sleep {\"ms\": 600000}");
    // Wait until the server has the call: before that there is nothing to cancel.
    client.wait_for_notification(|message| message.to_string().contains("own: 1 asleep"));
    client.notify("notifications/cancelled", json!({ "requestId": call, "reason": "enough" }));
    wait_until("the entry of the call", || {
        let mut entries = fixture.audit_entries().into_iter();
        entries.find(|entry| entry["code"] == "CANCELLED")
    });
    let asked = start_call(&mut client, "worker", "CALL mcp__own__cancelled {}");
    let answer = client.answer(asked);
    assert_eq!(answer["structuredContent"]["result"], "1", "{answer}");
}

/// 2.1.197 receives the notification too, but does not list the tools again.
#[test]
fn tool_added_during_a_run_can_be_called() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    fixture.agent("worker", &agent_file("worker", &faulty(), "grows", ""));
    let echo = "CALL mcp__own__echo {}\n".repeat(3);
    let script = format!("CALL mcp__own__announce {{}}\n{echo}CALL mcp__own__late {{}}");
    let report = fixture.run("worker", &script);
    let results = report["result"].as_str().unwrap_or_default();
    assert!(results.ends_with("\nlate"), "{report}");
    let offered = |request: usize| fixture.model.requests()[request].body["tools"].to_string();
    assert!(!offered(0).contains("mcp__own__late"), "{}", offered(0));
}

#[test_case(NEW)]
#[test_case(OLD)]
fn images_structured_results_and_resources_arrive(version: &str) {
    let (Some(fixture), Some(program)) =
        (ClaudeContext::new(version), node_program("mcp-server-everything"))
    else {
        return;
    };
    let tools = "tools: [\"builtin:ReadMcpResourceTool\", \"builtin:ListMcpResourcesTool\", \"mcp:own:*\"]\n\
                 permissions: { allow: [ReadMcpResourceTool, ListMcpResourcesTool] }\n";
    fixture.agent("worker", &agent_file("worker", &program, "stdio", tools));
    let script = "CALL mcp__own__get-tiny-image {}\n\
                  CALL mcp__own__get-structured-content {\"location\": \"Chicago\"}\n\
                  CALL ListMcpResourcesTool {\"server\": \"own\"}\n\
                  CALL ReadMcpResourceTool {\"server\": \"own\", \"uri\": \"demo://resource/dynamic/text/1\"}";
    let report = fixture.run("worker", script);
    let told = fixture.all_requests_text();
    for sign in ["\"type\":\"image\"", "temperature", "demo://resource/static", "Resource 1: "] {
        assert!(told.contains(sign), "{sign} is missing: {report}\n{told}");
    }
    let entries = fixture.audit_entries();
    let read = entries.iter().find(|entry| entry["operation"] == "resources/read").expect("a read");
    assert_eq!(read["run_id"], report["run_id"], "{read}");
    let mut ids = entries.iter().filter_map(|entry| entry["call_id"].as_str());
    assert!(ids.any(|id| id.starts_with("toolu_")), "{entries:#?}");
}

/// Neither version of `claude` lists prompts of SDK servers, so Adjutant expands the prompt command.
#[test_case(NEW)]
#[test_case(OLD)]
fn prompt_command_at_the_start_of_a_task_is_expanded(version: &str) {
    let (Some(fixture), Some(program)) =
        (ClaudeContext::new(version), node_program("mcp-server-everything"))
    else {
        return;
    };
    fixture.agent("worker", &agent_file("worker", &program, "stdio", ""));
    let report = fixture.run("worker", "/mcp__own__args-prompt Paris Île de France");
    assert!(report.get("note").is_none(), "{report}");
    let told = fixture.all_requests_text();
    assert!(told.contains("weather in Paris, Île de France?"), "{told}");
    assert!(!told.contains("/mcp__own"), "{told}");
    let report = fixture.run("worker", "/mcp__own__args-promt Paris");
    let note = report["note"].as_str().unwrap_or_default();
    assert_eq!(
        note,
        "The prompt of a server could not be put in: server `own` is unavailable: it has no \
         prompt `args-promt`; is `args-prompt` meant?."
    );
    let entries = fixture.audit_entries();
    let gets = entries.iter().filter(|entry| entry["operation"] == "prompts/get");
    assert_eq!(gets.count(), 1, "{entries:#?}");
}

/// The expanded text is plain text for the agent, even if it looks like a command and the turn is retried.
#[test]
fn expanded_server_prompt_is_not_parsed_as_a_command() {
    let context = TestContext::new();
    let once = context.root().join("crashed");
    let prompt =
        format!("/mcp__own__greet again\\nFAKE once {} crash\\nFAKE result right", once.display());
    let own = format!("own: {{ command: {}, args: [good, \"{prompt}\"] }}", faulty());
    let head = "name: helper\ndescription: Helps\nsession: true";
    context.agent("helper", &format!("---\n{head}\nmcp_servers:\n  {own}\n---\nHelp.\n"));
    let mut command = context.adjutant(["serve"]);
    command.env("ADJUTANT_CLAUDE", fake_claude());
    let mut server = McpClient::connect(command);
    call_agent(&mut server, "helper", "FAKE result first");
    wait_for_idle_process(&context);
    let answer = call_agent(&mut server, "helper", "/mcp__own__greet");
    assert_eq!((&answer["result"], answer.get("note")), (&json!("right"), None), "{answer}");
    assert!(once.exists(), "the turn was repeated");
    let audit = context.audit_entries();
    let asked = audit.iter().filter(|line| line["operation"] == "prompts/get").count();
    assert_eq!(asked, 1, "{audit:#?}");
}

#[test]
fn private_server_over_http_sse_is_reachable() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let far = MockHttpServer::start(legacy_sse("/messages?session=1"));
    let own = format!("  own: {{ type: sse, url: \"{}\" }}", far.url("/sse"));
    let text = agent_file("worker", "x", "", "").replace("  own: { command: x, args: [] }", &own);
    fixture.agent("worker", &text);
    let report = fixture.run("worker", "CALL mcp__own__who {\"a\": 1}");
    assert_eq!(report["result"], r#"{"n":0.1}"#, "{report}");
    let began = &far.requests()[0];
    assert_eq!((began.method.as_str(), began.path.as_str()), ("GET", "/sse"));
}
