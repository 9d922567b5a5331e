//! Gateway permissions and the identity of callers.

use serde_json::{Value, json};
use test_case::test_case;

use super::{GatewayContext, call_tool_text, error_code, faulty};
use crate::support::mcp::{McpClient, result_text};
use crate::support::text::mask;
use crate::support::wait::wait_until;

#[test]
fn d2_denied_servers_and_tools_are_hidden_and_calls_never_reach_a_server() {
    let fixture = GatewayContext::new(
        &json!({ "good": { "command": faulty() }, "hidden": { "command": faulty() } }),
    );
    let mut client = fixture.connect();
    let servers = client.call_tool("list_servers", json!({ "agent_id": "guest" }));
    assert_eq!(
        servers["structuredContent"],
        json!({ "result": [{ "name": "good", "description": null }] })
    );
    let tools =
        client.call_tool("get_server_tools", json!({ "agent_id": "guest", "server": "good" }));
    assert_eq!(tools["structuredContent"]["total_available"], 1, "no count of what it may not see");
    let all = client.call_tool("get_server_tools", json!({ "agent_id": "dev", "server": "good" }));
    for tool in all["structuredContent"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        if name == "die" {
            continue;
        }
        let arguments =
            json!({ "agent_id": "guest", "server": "good", "tool": name, "timeout_ms": 2_000 });
        let result = client.call_tool("execute_tool", arguments);
        let denied = result_text(&result).starts_with("DENIED_BY_POLICY");
        assert_eq!(denied, name != "echo", "{name}: {result}");
        let audit = fixture.audit_entries();
        let line = audit.last().unwrap();
        let decision = if denied { "deny" } else { "allow" };
        assert_eq!((&line["tool"], &line["decision"]), (&json!(name), &json!(decision)), "{line}");
    }
    assert_eq!(
        call_tool_text(&mut client, "good", "count"),
        "2",
        "what is denied never reaches the server"
    );
    for hidden in ["hidden", "Good", "good ", "nobody"] {
        let arguments = json!({ "agent_id": "guest", "server": hidden, "tool": "echo" });
        assert_eq!(error_code(&client.call_tool("execute_tool", arguments)), "DENIED_BY_POLICY");
    }
}

#[test]
fn a_denial_names_the_rule_and_its_place() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    let arguments = json!({ "agent_id": "guest", "server": "good", "tool": "pid" });
    let result = client.call_tool("execute_tool", arguments);
    insta::assert_snapshot!(result_text(&result), @"DENIED_BY_POLICY: agent `guest` may not use tool `pid` of server `good`: the list of allowed tools does not have it (`agents.guest.allow.tools.good` in .mcp-gateway-rules.json line 3). Call list_servers and get_server_tools to see what is allowed.");
}

const STRICT: &str = r#"{"agents": {"dev": {"allow": {"servers": ["*"]}}}}"#;
const OPEN: &str = r#"{"agents": {"dev": {"allow": {"servers": ["*"]}}}, "defaults": {"deny_on_missing_agent": false}}"#;
const OPEN_DEFAULT: &str = r#"{"agents": {"default": {"allow": {"servers": ["*"]}}}, "defaults": {"deny_on_missing_agent": false}}"#;

