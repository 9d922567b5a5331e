//! Resources and prompts through the gateway: those of the servers an agent may use, unchanged.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use test_case::test_case;

use super::{Stage, said};
use crate::gateway_real::node_program;
use crate::support::http::{HttpServer, Request, initialize, modern, modern_post};
use crate::support::mcp::{McpClient, text};

const FOR_DEV: &str = r#"{"agents": {"dev": {"allow": {"servers": ["one", "none"]}}},
    "defaults": {"deny_on_missing_agent": false}}"#;

/// Two servers of the same kind, of which `dev` may use the first, and one that does not start.
fn stage(program: &str) -> Stage {
    let entry = json!({ "command": program, "args": ["stdio"] });
    let stage = Stage::new(
        &json!({ "none": { "command": "/does/not/exist" }, "one": entry, "two": entry }),
    );
    stage.rules(FOR_DEV);
    stage
}

fn as_dev(stage: &Stage, arguments: &str) -> Command {
    let mut command = stage.context.adjutant([arguments]);
    command.env("GATEWAY_DEFAULT_AGENT", "dev");
    command
}

fn names(list: &Value, key: &str) -> Vec<String> {
    list.as_array().unwrap().iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

#[test_case("gateway")]
#[test_case("serve")]
fn resources_and_prompts_are_there_and_unchanged(command: &str) {
    let Some(program) = node_program("mcp-server-everything") else { return };
    let stage = stage(&program);
    let mut client = McpClient::start(as_dev(&stage, command));
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
    audited(&stage);
}

/// Every request left its line, refused ones too.
fn audited(stage: &Stage) {
    let log = std::fs::read_to_string(stage.context.root().join("data/audit.jsonl")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |operation: &str, decision: &str| {
        lines.iter().find(|line| {
            line["operation"] == operation && line["decision"] == decision && line["agent"] == "dev"
        })
    };
    assert_eq!(find("resources/read", "allow").unwrap()["server"], "one", "{log}");
    assert_eq!(find("prompts/get", "allow").unwrap()["server"], "one", "{log}");
    assert_eq!(find("prompts/get", "deny").unwrap()["server"], "two", "{log}");
    assert!(lines.iter().any(|line| line["operation"] == "resources/list"), "{log}");
    assert!(stage.context.run(["audit", "--verify"]).status.success());
}

#[test]
fn without_an_agent_the_lists_are_empty() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    for (method, field) in LISTS {
        assert_eq!(client.request(method, json!({}))[field], json!([]));
    }
    let read = client.request("resources/read", json!({ "uri": "demo://1" }));
    assert_eq!(refusal(&read), "INVALID_AGENT_ID");
}

#[test]
fn where_no_agent_may_use_any_server_nothing_is_announced() {
    let stage = Stage::with(&["good"]);
    stage.rules(r#"{"agents": {"dev": {"allow": {"servers": ["another"]}}}}"#);
    let mut client = McpClient::start(stage.command());
    let capabilities = client.initialize()["capabilities"].clone();
    assert!(capabilities.get("resources").is_none(), "{capabilities}");
    assert!(capabilities.get("prompts").is_none(), "{capabilities}");
}

const LISTS: [(&str, &str); 3] = [
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
    ("prompts/list", "prompts"),
];

/// The code of a refusal.
fn refusal(answer: &Value) -> &str {
    let said = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
    said.split(':').next().unwrap()
}

/// `good` is for `dev`, `other` for nobody but `all`.
const TWO_AGENTS: &str = r#"{"agents": {"dev": {"allow": {"servers": ["good"]}}, "all": {"allow": {"servers": ["*"]}}}}"#;

#[test_case("gateway")]
#[test_case("serve")]
fn an_agent_that_says_who_it_is_has_the_resources_and_prompts_of_its_servers(command: &str) {
    let stage = Stage::with(&["good", "other"]);
    stage.rules(TWO_AGENTS);
    let mut client = McpClient::start(stage.context.adjutant([command]));
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
    assert_eq!(refusal(&denied), "DENIED_BY_POLICY");
    for (method, _) in LISTS {
        assert_eq!(refusal(&ask(json!("nobody"), method, json!({}))), "INVALID_AGENT_ID");
    }
    let odd = ask(json!(7), "resources/list", json!({}));
    assert_eq!(refusal(&odd), "INVALID_ARGUMENT");
    assert_eq!(ask(json!(""), "resources/list", json!({}))["resources"], json!([]));
    let log = std::fs::read_to_string(stage.context.root().join("data/audit.jsonl")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_odd = |line: &&Value| line["error"] == "INVALID_ARGUMENT";
    let odd: Vec<&Value> = lines.iter().filter(is_odd).map(|line| &line["operation"]).collect();
    assert_eq!(odd, ["resources/list"], "a request that makes no sense has its line too");
    let by = |operation: &str, agent: &str, decision: &str| {
        lines.iter().any(|line| {
            let same = line["operation"] == operation && line["decision"] == decision;
            same && line["agent"] == agent
        })
    };
    assert!(by("resources/read", "dev", "allow") && by("prompts/get", "dev", "deny"), "{log}");
}

/// A token says who it is, and `_meta` cannot say otherwise.
#[test]
fn an_agent_that_says_it_is_somebody_else_is_refused() {
    let stage = Stage::with(&["good", "other"]);
    stage.rules(TWO_AGENTS);
    let token = stage.context.token("dev");
    let server = HttpServer::start(stage.context.adjutant(["gateway", "--http", "127.0.0.1:0"]));
    let ask = |agent: &str| {
        let mut message = modern(1, "prompts/list", json!({}));
        message["params"]["_meta"]["agent_id"] = json!(agent);
        let request = Request::post(&token, &message)
            .with("MCP-Protocol-Version", "2026-07-28")
            .with("Mcp-Method", "prompts/list");
        server.send(&request).message()
    };
    assert_eq!(names(&ask("dev")["result"]["prompts"], "name"), ["good/greet"]);
    assert_eq!(refusal(&ask("all")), "IDENTITY_MISMATCH");
}

fn announce(client: &mut McpClient, server: &str, args: Value) {
    let arguments =
        json!({ "agent_id": "dev", "server": server, "tool": "announce", "args": args });
    assert_eq!(text(&client.call("execute_tool", arguments)), "announced");
}

#[test_case("gateway")]
#[test_case("serve")]
fn a_change_of_tools_resources_or_prompts_is_told(command: &str) {
    let stage = Stage::with(&["grows"]);
    let mut client = McpClient::start(stage.context.adjutant([command]));
    let introduced = client.initialize();
    for list in ["tools", "resources", "prompts"] {
        assert_eq!(introduced["capabilities"][list]["listChanged"], true, "{introduced}");
    }
    for list in ["prompts", "resources", "tools"] {
        announce(&mut client, "grows", json!({ "list": list }));
        let method = format!("notifications/{list}/list_changed");
        client.await_notification(|news| news["method"] == method);
    }
    let wanted = json!({ "agent_id": "dev", "server": "grows" });
    let tools = client.call("get_server_tools", wanted)["structuredContent"]["tools"].clone();
    assert_eq!(names(&tools, "name"), ["announce", "echo", "late"]);
}

#[test]
fn a_change_of_the_rules_is_told() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    client.call("list_servers", json!({ "agent_id": "dev" }));
    stage.rules(r#"{"agents": {"dev": {"allow": {"servers": ["*"]}, "deny": {"tools": {"good": ["echo"]}}}}}"#);
    client.await_notification(|news| news["method"] == TOOLS_CHANGED);
    stage.rules("{}");
    client.await_notification(|news| news["method"] == TOOLS_CHANGED);
}

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

#[test]
fn who_is_told_a_thousand_times_of_a_change_hears_it_a_few_times() {
    let stage = Stage::with(&["good"]);
    let mut client = stage.connect();
    said(&mut client, "good", "pid");
    let began = Instant::now();
    announce(&mut client, "good", json!({ "list": "tools", "times": 5_000 }));
    announce(&mut client, "good", json!({ "list": "prompts" }));
    client.await_notification(|news| news["method"] == "notifications/prompts/list_changed");
    let heard = client.notifications.iter().filter(|news| news["method"] == TOOLS_CHANGED).count();
    let most = 2 + began.elapsed().as_millis() / 250;
    assert!((1..=most).contains(&(heard as u128)), "{heard} of {most}");
}

#[test]
fn who_has_subscribed_hears_what_it_wanted_and_nothing_else() {
    let stage = Stage::with(&["good"]);
    let mut client = McpClient::start(stage.command());
    let id = client.next_id();
    let wanted = json!({ "notifications": { "toolsListChanged": true } });
    client.send(&modern(id, "subscriptions/listen", wanted));
    let method = "notifications/subscriptions/acknowledged";
    client.await_notification(|news| news["method"] == method);
    for list in ["resources", "tools"] {
        let arguments = json!({ "agent_id": "dev", "server": "good", "tool": "announce", "args": { "list": list } });
        let id = client.next_id();
        let params = json!({ "name": "execute_tool", "arguments": arguments });
        client.send(&modern(id, "tools/call", params));
        client.answer(id);
    }
    client.await_notification(|news| news["method"] == TOOLS_CHANGED);
    assert_eq!(client.notifications, Vec::<Value>::new());
}

/// What a client with a session hears over HTTP, line by line.
fn hearing(server: &HttpServer, token: &str) -> impl Iterator<Item = String> + use<> {
    let begun = server.post(token, &initialize());
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let listen = Request::get("/mcp")
        .with("Authorization", &format!("Bearer {token}"))
        .with("Accept", "text/event-stream")
        .with("Mcp-Session-Id", &session);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(&listen.bytes()).unwrap();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let ready = Request::post(token, &ready).with("Mcp-Session-Id", &session);
    assert_eq!(server.send(&ready).status, 202);
    // The stream is kept alive with lines that say nothing.
    let end = Instant::now() + Duration::from_mins(1);
    BufReader::new(stream).lines().map_while(Result::ok).take_while(move |_| Instant::now() < end)
}

#[test_case("gateway")]
#[test_case("serve")]
fn over_http_those_are_told_who_may_use_the_server(command: &str) {
    let stage = Stage::with(&["good", "other"]);
    stage.rules(TWO_AGENTS);
    let (dev, all) = (stage.context.token("dev"), stage.context.token("all"));
    let server = HttpServer::start(stage.context.adjutant([command, "--http", "127.0.0.1:0"]));
    let announce = |name: &str, list: &str| {
        let args = json!({ "list": list });
        let arguments = json!({ "server": name, "tool": "announce", "args": args });
        let params = json!({ "name": "execute_tool", "arguments": arguments });
        let answer = server.send(&modern_post(&all, 1, "tools/call", params)).message();
        assert_eq!(text(&answer["result"]), "announced", "{answer}");
    };
    let changed = |line: &String| line.contains("list_changed");
    let mut dev_hears = hearing(&server, &dev).filter(changed);
    let mut all_hears = hearing(&server, &all).filter(changed);
    announce("other", "resources");
    assert!(all_hears.next().unwrap().contains("resources/list_changed"));
    announce("other", "tools");
    assert!(all_hears.next().unwrap().contains(TOOLS_CHANGED));
    announce("good", "prompts");
    let first = dev_hears.next().unwrap();
    assert!(first.contains("prompts/list_changed"), "of a server that is not theirs: {first}");
    announce("good", "tools");
    assert!(dev_hears.next().unwrap().contains(TOOLS_CHANGED));
}
