//! The known cases of the policy again, as an agent meets them: through the tools of a running gateway.

use std::collections::BTreeSet;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::gateway::{faulty, until};
use crate::support::TestContext;
use crate::support::mcp::{McpClient, text};

const RULES: &str = ".mcp-gateway-rules.json";
const SERVERS: &str = ".mcp.json";

/// The case in which the data and its contract disagree: an unknown key is an error, a typo never widens.
const REFUSED: &str = "edge.typo_section_ignored";
/// Servers that the cases want to be allowed and missing.
const MISSING: [&str; 3] = ["nonexistent", "does-not-exist", ""];

#[test]
fn d1_every_known_case_through_the_tools() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/policy-cases.json")).expect("the cases");
    assert_eq!(cases.len(), 188);
    let mut stage = Stage::new(&cases);
    let mut asked = 0;
    for (rules, cases) in by_rules(&cases) {
        if cases.iter().any(|case| case["name"] == REFUSED) {
            continue;
        }
        stage.switch_to(rules);
        for case in cases {
            stage.ask(case);
            asked += 1;
        }
    }
    assert_eq!(asked, 187, "all but one, which is the next test");
}

#[test]
fn a4_a_typo_in_the_rules_allows_nobody_anything() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/policy-cases.json")).expect("the cases");
    let case = cases.iter().find(|case| case["name"] == REFUSED).expect("the case");
    let stage = Stage::new(&cases);
    stage.context.write(RULES, case["rules"].to_string());
    // A new gateway: one that runs would keep the last good rules.
    let mut client = McpClient::connect(stage.context.adjutant(["gateway"]));
    for (tool, arguments) in [
        ("list_servers", json!({ "agent_id": "a" })),
        ("get_server_tools", json!({ "agent_id": "a", "server": "db" })),
        ("execute_tool", json!({ "agent_id": "a", "server": "db", "tool": "query" })),
    ] {
        let result = client.call(tool, arguments);
        assert!(text(&result).starts_with("INVALID_AGENT_ID: "), "{tool}: {result}");
    }
}

/// Cases that share their rules are asked together.
fn by_rules(cases: &[Value]) -> Vec<(&Value, Vec<&Value>)> {
    let mut groups: Vec<(&Value, Vec<&Value>)> = Vec::new();
    for case in cases {
        match groups.iter_mut().find(|(rules, _)| **rules == case["rules"]) {
            Some((_, members)) => members.push(case),
            None => groups.push((&case["rules"], vec![case])),
        }
    }
    groups
}

/// One gateway with every server and tool of the cases behind it.
struct Stage {
    context: TestContext,
    client: McpClient,
    switches: usize,
}

impl Stage {
    fn new(cases: &[Value]) -> Self {
        let names = |key: &str| -> BTreeSet<&str> {
            cases.iter().filter_map(|case| case[key].as_str()).collect()
        };
        let tools = names("tool").into_iter().filter(|name| !name.is_empty());
        let arguments: Vec<&str> = ["named"].into_iter().chain(tools).collect();
        let entry = json!({ "command": faulty(), "args": arguments });
        let servers = names("server").into_iter().filter(|name| !MISSING.contains(name));
        let servers: serde_json::Map<String, Value> =
            servers.map(|name| (name.to_owned(), entry.clone())).collect();
        let context = TestContext::new();
        context.write(SERVERS, json!({ "mcpServers": servers }).to_string());
        context.write(RULES, json!({ "agents": { "marker-0": {} } }).to_string());
        let mut client = McpClient::connect(context.adjutant(["gateway"]));
        until("the first rules", || knows(&mut client, "marker-0").then_some(()));
        Self { context, client, switches: 0 }
    }

    /// Puts rules in force: the file is replaced, and the gateway told.
    fn switch_to(&mut self, rules: &Value) {
        let has_agents = rules["agents"].as_object().is_some_and(|agents| !agents.is_empty());
        if has_agents {
            let mut marked = rules.clone();
            self.switches += 1;
            marked["agents"][format!("marker-{}", self.switches)] = json!({});
            self.replace(&marked);
        } else {
            // Rules without any agent stay so: that the marker of others went away is the sign.
            self.switch_to(&json!({ "agents": { "somebody": {} } }));
            self.replace(rules);
        }
        let marker = format!("marker-{}", self.switches);
        until("the new rules", || (knows(&mut self.client, &marker) == has_agents).then_some(()));
    }

