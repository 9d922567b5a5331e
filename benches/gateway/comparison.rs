//! What is compared, and the official clients that compare it. The bench `speed` uses it too.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::{env, fs};

use serde::Deserialize;
use serde_json::{Value, json};

/// Calls of one round, one after the other.
pub const CALLS: usize = 1_500;
/// How many times as many there are with [`IN_FLIGHT`] on their way: they take a tenth of the time each.
pub const AT_ONCE: usize = 10;
/// The Python client takes several times as long as the TypeScript client, whatever it calls.
pub const CALLS_OF_PYTHON: usize = 1_000;
/// The peer is some thirty times slower.
pub const CALLS_OF_PEER: usize = 150;
/// How many calls are on their way where it says so.
pub const IN_FLIGHT: usize = 32;
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
    /// Calls per second with [`IN_FLIGHT`] on their way.
    pub rate: f64,
    /// To the answer to `tools/list`.
    pub start: Option<f64>,
    /// Megabytes.
    pub memory: Option<f64>,
}

/// `server-everything`, which the ordinary tests install.
pub fn everything() -> Option<PathBuf> {
    let server = under_target("mcp-servers/node/node_modules/.bin/mcp-server-everything");
    if server.exists() {
        return Some(server);
    }
    println!("server-everything is not installed; run `cargo test --test it gateway_real` first");
    None
}

fn under_target(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(path)
}

/// A project with that server behind the gateway, rules and audit on.
pub fn project(server: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let entry = json!({ "command": server, "args": ["stdio"], "description": "everything" });
    fs::write(
        folder.path().join(".mcp.json"),
        json!({ "mcpServers": { "everything": entry } }).to_string(),
    )
    .unwrap();
    let rules = json!({ "agents": { "dev": { "allow": { "servers": ["*"] }, "deny": { "tools": { "everything": ["get-env"] } } } } });
    fs::write(folder.path().join(".mcp-gateway-rules.json"), rules.to_string()).unwrap();
    folder
}

pub fn direct_call() -> Value {
    json!({ "name": "echo", "arguments": { "message": "hello" } })
}

pub fn gateway_call() -> Value {
    json!({ "name": "execute_tool", "arguments": {
        "agent_id": "dev", "server": "everything", "tool": "echo", "args": { "message": "hello" },
    }})
}

/// The peer's program: the one that `AGENT_MCP_GATEWAY` names, or the pinned one from PyPI, installed below `target`.
pub fn peer() -> Option<PathBuf> {
    if let Some(named) = env::var_os("AGENT_MCP_GATEWAY") {
        return Some(named.into());
    }
    let folder = under_target("agent-mcp-gateway");
    let program = folder.join("bin/agent-mcp-gateway");
    if !program.exists() {
        // It asks for Python 3.12 and works with 3.11.
        let script = "python3 -m venv --clear \"$1\" && \"$1/bin/pip\" -q install --ignore-requires-python agent-mcp-gateway==0.2.5";
        let installed = Command::new("sh").args(["-ec", script, "sh"]).arg(&folder).status();
        if !installed.is_ok_and(|status| status.success()) {
            println!("agent-mcp-gateway cannot be installed; its row is missing");
            return None;
        }
    }
    Some(program)
}

/// Adjutant's gateway over HTTP; ends when dropped.
pub struct HttpGateway {
    child: Child,
    /// Held, for it is closed with the reader.
    _stderr: BufReader<ChildStderr>,
    /// Where it is: `127.0.0.1:40000`.
    pub address: String,
    /// A token for `dev`.
    pub token: String,
}

impl HttpGateway {
    pub fn start(project: &Path) -> Self {
        let adjutant = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_adjutant"));
            command.current_dir(project).env("RUST_LOG", "error");
            command
        };
        let made = adjutant().args(["token", "new", "dev"]).output().unwrap();
        let token = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let mut child = adjutant()
            .args(["gateway", "--http", "127.0.0.1:0", "--requests-per-second", "0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut said = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut said).unwrap();
        let place = said.split("://").nth(1).and_then(|rest| rest.split('/').next());
        let address = place.expect("an address").to_owned();
        Self { child, _stderr: stderr, address, token }
    }
}

impl Drop for HttpGateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All of them, called by the official TypeScript client.
pub fn with_the_typescript_client(server: &Path, project: &Path) -> Vec<Figures> {
    let http = HttpGateway::start(project);
    let url = format!("http://{}/mcp", http.address);
    let over_http = json!({ "name": HTTP, "url": url, "token": http.token, "params": gateway_call(), "calls": CALLS, "slow": true });
    let mut contestants = over_pipes(server, project, CALLS);
    contestants.insert(2, over_http);
    // Over HTTP the client leaves a listener behind with each call, of which Node warns.
    let mut node = Command::new("node");
    node.arg("--no-warnings")
        .arg(beside("sdk-client.mjs"))
        .arg(under_target("mcp-servers/node/node_modules"));
    measured_by(node, &contestants, AT_ONCE)
}

/// All of them, called by the official Python client; `None` where the ordinary tests did not install it.
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

/// The server itself, ours in front of it, and the peer in front of it.
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
