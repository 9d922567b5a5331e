//! Property test of random `tools`, `policy` and permissions: callable tools were granted and equal the listed tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use adjutant::catalog::{Agent, RuleText, Snapshot, ToolRef};
use adjutant::config::{GatewayOptions, Settings};
use adjutant::gateway::{Gateway, NotifyFn, SdkServers};
use adjutant::jsonrpc::LineJson;
use adjutant::util::RunId;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::gateway::faulty;
use crate::support::TestContext;

const SERVERS: [&str; 2] = ["own", "wiki"];
const TOOLS: [&str; 4] = ["get", "put", "push", "b__get"];
/// Tools of the shared server that the gateway rules allow.
const GRANTED_TOOLS: [&str; 2] = ["get", "push"];
/// Names that no list contains, although the server would respond to them.
const UNLISTED_TOOLS: [&str; 3] = ["ghost", "GET", "*"];

type ServerTools = BTreeSet<(String, String)>;

fn project() -> TestContext {
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
    let rules = json!({ "agents": { "dev": { "allow": { "servers": ["wiki"], "tools": { "wiki": GRANTED_TOOLS } } } } });
    context.write(".mcp-gateway-rules.json", rules.to_string());
    context
}

fn name_pattern(plain: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    let mut words = plain.to_vec();
    words.extend(["*", "?*", "[!a]*", "*t", "p*"]);
    prop::sample::select(words).prop_map(str::to_owned)
}

fn tool_ref() -> impl Strategy<Value = ToolRef> {
    (name_pattern(&SERVERS), name_pattern(&TOOLS))
        .prop_map(|(server, tool)| ToolRef::Mcp { server, tool })
}

fn permission_rule() -> impl Strategy<Value = RuleText> {
    let text = (name_pattern(&SERVERS), name_pattern(&TOOLS));
    text.prop_map(|(server, tool)| RuleText {
        tool: format!("mcp__{server}__{tool}"),
        specifier: None,
    })
}

fn agent_variant(agent: Agent) -> impl Strategy<Value = Agent> {
    let list = || prop::option::weighted(0.5, prop::collection::vec(tool_ref(), 1..4));
    let some = |most| prop::collection::vec(tool_ref(), 0..most);
    let rules = || prop::collection::vec(permission_rule(), 0..2);
    let servers = prop::collection::vec(name_pattern(&SERVERS), 0..2);
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

async fn request(
    sdk_servers: &Arc<SdkServers>,
    server: &str,
    method: &str,
    params: Value,
) -> Value {
    let tell: NotifyFn = Arc::new(|_, _| {});
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let message = LineJson::encode(&message).unwrap();
    let answer = sdk_servers.handle_message(server, &message, &tell).await.unwrap();
    serde_json::from_str(answer.as_str()).unwrap()
}

/// The tools that the agent's list contains, and those whose call succeeds.
async fn listed_and_callable(gateway: &Arc<Gateway>, agent: Agent) -> (ServerTools, ServerTools) {
    let (sdk_servers, _) =
        SdkServers::connect(gateway, &Arc::new(agent), RunId::new()).await.unwrap();
    let sdk_servers = Arc::new(sdk_servers);
    let (mut listed, mut callable) = (ServerTools::new(), ServerTools::new());
    for server in SERVERS {
        let list = request(&sdk_servers, server, "tools/list", json!({})).await;
        for tool in list["result"]["tools"].as_array().unwrap() {
            listed.insert((server.to_owned(), tool["name"].as_str().unwrap().to_owned()));
        }
        for tool in TOOLS.into_iter().chain(UNLISTED_TOOLS) {
            let answer = request(&sdk_servers, server, "tools/call", json!({ "name": tool })).await;
            if answer.get("result").is_some() {
                callable.insert((server.to_owned(), tool.to_owned()));
            }
        }
    }
    (listed, callable)
}

#[test]
fn callable_tools_were_granted_and_equal_the_listed_tools() {
    let context = project();
    let settings = Settings::resolve(Some(&context.root())).unwrap();
    let runtime = Runtime::new().unwrap();
    let gateway = runtime.block_on(async { Gateway::start(&settings, GatewayOptions::default()) });
    let snapshot = Snapshot::load(&settings);
    let mut agent = Agent::clone(snapshot.get("dev").and_then(|entry| entry.agent()).unwrap());
    // Excluding a whole server would fail the run before its first turn.
    agent.servers.iter_mut().for_each(|entry| entry.optional = true);
    // Keeps a lease, so that the servers start once for all cases.
    let whole = Arc::new(agent.clone());
    let held = runtime.block_on(SdkServers::connect(&gateway, &whole, RunId::new())).unwrap();
    let (listed, callable) = runtime.block_on(listed_and_callable(&gateway, agent.clone()));
    assert_eq!(
        listed.len(),
        TOOLS.len() + GRANTED_TOOLS.len(),
        "nothing is taken away yet: {listed:?}"
    );
    assert_eq!(listed, callable);
    let mut runner =
        TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
    let checked = runner.run(&agent_variant(agent), |agent| {
        let (listed, callable) = runtime.block_on(listed_and_callable(&gateway, agent));
        prop_assert_eq!(&listed, &callable);
        for (server, tool) in &callable {
            let granted: &[&str] = if server == "own" { &TOOLS } else { &GRANTED_TOOLS };
            prop_assert!(granted.contains(&tool.as_str()), "{} {}", server, tool);
        }
        Ok(())
    });
    checked.unwrap();
    drop(held);
    runtime.block_on(gateway.shutdown());
}
