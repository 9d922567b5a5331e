//! The policy test cases again, over MCP: through the tools of a running gateway.

use std::collections::BTreeSet;
use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::gateway::faulty;
use crate::support::TestContext;
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

const RULES_FILE: &str = ".mcp-gateway-rules.json";
const SERVERS_FILE: &str = ".mcp.json";

/// The case that deviates from the fixture: an unknown key is an error, because a typo must not widen access.
const REJECTED_CASE: &str = "edge.typo_section_ignored";
/// Servers that the cases name and that must not be configured.
const UNCONFIGURED_SERVERS: [&str; 3] = ["nonexistent", "does-not-exist", ""];

#[test]
fn d1_gateway_tools_decide_every_policy_case() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/policy-cases.json")).expect("the cases");
    assert_eq!(cases.len(), 188);
    let mut fixture = RunningGateway::new(&cases);
    let mut asked = 0;
    for (rules, cases) in group_by_rules(&cases) {
        if cases.iter().any(|case| case["name"] == REJECTED_CASE) {
            continue;
        }
        fixture.apply_rules(rules);
        for case in cases {
            fixture.check_case(case);
            asked += 1;
        }
    }
    assert_eq!(asked, 187, "all but one, which is the next test");
}

#[test]
fn a4_a_typo_in_the_rules_denies_every_agent() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/policy-cases.json")).expect("the cases");
    let case = cases.iter().find(|case| case["name"] == REJECTED_CASE).expect("the case");
    let fixture = RunningGateway::new(&cases);
    fixture.context.write(RULES_FILE, case["rules"].to_string());
    // A fresh gateway: a running one would keep the last valid rules.
    let mut client = McpClient::connect(fixture.context.adjutant(["gateway"]));
    for (tool, arguments) in [
        ("list_servers", json!({ "agent_id": "a" })),
        ("get_server_tools", json!({ "agent_id": "a", "server": "db" })),
        ("execute_tool", json!({ "agent_id": "a", "server": "db", "tool": "query" })),
    ] {
        let result = client.call_tool(tool, arguments);
        assert!(result_text(&result).starts_with("INVALID_AGENT_ID: "), "{tool}: {result}");
    }
}

/// The cases grouped by their rules, so that each set of rules is loaded once.
fn group_by_rules(cases: &[Value]) -> Vec<(&Value, Vec<&Value>)> {
    let mut groups: Vec<(&Value, Vec<&Value>)> = Vec::new();
    for case in cases {
        match groups.iter_mut().find(|(rules, _)| **rules == case["rules"]) {
            Some((_, members)) => members.push(case),
            None => groups.push((&case["rules"], vec![case])),
        }
    }
    groups
}

/// One gateway with all servers and tools of the cases behind it.
struct RunningGateway {
    context: TestContext,
    client: McpClient,
    rule_changes: usize,
}

impl RunningGateway {
    fn new(cases: &[Value]) -> Self {
        let names = |key: &str| -> BTreeSet<&str> {
            cases.iter().filter_map(|case| case[key].as_str()).collect()
        };
        let tools = names("tool").into_iter().filter(|name| !name.is_empty());
        let arguments: Vec<&str> = ["named"].into_iter().chain(tools).collect();
        let entry = json!({ "command": faulty(), "args": arguments });
        let servers =
            names("server").into_iter().filter(|name| !UNCONFIGURED_SERVERS.contains(name));
        let servers: serde_json::Map<String, Value> =
            servers.map(|name| (name.to_owned(), entry.clone())).collect();
        let context = TestContext::new();
        context.write(SERVERS_FILE, json!({ "mcpServers": servers }).to_string());
        context.write(RULES_FILE, json!({ "agents": { "marker-0": {} } }).to_string());
        let mut client = McpClient::connect(context.adjutant(["gateway"]));
        wait_until("the first rules", || knows_agent(&mut client, "marker-0").then_some(()));
        Self { context, client, rule_changes: 0 }
    }

    /// Replaces the rules file, sends SIGHUP and waits until the new rules are in force.
    fn apply_rules(&mut self, rules: &Value) {
        let has_agents = rules["agents"].as_object().is_some_and(|agents| !agents.is_empty());
        if has_agents {
            let mut marked = rules.clone();
            self.rule_changes += 1;
            marked["agents"][format!("marker-{}", self.rule_changes)] = json!({});
            self.replace_rules_file(&marked);
        } else {
            // Rules without agents cannot have a marker agent: wait until the previous marker disappears.
            self.apply_rules(&json!({ "agents": { "somebody": {} } }));
            self.replace_rules_file(rules);
        }
        let marker = format!("marker-{}", self.rule_changes);
        wait_until("the new rules", || {
            (knows_agent(&mut self.client, &marker) == has_agents).then_some(())
        });
    }

