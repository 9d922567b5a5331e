//! Resources and prompts through the gateway: those of the servers an agent may use, unchanged.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_case::test_case;

use super::{GatewayContext, call_tool_text};
use crate::gateway_real::node_program;
use crate::support::http::{
    HttpRequest, HttpServer, initialize_request, stateless_post, stateless_request,
};
use crate::support::mcp::{McpClient, result_text};

const FOR_DEV: &str = r#"{"agents": {"dev": {"allow": {"servers": ["one", "none"]}}},
    "defaults": {"deny_on_missing_agent": false}}"#;

/// Two servers of the same program, of which `dev` may use the first, and one that does not start.
fn fixture(program: &str) -> GatewayContext {
    let entry = json!({ "command": program, "args": ["stdio"] });
    let fixture = GatewayContext::new(
        &json!({ "none": { "command": "/does/not/exist" }, "one": entry, "two": entry }),
    );
    fixture.rules(FOR_DEV);
    fixture
}

fn as_dev(fixture: &GatewayContext, arguments: &str) -> Command {
    let mut command = fixture.context.adjutant([arguments]);
    command.env("GATEWAY_DEFAULT_AGENT", "dev");
    command
}

fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

#[test_case("gateway")]
#[test_case("serve")]
fn resources_and_prompts_are_forwarded_unchanged(command: &str) {
    let Some(program) = node_program("mcp-server-everything") else { return };
    let fixture = fixture(&program);
    let mut client = McpClient::start(as_dev(&fixture, command));
    let capabilities = client.initialize()["capabilities"].clone();
    assert!(capabilities["resources"].is_object() && capabilities["prompts"].is_object());
    let mut direct = Command::new(&program);
    direct.arg("stdio");
    let mut direct = McpClient::connect(direct);

    let mut both = |method: &str, params: Value| {
        (client.request(method, params.clone()), direct.request(method, params))
    };
    let (listed, expected) = both("resources/list", json!({}));
    assert_eq!(listed["resources"].to_string(), expected["resources"].to_string());
    let uri = listed["resources"][0]["uri"].clone();
    let (read, expected) = both("resources/read", json!({ "uri": uri }));
    assert!(read["contents"][0]["text"].is_string(), "{read}");
    assert_eq!(read.to_string(), expected.to_string());

    let (templates, expected) = both("resources/templates/list", json!({}));
    assert_eq!(templates.to_string(), expected.to_string());
    let template = templates["resourceTemplates"][0]["uriTemplate"].as_str().unwrap();
    let made = template.split('{').next().unwrap().to_owned() + "1";
    let (read, _) = both("resources/read", json!({ "uri": made }));
    assert_eq!(read["contents"][0]["uri"], made, "{read}");
    let (unknown, _) = both("resources/read", json!({ "uri": "nowhere://1" }));
    assert_eq!(unknown["error"]["code"], -32002, "{unknown}");

    let (prompts, expected) = both("prompts/list", json!({}));
    let prefixed: Vec<_> =
        names(&expected["prompts"], "name").iter().map(|name| format!("one/{name}")).collect();
    assert_eq!(names(&prompts["prompts"], "name"), prefixed);
    let got = client.request("prompts/get", json!({ "name": "one/simple-prompt" }));
    let expected = direct.request("prompts/get", json!({ "name": "simple-prompt" }));
    assert!(got["messages"].is_array(), "{got}");
    assert_eq!(got.to_string(), expected.to_string());
    let missing = client.request("prompts/get", json!({ "name": "one/nothing" }));
    assert!(missing["error"]["message"].as_str().unwrap().starts_with("NOT_FOUND"), "{missing}");
    let denied = client.request("prompts/get", json!({ "name": "two/simple-prompt" }));
    let said = denied["error"]["message"].as_str().unwrap();
    assert!(said.starts_with("DENIED_BY_POLICY"), "{denied}");
    assert_all_requests_audited(&fixture);
}