#[test_case(STRICT, &json!("dev"), None, None; "given and known")]
#[test_case(STRICT, &json!("nobody"), None, Some("INVALID_AGENT_ID"); "given and unknown")]
#[test_case(OPEN, &json!("nobody"), None, Some("INVALID_AGENT_ID"); "c5 given and unknown where missing is allowed")]
#[test_case(STRICT, &Value::Null, Some("dev"), Some("INVALID_AGENT_ID"); "missing, whatever else is set")]
#[test_case(OPEN, &json!(""), Some("dev"), None; "missing with a fallback")]
#[test_case(OPEN, &Value::Null, Some("nobody"), Some("FALLBACK_AGENT_NOT_IN_RULES"); "missing with an unknown fallback")]
#[test_case(OPEN_DEFAULT, &Value::Null, None, None; "missing with a default")]
#[test_case(OPEN, &Value::Null, None, Some("NO_FALLBACK_CONFIGURED"); "missing with nothing")]
fn the_caller_is_resolved_from_agent_id_or_fallback(
    rules: &str,
    agent_id: &Value,
    fallback: Option<&str>,
    refused: Option<&str>,
) {
    let fixture = GatewayContext::with(&["good"]);
    fixture.rules(rules);
    let mut command = fixture.command();
    if let Some(fallback) = fallback {
        command.env("GATEWAY_DEFAULT_AGENT", fallback);
    }
    let mut client = McpClient::connect(command);
    let result = client.call_tool("list_servers", json!({ "agent_id": agent_id }));
    match refused {
        Some(expected) => assert_eq!(error_code(&result), expected),
        None => assert_eq!(result["structuredContent"]["result"][0]["name"], "good", "{result}"),
    }
}

#[test]
fn without_rules_every_call_is_denied() {
    let fixture = GatewayContext::with(&["good"]);
    std::fs::remove_file(fixture.root().join(".mcp-gateway-rules.json")).unwrap();
    let mut client = fixture.connect();
    let result = client.call_tool("list_servers", json!({ "agent_id": "dev" }));
    assert_eq!(error_code(&result), "INVALID_AGENT_ID");
}

#[test_case(Some("{"), "the rules `[ROOT]/.mcp-gateway-rules.json` cannot be read, so nobody is allowed anything: line 1: this is no JSON: EOF while parsing an object (column 1)", "A person must mend the file; `adjutant check` shows what is wrong."; "broken")]
#[test_case(Some(r#"{"agents": {"dev": {"alow": {}}}}"#), "the rules `[ROOT]/.mcp-gateway-rules.json` cannot be read, so nobody is allowed anything: line 1: unknown key `alow`", "A person must mend the file; `adjutant check` shows what is wrong."; "misspelt")]
#[test_case(None, "there are no rules (`[ROOT]/.mcp-gateway-rules.json`), so nobody is allowed anything", "A person must write them; they count from then on."; "missing")]
fn missing_and_invalid_rules_are_reported_with_their_cause(
    rules: Option<&str>,
    reason: &str,
    way_out: &str,
) {
    let fixture = GatewayContext::with(&["good"]);
    let path = fixture.root().join(".mcp-gateway-rules.json");
    match rules {
        Some(rules) => fixture.rules(rules),
        None => std::fs::remove_file(&path).unwrap(),
    }
    let mut command = fixture.command();
    command.env("GATEWAY_DEBUG", "true").env("GATEWAY_DEFAULT_AGENT", "dev");
    let mut client = McpClient::connect(command);
    for agent_id in [json!("dev"), Value::Null] {
        let result = client.call_tool("list_servers", json!({ "agent_id": agent_id }));
        let expected = format!("INVALID_AGENT_ID: {reason}. {way_out}");
        assert_eq!(
            (result["isError"].as_bool(), mask(result_text(&result))),
            (Some(true), expected)
        );
    }
    let status = client.call_tool("get_gateway_status", json!({}))["structuredContent"].clone();
    assert_eq!(mask(status["message"].as_str().unwrap()), reason);
    let report = &status["reload_status"]["gateway_rules"];
    assert_eq!(report["last_error"].is_string(), rules.is_some(), "{status:#}");
    assert_eq!(status["config_paths"]["gateway_rules"], json!(path));
    assert_eq!(status["policy_state"]["total_agents"], 0);
    for (field, empty) in
        [("available_servers", json!([])), ("servers", json!({})), ("changed_tools", json!({}))]
    {
        assert_eq!(status[field], empty, "{status:#}");
    }
    assert!(!status.to_string().contains("good"), "no server is named: {status:#}");
    assert_eq!(status["metrics"]["agents"], json!({}), "{status:#}");
    fixture.rules(super::RULES);
    wait_until("the rules", || {
        let result = client.call_tool("list_servers", json!({ "agent_id": "dev" }));
        (result["isError"] != true).then_some(())
    });
    let refused = client.call_tool("get_gateway_status", json!({}));
    assert_eq!(error_code(&refused), "INVALID_AGENT_ID", "with rules an agent is needed again");
}

