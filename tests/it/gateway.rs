//! `adjutant gateway` from outside: a client on one side, misbehaving servers on the other.

mod faults;
mod hostile_network;
#[path = "gateway/mock_http_server.rs"]
pub(crate) mod http_server;
mod logs;
mod network;
#[path = "gateway/resources_and_prompts.rs"]
mod offers;
mod pass_through;
#[path = "gateway/audit_and_secrets.rs"]
mod records;
mod reload;
#[path = "gateway/permissions.rs"]
mod rights;
#[path = "gateway/server_processes.rs"]
mod servers;
#[path = "gateway/oauth.rs"]
mod sign_in;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::TestContext;
use crate::support::fake::build_example;
use crate::support::mcp::{McpClient, text};

/// Rules under which `dev` may use everything and `guest` nothing but `echo` of `good`.
const RULES: &str = r#"{"agents": {
    "dev": {"allow": {"servers": ["*"]}},
    "guest": {"allow": {"servers": ["good"], "tools": {"good": ["echo"]}}}
}}"#;

/// The server with every fault; `cargo test --test it` alone does not build it.
pub(crate) fn faulty() -> String {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let path = BUILT.get_or_init(|| build_example("faulty_mcp_server"));
    path.display().to_string()
}

/// A gateway in a project of its own.
struct Stage {
    context: TestContext,
}

impl Stage {
    /// With these servers and [`RULES`].
    fn new(servers: &Value) -> Self {
        let context = TestContext::new();
        context.write(".mcp.json", json!({ "mcpServers": servers }).to_string());
        context.write(".mcp-gateway-rules.json", RULES);
        Self { context }
    }

    /// With one server `good` and one per further mode, named like it.
    fn with(modes: &[&str]) -> Self {
        let entry = |mode: &str| (mode.to_owned(), json!({ "command": faulty(), "args": [mode] }));
        Self::new(&modes.iter().map(|mode| entry(mode)).collect::<serde_json::Map<_, _>>().into())
    }

    fn command(&self) -> Command {
        self.context.adjutant(["gateway"])
    }

    fn connect(&self) -> McpClient {
        McpClient::connect(self.command())
    }

    fn servers(&self, servers: &Value) {
        self.context.write(".mcp.json", json!({ "mcpServers": servers }).to_string());
    }

    fn rules(&self, rules: &str) {
        self.context.write(".mcp-gateway-rules.json", rules);
    }
}

fn execute(client: &mut McpClient, server: &str, tool: &str, args: Value) -> Value {
    let arguments = json!({ "agent_id": "dev", "server": server, "tool": tool, "args": args });
    client.call("execute_tool", arguments)
}

fn said(client: &mut McpClient, server: &str, tool: &str) -> String {
    let result = execute(client, server, tool, json!({}));
    assert_ne!(result["isError"], true, "{result}");
    text(&result).to_owned()
}

/// The code of a refusal or failure.
fn code(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    text(result).split(':').next().unwrap()
}

pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} never came");
        std::thread::sleep(Duration::from_millis(20));
    }
}