/// Asserts that every request has an audit entry, refused ones included.
fn assert_all_requests_audited(fixture: &GatewayContext) {
    let lines = fixture.audit_entries();
    let find = |operation: &str, decision: &str| {
        lines.iter().find(|line| {
            line["operation"] == operation
                && line["decision"] == decision
                && line["caller"]["name"] == "dev"
        })
    };
    assert_eq!(find("resources/read", "allow").unwrap()["server"], "one", "{lines:#?}");
    assert_eq!(find("prompts/get", "allow").unwrap()["server"], "one", "{lines:#?}");
    assert_eq!(find("prompts/get", "deny").unwrap()["server"], "two", "{lines:#?}");
    assert!(lines.iter().any(|line| line["operation"] == "resources/list"), "{lines:#?}");
    assert!(fixture.context.run(["audit", "--verify"]).status.success());
}

#[test]
fn without_an_agent_the_lists_are_empty() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    for (method, field) in LISTS {
        assert_eq!(client.request(method, json!({}))[field], json!([]));
    }
    let read = client.request("resources/read", json!({ "uri": "demo://1" }));
    assert_eq!(rpc_error_code(&read), "INVALID_AGENT_ID");
}

#[test]
fn without_a_usable_server_no_capability_is_announced() {
    let fixture = GatewayContext::with(&["good"]);
    fixture.rules(r#"{"agents": {"dev": {"allow": {"servers": ["another"]}}}}"#);
    let mut client = McpClient::start(fixture.command());
    let capabilities = client.initialize()["capabilities"].clone();
    assert!(capabilities.get("resources").is_none(), "{capabilities}");
    assert!(capabilities.get("prompts").is_none(), "{capabilities}");
}

const LISTS: [(&str, &str); 3] = [
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
    ("prompts/list", "prompts"),
];

/// Error code of a refused request.
fn rpc_error_code(answer: &Value) -> &str {
    let said = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
    said.split(':').next().unwrap()
}

/// `dev` may use `good`; only `all` may use `other`.
const TWO_AGENTS: &str = r#"{"agents": {"dev": {"allow": {"servers": ["good"]}}, "all": {"allow": {"servers": ["*"]}}}}"#;

#[test_case("gateway")]
#[test_case("serve")]
fn an_identified_agent_gets_the_resources_and_prompts_of_its_servers(command: &str) {
    let fixture = GatewayContext::with(&["good", "other"]);
    fixture.rules(TWO_AGENTS);
    let mut client = McpClient::start(fixture.context.adjutant([command]));
    let capabilities = client.initialize()["capabilities"].clone();
    assert!(capabilities["resources"].is_object() && capabilities["prompts"].is_object());
    let mut ask = |agent: Value, method: &str, mut params: Value| {
        params["_meta"] = json!({ "agent_id": agent });
        client.request(method, params)
    };
    let listed = ask(json!("dev"), "resources/list", json!({}));
    assert_eq!(names(&listed["resources"], "uri"), ["faulty://one"], "{listed}");
    let read = ask(json!("dev"), "resources/read", json!({ "uri": "faulty://one" }));
    let contents = json!([{ "uri": "faulty://one", "text": "the content", "extra": 1 }]);
    assert_eq!(read["contents"], contents, "{read}");
    let mut prompts =
        |agent: &str| names(&ask(json!(agent), "prompts/list", json!({}))["prompts"], "name");
    assert_eq!(prompts("dev"), ["good/greet"]);
    assert_eq!(prompts("all"), ["good/greet", "other/greet"]);
    let got = ask(json!("dev"), "prompts/get", json!({ "name": "good/greet" }));
    assert_eq!(got["messages"][0]["content"]["text"], "greet", "{got}");

    let denied = ask(json!("dev"), "prompts/get", json!({ "name": "other/greet" }));
    assert_eq!(rpc_error_code(&denied), "DENIED_BY_POLICY");
    for (method, _) in LISTS {
        assert_eq!(rpc_error_code(&ask(json!("nobody"), method, json!({}))), "INVALID_AGENT_ID");
    }
    let odd = ask(json!(7), "resources/list", json!({}));
    assert_eq!(rpc_error_code(&odd), "INVALID_ARGUMENT");
    assert_eq!(ask(json!(""), "resources/list", json!({}))["resources"], json!([]));
    let lines = fixture.audit_entries();
    let is_odd = |line: &&Value| line["code"] == "INVALID_ARGUMENT";
    let odd: Vec<&Value> = lines.iter().filter(is_odd).map(|line| &line["operation"]).collect();
    assert_eq!(odd, ["resources/list"], "a request that makes no sense has its line too");
    let by = |operation: &str, agent: &str, decision: &str| {
        lines.iter().any(|line| {
            let same = line["operation"] == operation && line["decision"] == decision;
            same && line["caller"]["name"] == agent
        })
    };
    assert!(by("resources/read", "dev", "allow") && by("prompts/get", "dev", "deny"), "{lines:#?}");
}

/// The token identifies the caller; `_meta` cannot claim another one.
#[test]
fn an_agent_that_claims_another_identity_is_refused() {
    let fixture = GatewayContext::with(&["good", "other"]);
    fixture.rules(TWO_AGENTS);
    let token = fixture.create_token("dev");
    let server = HttpServer::start(fixture.context.adjutant(["gateway", "--http", "127.0.0.1:0"]));
    let ask = |agent: &str| {
        let mut message = stateless_request(1, "prompts/list", json!({}));
        message["params"]["_meta"]["agent_id"] = json!(agent);
        let request = HttpRequest::post(&token, &message)
            .with_header("MCP-Protocol-Version", "2026-07-28")
            .with_header("Mcp-Method", "prompts/list");
        server.send(&request).message()
    };
    assert_eq!(names(&ask("dev")["result"]["prompts"], "name"), ["good/greet"]);
    assert_eq!(rpc_error_code(&ask("all")), "IDENTITY_MISMATCH");
}

fn announce(client: &mut McpClient, server: &str, args: Value) {
    let arguments =
        json!({ "agent_id": "dev", "server": server, "tool": "announce", "args": args });
    assert_eq!(result_text(&client.call_tool("execute_tool", arguments)), "announced");
}

#[test_case("gateway")]
#[test_case("serve")]
fn changes_of_tools_resources_and_prompts_are_announced(command: &str) {
    let fixture = GatewayContext::with(&["grows"]);
    let mut client = McpClient::start(fixture.context.adjutant([command]));
    let introduced = client.initialize();
    for list in ["tools", "resources", "prompts"] {
        assert_eq!(introduced["capabilities"][list]["listChanged"], true, "{introduced}");
    }
    for list in ["prompts", "resources", "tools"] {
        announce(&mut client, "grows", json!({ "list": list }));
        let method = format!("notifications/{list}/list_changed");
        client.wait_for_notification(|notification| notification["method"] == method);
    }
    let wanted = json!({ "agent_id": "dev", "server": "grows" });
    let tools = client.call_tool("get_server_tools", wanted)["structuredContent"]["tools"].clone();
    assert_eq!(names(&tools, "name"), ["announce", "echo", "late"]);
}

#[test]
fn changes_of_the_rules_are_announced() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    client.call_tool("list_servers", json!({ "agent_id": "dev" }));
    fixture.rules(r#"{"agents": {"dev": {"allow": {"servers": ["*"]}, "deny": {"tools": {"good": ["echo"]}}}}}"#);
    client.wait_for_notification(|notification| notification["method"] == TOOLS_CHANGED);
    fixture.rules("{}");
    client.wait_for_notification(|notification| notification["method"] == TOOLS_CHANGED);
}

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

#[test]
fn repeated_list_changes_are_coalesced() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = fixture.connect();
    call_tool_text(&mut client, "good", "pid");
    let began = Instant::now();
    announce(&mut client, "good", json!({ "list": "tools", "times": 5_000 }));
    announce(&mut client, "good", json!({ "list": "prompts" }));
    client.wait_for_notification(|notification| {
        notification["method"] == "notifications/prompts/list_changed"
    });
    let received = client
        .notifications
        .iter()
        .filter(|notification| notification["method"] == TOOLS_CHANGED)
        .count();
    let most = 2 + began.elapsed().as_millis() / 250;
    assert!((1..=most).contains(&(received as u128)), "{received} of {most}");
}