#[test]
fn the_log_explains_the_effect_of_invalid_rules() {
    let fixture = GatewayContext::with(&["good"]);
    fixture.rules("{");
    let command = fixture.command();
    let log = fixture.root().join("log.txt");
    let mut client = McpClient::connect_logging(command, std::fs::File::create(&log).unwrap());
    client.call_tool("list_servers", json!({ "agent_id": "dev" }));
    let read = || std::fs::read_to_string(&log).unwrap();
    let said = read();
    assert_eq!(
        mask(&said),
        "[TIME] ERROR adjutant::gateway::config::active: [ROOT]/.mcp-gateway-rules.json: line \
         1: this is no JSON: EOF while parsing an object (column 1); nobody is allowed \
         anything\n"
    );
    assert!(!said.contains("last good version"), "there is none: {said}");
    fixture.rules(super::RULES);
    wait_until("the rules", || {
        let result = client.call_tool("list_servers", json!({ "agent_id": "dev" }));
        (result["isError"] != true).then_some(())
    });
    fixture.rules("{");
    wait_until("the log", || read().contains("the last good version stays in force").then_some(()));
}

#[test]
fn the_status_reports_problems() {
    let broken = json!({ "command": "" });
    let fixture = GatewayContext::new(&json!({ "good": { "command": faulty() }, "odd": broken }));
    let mut command = fixture.command();
    command.env("GATEWAY_DEBUG", "true");
    let mut client = McpClient::connect(command);
    let mut message = |agent: &str| {
        let status = client.call_tool("get_gateway_status", json!({ "agent_id": agent }));
        status["structuredContent"]["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(message("dev"), "server `odd` cannot be used");
    assert_eq!(message("guest"), "all is well", "it may not know of the other server");
    fixture.write("data/tool-pins.json", "{");
    let said = message("guest");
    assert_eq!(
        mask(&said),
        "`[ROOT]/data/tool-pins.json` cannot be used: EOF while parsing an object at line 1 \
         column 1"
    );
    std::fs::remove_file(fixture.root().join("data/tool-pins.json")).unwrap();
    std::fs::remove_file(fixture.root().join(".mcp.json")).unwrap();
    wait_until("word of the missing file", || {
        message("dev").contains("there is no `.mcp.json`").then_some(())
    });
}

#[test]
fn the_status_tool_is_listed_only_in_debug_mode() {
    let fixture = GatewayContext::with(&["good", "dies"]);
    let mut client = fixture.connect();
    let names = |client: &mut McpClient| -> Vec<String> {
        let tools = client.request("tools/list", json!({}));
        tools["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&mut client), ["list_servers", "get_server_tools", "execute_tool"]);
    let mut command = fixture.command();
    command.env("GATEWAY_DEBUG", "YES");
    let mut client = McpClient::connect(command);
    assert_eq!(names(&mut client).len(), 4);
    call_tool_text(&mut client, "good", "echo");
    super::execute(&mut client, "dies", "echo", json!({}));
    let status =
        client.call_tool("get_gateway_status", json!({ "agent_id": "guest" }))["structuredContent"]
            .clone();
    assert_eq!(status["available_servers"], json!(["good"]), "only what the agent may see");
    let status =
        client.call_tool("get_gateway_status", json!({ "agent_id": "dev" }))["structuredContent"]
            .clone();
    assert_eq!(status["servers"]["good"][0]["state"], "connected", "{status:#}");
    assert_eq!(status["servers"]["dies"][0]["state"], "failed");
    assert_eq!(status["policy_state"]["agent_ids"], json!(["dev", "guest"]));
    assert_eq!(status["reload_status"]["mcp_config"]["success_count"], 1);
    assert_eq!(status["metrics"]["agents"]["dev"]["calls"], 2);
    assert_eq!(status["metrics"]["tools"]["good/echo"]["errors"], 0);
}