    fn replace_rules_file(&self, rules: &Value) {
        self.context.write("next.json", serde_json::to_string_pretty(rules).expect("JSON"));
        let root = self.context.root();
        fs::rename(root.join("next.json"), root.join(RULES_FILE)).expect("the new rules");
        let pid = Pid::from_raw(i32::try_from(self.client.pid()).expect("a pid"));
        kill(pid, Signal::SIGHUP).expect("the gateway runs");
    }

    fn check_case(&mut self, case: &Value) {
        let word = |key: &str| case[key].as_str().unwrap_or_default();
        let (server, tool) = (word("server"), case["tool"].as_str());
        let agent = json!({ "agent_id": word("agent") });
        let of_server = json!({ "agent_id": word("agent"), "server": server });
        let servers = self.client.call_tool("list_servers", agent);
        let tools = self.client.call_tool("get_server_tools", of_server.clone());
        let Some(tool) = tool else {
            return match word("expect") {
                "allow" => assert_server_usable(case, &servers, &tools),
                _ => self.assert_denied(case, &tools, &servers),
            };
        };
        let mut call = of_server;
        call["tool"] = json!(tool);
        let result = self.client.call_tool("execute_tool", call);
        let listed = tools["structuredContent"]["tools"].as_array().into_iter().flatten();
        let is_listed = listed.into_iter().any(|listed| listed["name"] == tool);
        match word("expect") {
            "allow" if tool.is_empty() => assert_missing_argument(case, "tool", &result),
            "allow" => {
                assert!(is_listed, "{case}\n{tools}");
                assert_eq!(
                    (result_text(&result), &result["isError"]),
                    (tool, &Value::Null),
                    "{case}"
                );
            }
            _ => {
                assert!(!is_listed, "{case}\n{tools}");
                self.assert_denied(case, &result, &servers);
            }
        }
    }

    /// Asserts that the call is rejected with its error code and the reason that `explain` gives.
    fn assert_denied(&self, case: &Value, result: &Value, servers: &Value) {
        assert_eq!(result["isError"], true, "{case}\n{result}");
        let agent = case["agent"].as_str().expect("an agent");
        let server = case["server"].as_str().expect("a server");
        if case["rules"]["agents"].get(agent).is_none() {
            let unknown = format!("INVALID_AGENT_ID: the rules have no agent `{agent}`; ");
            assert!(result_text(result).starts_with(&unknown), "{case}\n{result}");
            assert!(result_text(servers).starts_with(&unknown), "{case}\n{servers}");
            return;
        }
        let mut explain = self.context.adjutant(["explain", "--json", "--agent", agent]);
        explain.args(["--server", server]);
        explain.args(case["tool"].as_str().map(|tool| format!("--tool={tool}")));
        let output = explain.output().expect("the program starts");
        let explained: Value = serde_json::from_slice(&output.stdout).expect("an answer");
        let reason = explained["reason"].as_str().expect("a reason");
        let said = result_text(result).strip_prefix("DENIED_BY_POLICY: ");
        assert!(said.is_some_and(|said| said.starts_with(reason)), "{case}\n{result}\n{reason}");
        if case["tool"].is_null() {
            assert!(!lists_server(servers, server), "{case}\n{servers}");
        }
    }
}

fn assert_server_usable(case: &Value, servers: &Value, tools: &Value) {
    let server = case["server"].as_str().expect("a server");
    if server.is_empty() {
        return assert_missing_argument(case, "server", tools);
    }
    if UNCONFIGURED_SERVERS.contains(&server) {
        let expected = format!(
            "SERVER_UNAVAILABLE: server `{server}` is unavailable: there is no such server. \
             Call list_servers to see which there are."
        );
        assert_eq!(result_text(tools), expected, "{case}");
        return;
    }
    assert!(lists_server(servers, server), "{case}\n{servers}");
    assert_ne!(tools["isError"], true, "{case}\n{tools}");
}

/// Asserts that an empty name counts as a missing argument, although the rules would allow it.
fn assert_missing_argument(case: &Value, argument: &str, result: &Value) {
    let said = format!("INVALID_ARGUMENT: `{argument}` is missing");
    assert!(result_text(result).starts_with(&said), "{case}\n{result}");
}

fn lists_server(servers: &Value, name: &str) -> bool {
    let listed = servers["structuredContent"]["result"].as_array().expect("a list");
    listed.iter().any(|server| server["name"] == name)
}

fn knows_agent(client: &mut McpClient, agent: &str) -> bool {
    client.call_tool("list_servers", json!({ "agent_id": agent }))["isError"] != true
}