    fn replace(&self, rules: &Value) {
        self.context.write("next.json", serde_json::to_string_pretty(rules).expect("JSON"));
        let root = self.context.root();
        fs::rename(root.join("next.json"), root.join(RULES)).expect("the new rules");
        let pid = Pid::from_raw(i32::try_from(self.client.pid()).expect("a pid"));
        kill(pid, Signal::SIGHUP).expect("the gateway runs");
    }

    fn ask(&mut self, case: &Value) {
        let word = |key: &str| case[key].as_str().unwrap_or_default();
        let (server, tool) = (word("server"), case["tool"].as_str());
        let agent = json!({ "agent_id": word("agent") });
        let of_server = json!({ "agent_id": word("agent"), "server": server });
        let servers = self.client.call("list_servers", agent);
        let tools = self.client.call("get_server_tools", of_server.clone());
        let Some(tool) = tool else {
            return match word("expect") {
                "allow" => may_use_server(case, &servers, &tools),
                _ => self.is_refused(case, &tools, &servers),
            };
        };
        let mut call = of_server;
        call["tool"] = json!(tool);
        let result = self.client.call("execute_tool", call);
        let listed = tools["structuredContent"]["tools"].as_array().into_iter().flatten();
        let is_listed = listed.into_iter().any(|listed| listed["name"] == tool);
        match word("expect") {
            "allow" if tool.is_empty() => is_taken_for_missing(case, "tool", &result),
            "allow" => {
                assert!(is_listed, "{case}\n{tools}");
                assert_eq!((text(&result), &result["isError"]), (tool, &Value::Null), "{case}");
            }
            _ => {
                assert!(!is_listed, "{case}\n{tools}");
                self.is_refused(case, &result, &servers);
            }
        }
    }

    /// The refusal has its code, and says what `explain` says.
    fn is_refused(&self, case: &Value, result: &Value, servers: &Value) {
        assert_eq!(result["isError"], true, "{case}\n{result}");
        let agent = case["agent"].as_str().expect("an agent");
        let server = case["server"].as_str().expect("a server");
        if case["rules"]["agents"].get(agent).is_none() {
            let unknown = format!("INVALID_AGENT_ID: the rules have no agent `{agent}`; ");
            assert!(text(result).starts_with(&unknown), "{case}\n{result}");
            assert!(text(servers).starts_with(&unknown), "{case}\n{servers}");
            return;
        }
        let mut explain = self.context.adjutant(["explain", "--json", "--agent", agent]);
        explain.args(["--server", server]);
        explain.args(case["tool"].as_str().map(|tool| format!("--tool={tool}")));
        let output = explain.output().expect("the program starts");
        let explained: Value = serde_json::from_slice(&output.stdout).expect("an answer");
        let reason = explained["reason"].as_str().expect("a reason");
        let said = text(result).strip_prefix("DENIED_BY_POLICY: ");
        assert!(said.is_some_and(|said| said.starts_with(reason)), "{case}\n{result}\n{reason}");
        if case["tool"].is_null() {
            assert!(!lists(servers, server), "{case}\n{servers}");
        }
    }
}

fn may_use_server(case: &Value, servers: &Value, tools: &Value) {
    let server = case["server"].as_str().expect("a server");
    if server.is_empty() {
        return is_taken_for_missing(case, "server", tools);
    }
    if MISSING.contains(&server) {
        assert!(text(tools).starts_with("SERVER_UNAVAILABLE: "), "{case}\n{tools}");
        assert!(text(tools).contains("there is no such server"), "{case}\n{tools}");
        return;
    }
    assert!(lists(servers, server), "{case}\n{servers}");
    assert_ne!(tools["isError"], true, "{case}\n{tools}");
}

/// Nothing has an empty name: the rules would allow it, the tools ask for the argument.
fn is_taken_for_missing(case: &Value, argument: &str, result: &Value) {
    let said = format!("INVALID_ARGUMENT: `{argument}` is missing");
    assert!(text(result).starts_with(&said), "{case}\n{result}");
}

fn lists(servers: &Value, name: &str) -> bool {
    let listed = servers["structuredContent"]["result"].as_array().expect("a list");
    listed.iter().any(|server| server["name"] == name)
}

fn knows(client: &mut McpClient, agent: &str) -> bool {
    client.call("list_servers", json!({ "agent_id": agent }))["isError"] != true
}