#[test]
fn a_subscription_delivers_only_what_it_asked_for() {
    let fixture = GatewayContext::with(&["good"]);
    let mut client = McpClient::start(fixture.command());
    let id = client.next_id();
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    client.send(&stateless_request(id, "subscriptions/listen", wanted));
    let method = "notifications/subscriptions/acknowledged";
    client.wait_for_notification(|notification| notification["method"] == method);
    for list in ["resources", "tools"] {
        let arguments = json!({ "agent_id": "dev", "server": "good", "tool": "announce", "args": { "list": list } });
        let id = client.next_id();
        let params = json!({ "name": "execute_tool", "arguments": arguments });
        client.send(&stateless_request(id, "tools/call", params));
        client.answer(id);
    }
    client.wait_for_notification(|notification| notification["method"] == TOOLS_CHANGED);
    assert_eq!(client.notifications, Vec::<Value>::new());
}

/// Messages that a client with an HTTP session receives, line by line.
fn http_notifications(server: &HttpServer, token: &str) -> impl Iterator<Item = String> + use<> {
    let begun = server.post(token, &initialize_request());
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let listen = HttpRequest::get("/mcp")
        .with_header("Authorization", &format!("Bearer {token}"))
        .with_header("Accept", "text/event-stream")
        .with_header("Mcp-Session-Id", &session);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(&listen.to_bytes()).unwrap();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let ready = HttpRequest::post(token, &ready).with_header("Mcp-Session-Id", &session);
    assert_eq!(server.send(&ready).status, 202);
    // Keep-alive comments arrive without end, so the iterator stops after 60 s.
    let end = Instant::now() + Duration::from_mins(1);
    BufReader::new(stream).lines().map_while(Result::ok).take_while(move |_| Instant::now() < end)
}

