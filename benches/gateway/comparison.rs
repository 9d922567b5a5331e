//! Comparison of gateways with the official SDK clients; also used by the bench `speed`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::common::execute_tool::{
    AT_ONCE, CALLS, IN_FLIGHT, direct_call, gateway_call, under_target,
};
use crate::common::http_gateway::HttpGateway;

/// Fewer calls: the Python client takes several times as long per call as the TypeScript client.
pub const CALLS_OF_PYTHON: usize = 1_000;
/// Fewer calls: the peer is about thirty times slower.
pub const CALLS_OF_PEER: usize = 150;
pub const ROUNDS: usize = 7;
pub const DIRECT: &str = "direct";
pub const STDIO: &str = "adjutant gateway";
pub const HTTP: &str = "  over HTTP";
pub const PEER: &str = "agent-mcp-gateway";

/// Medians over the rounds; times in milliseconds.
#[derive(Deserialize)]
pub struct Figures {
    pub name: String,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    /// Calls per second with [`IN_FLIGHT`] concurrent requests.
    pub rate: f64,
    /// Time from the start to the response to `tools/list`.
    pub start: Option<f64>,
    /// Resident memory in MB.
    pub memory: Option<f64>,
}

/// Path of `agent-mcp-gateway`: from `AGENT_MCP_GATEWAY`, or the pinned version, installed from PyPI below `target`.
pub fn peer() -> Option<PathBuf> {
    if let Some(named) = env::var_os("AGENT_MCP_GATEWAY") {
        return Some(named.into());
    }
    let folder = under_target("agent-mcp-gateway");
    let program = folder.join("bin/agent-mcp-gateway");
    if !program.exists() {
        // The package requires Python 3.12 but works with 3.11.
        let script = "python3 -m venv --clear \"$1\" && \"$1/bin/pip\" -q install --ignore-requires-python agent-mcp-gateway==0.2.5";
        let installed = Command::new("sh").args(["-ec", script, "sh"]).arg(&folder).status();
        if !installed.is_ok_and(|status| status.success()) {
            println!("agent-mcp-gateway cannot be installed; its row is missing");
            return None;
        }
    }
    Some(program)
}

/// Measures all gateways with the official TypeScript client.
pub fn with_the_typescript_client(server: &Path, project: &Path) -> Vec<Figures> {
    let http = HttpGateway::start(env!("CARGO_BIN_EXE_adjutant").as_ref(), project);
    let url = format!("http://{}/mcp", http.address);
    let over_http = json!({ "name": HTTP, "url": url, "token": http.token, "params": gateway_call(), "calls": CALLS, "slow": true });
    let mut contestants = over_pipes(server, project, CALLS);
    contestants.insert(2, over_http);
    // Over HTTP the client leaks one listener per call, and Node warns about it.
    let mut node = Command::new("node");
    node.arg("--no-warnings")
        .arg(beside("sdk-client.mjs"))
        .arg(under_target("mcp-servers/node/node_modules"));
    measured_by(node, &contestants, AT_ONCE)
}

/// Measures all gateways with the official Python client; `None` if `cargo test` has not installed it.
pub fn with_the_python_client(server: &Path, project: &Path) -> Option<Vec<Figures>> {
    let python = under_target("mcp-servers/python/venv/bin/python");
    if !python.exists() {
        println!("the Python SDK is not installed; run `cargo test --test it gateway_real` first");
        return None;
    }
    let mut command = Command::new(python);
    command.arg(beside("sdk-client.py"));
    Some(measured_by(command, &over_pipes(server, project, CALLS_OF_PYTHON), 2))
}

fn beside(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/gateway").join(file)
}

/// The commands: the server itself, and the server behind Adjutant and behind the peer.
fn over_pipes(server: &Path, project: &Path, calls: usize) -> Vec<Value> {
    let gateway = |name: &str, command: &Path, arguments: &[&str], calls: usize| json!({ "name": name, "command": command, "args": arguments, "cwd": project, "params": gateway_call(), "calls": calls });
    let ours = Path::new(env!("CARGO_BIN_EXE_adjutant"));
    let mut contestants = vec![
        json!({ "name": DIRECT, "command": server, "args": ["stdio"], "params": direct_call(), "calls": calls }),
        gateway(STDIO, ours, &["gateway"], calls),
    ];
    contestants.extend(peer().map(|peer| {
        let mut peer = gateway(PEER, &peer, &[], CALLS_OF_PEER);
        peer["slow"] = json!(true);
        peer
    }));
    contestants
}

fn measured_by(mut client: Command, contestants: &[Value], at_once: usize) -> Vec<Figures> {
    let plan = json!({ "contestants": contestants, "rounds": ROUNDS, "atOnce": at_once, "inFlight": IN_FLIGHT });
    let output = client.arg(plan.to_string()).stderr(Stdio::inherit()).output().expect("it starts");
    assert!(output.status.success(), "{:?}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}
