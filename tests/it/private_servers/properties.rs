//! For random `tools`, `policy` and permissions, over the pipe: what can be called was granted, and is what is listed.

use std::collections::BTreeSet;
use std::sync::Arc;

use adjutant::base::RunId;
use adjutant::catalog::{Agent, RuleText, Snapshot, ToolRef};
use adjutant::config::{GatewayOptions, Settings};
use adjutant::gateway::{Gateway, Tell, Tunnel};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::gateway::faulty;
use crate::support::TestContext;

const SERVERS: [&str; 2] = ["own", "wiki"];
const TOOLS: [&str; 4] = ["get", "put", "push", "b__get"];
/// What the gateway's rules grant of the shared server.
const GRANTED: [&str; 2] = ["get", "push"];
/// Names that are nobody's, which the server would answer to.
const UNLISTED: [&str; 3] = ["ghost", "GET", "*"];

type Pairs = BTreeSet<(String, String)>;

fn house() -> TestContext {
    let context = TestContext::new();
    let program = faulty();
    let names = TOOLS.map(|tool| format!("\"{tool}\"")).join(", ");
    context.agent(
        "dev",
        &format!(
            "---\nname: dev\ndescription: Develops\nmcp_servers:\n  \
             - {{ name: own, command: {program}, args: [named, {names}] }}\n  - wiki\n---\nYou develop.\n"
        ),
    );
    let arguments: Vec<&str> = std::iter::once("named").chain(TOOLS).collect();
    let servers = json!({ "mcpServers": { "wiki": { "command": program, "args": arguments } } });
    context.write(".mcp.json", servers.to_string());
    let rules = json!({ "agents": { "dev": { "allow": { "servers": ["wiki"], "tools": { "wiki": GRANTED } } } } });
    context.write(".mcp-gateway-rules.json", rules.to_string());
    context
}

fn word(plain: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    let mut words = plain.to_vec();
    words.extend(["*", "?*", "[!a]*", "*t", "p*"]);
    prop::sample::select(words).prop_map(str::to_owned)
}

fn tool_ref() -> impl Strategy<Value = ToolRef> {
    (word(&SERVERS), word(&TOOLS)).prop_map(|(server, tool)| ToolRef::Mcp { server, tool })
}

fn rule() -> impl Strategy<Value = RuleText> {
    let text = (word(&SERVERS), word(&TOOLS));
    text.prop_map(|(server, tool)| RuleText {
        tool: format!("mcp__{server}__{tool}"),
        specifier: None,
    })
}

fn variant(agent: Agent) -> impl Strategy<Value = Agent> {
    let list = || prop::option::weighted(0.5, prop::collection::vec(tool_ref(), 1..4));
    let some = |most| prop::collection::vec(tool_ref(), 0..most);
    let rules = || prop::collection::vec(rule(), 0..2);
    let servers = prop::collection::vec(word(&SERVERS), 0..2);
    (list(), list(), some(2), servers, rules(), rules()).prop_map(
        move |(tools, allowed, exclude, gone, allow, deny)| {
            let mut agent = agent.clone();
            agent.tools = tools;
            agent.policy.tools_allowed = allowed;
            agent.policy.tools_exclude = exclude;
            agent.policy.mcp_excluded = gone;
            agent.permissions.allow = allow;
            agent.permissions.deny = deny;
            agent
        },
    )
}

async fn ask(tunnel: &Arc<Tunnel>, server: &str, method: &str, params: Value) -> Value {
    let tell: Tell = Arc::new(|_, _| {});
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    tunnel.message(server, &message, &tell).await.unwrap()
}

/// What the agent is shown, and what answers when it is called.
async fn listed_and_callable(gateway: &Arc<Gateway>, agent: Agent) -> (Pairs, Pairs) {
    let (tunnel, _) = Tunnel::open(gateway, &Arc::new(agent), RunId::new()).await.unwrap();
    let tunnel = Arc::new(tunnel);
    let (mut listed, mut callable) = (Pairs::new(), Pairs::new());
    for server in SERVERS {
        let list = ask(&tunnel, server, "tools/list", json!({})).await;
        for tool in list["result"]["tools"].as_array().unwrap() {
            listed.insert((server.to_owned(), tool["name"].as_str().unwrap().to_owned()));
        }
        for tool in TOOLS.into_iter().chain(UNLISTED) {
            let answer = ask(&tunnel, server, "tools/call", json!({ "name": tool })).await;
            if answer.get("result").is_some() {
                callable.insert((server.to_owned(), tool.to_owned()));
            }
        }
    }
    (listed, callable)
}

#[test]
fn what_can_be_called_was_granted_and_is_what_is_listed() {
    let context = house();
    let settings = Settings::resolve(Some(&context.root())).unwrap();
    let runtime = Runtime::new().unwrap();
    let gateway = runtime.block_on(async { Gateway::start(&settings, GatewayOptions::default()) });
    let snapshot = Snapshot::load(&settings);
    let mut agent = Agent::clone(snapshot.get("dev").and_then(|entry| entry.agent()).unwrap());
    // A server that is taken away as a whole would end the run before it began.
    agent.servers.iter_mut().for_each(|entry| entry.optional = true);
    // Held, so that the servers are started once for all cases.
    let whole = Arc::new(agent.clone());
    let held = runtime.block_on(Tunnel::open(&gateway, &whole, RunId::new())).unwrap();
    let (listed, callable) = runtime.block_on(listed_and_callable(&gateway, agent.clone()));
    assert_eq!(listed.len(), TOOLS.len() + GRANTED.len(), "nothing is taken away yet: {listed:?}");
    assert_eq!(listed, callable);
    let mut runner =
        TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
    let checked = runner.run(&variant(agent), |agent| {
        let (listed, callable) = runtime.block_on(listed_and_callable(&gateway, agent));
        prop_assert_eq!(&listed, &callable);
        for (server, tool) in &callable {
            let granted: &[&str] = if server == "own" { &TOOLS } else { &GRANTED };
            prop_assert!(granted.contains(&tool.as_str()), "{} {}", server, tool);
        }
        Ok(())
    });
    checked.unwrap();
    drop(held);
    runtime.block_on(gateway.shutdown());
}