#[test_case("gateway")]
#[test_case("serve")]
fn over_http_list_changes_reach_only_agents_that_may_use_the_server(command: &str) {
    let fixture = GatewayContext::with(&["good", "other"]);
    fixture.rules(TWO_AGENTS);
    let (dev, all) = (fixture.create_token("dev"), fixture.create_token("all"));
    let server = HttpServer::start(fixture.context.adjutant([command, "--http", "127.0.0.1:0"]));
    let announce = |name: &str, list: &str| {
        let args = json!({ "list": list });
        let arguments = json!({ "server": name, "tool": "announce", "args": args });
        let params = json!({ "name": "execute_tool", "arguments": arguments });
        let answer = server.send(&stateless_post(&all, 1, "tools/call", params)).message();
        assert_eq!(result_text(&answer["result"]), "announced", "{answer}");
    };
    let changed = |line: &String| line.contains("list_changed");
    let mut dev_notifications = http_notifications(&server, &dev).filter(changed);
    let mut all_notifications = http_notifications(&server, &all).filter(changed);
    announce("other", "resources");
    assert_eq!(
        all_notifications.next().unwrap(),
        r#"data: {"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#
    );
    announce("other", "tools");
    assert_eq!(
        all_notifications.next().unwrap(),
        r#"data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#
    );
    announce("good", "prompts");
    let first = dev_notifications.next().unwrap();
    assert_eq!(first, r#"data: {"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#);
    announce("good", "tools");
    assert_eq!(
        dev_notifications.next().unwrap(),
        r#"data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#
    );
}
