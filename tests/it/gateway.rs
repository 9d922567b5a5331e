//! `adjutant gateway` as a process: a client on one side, faulty servers on the other.

mod audit_and_secrets;
mod client_lines;
mod fault_table;
mod faults;
mod framing;
mod framing_properties;
mod hostile_network;
mod logs;
pub(crate) mod mock_http_server;
mod network;
mod oauth;
mod pass_through;
mod permissions;
mod relay_server;
mod reload;
mod resource_owners;
mod resources_and_prompts;
mod server_processes;

use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::TestContext;
use crate::support::fake_claude::build_example;
use crate::support::mcp::{McpClient, result_text};

/// Rules under which `dev` may use everything and `guest` only `echo` of `good`.
const RULES: &str = r#"{"agents": {
    "dev": {"allow": {"servers": ["*"]}},
    "guest": {"allow": {"servers": ["good"], "tools": {"good": ["echo"]}}}
}}"#;

/// Path of the faulty server, built on first use: `cargo test --test it` alone does not build it.
pub(crate) fn faulty() -> String {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let path = BUILT.get_or_init(|| build_example("faulty_mcp_server"));
    path.display().to_string()
}

/// A project with a gateway.
struct GatewayContext {
    context: TestContext,
}

impl Deref for GatewayContext {
    type Target = TestContext;

    fn deref(&self) -> &Self::Target {
        &self.context
    }
}

impl GatewayContext {
    /// A project with these servers and [`RULES`].
    fn new(servers: &Value) -> Self {
        let context = TestContext::new();
        context.write(".mcp.json", json!({ "mcpServers": servers }).to_string());
        context.write(".mcp-gateway-rules.json", RULES);
        Self { context }
    }

    /// A project with one faulty server per mode, named after its mode.
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
    client.call_tool("execute_tool", arguments)
}

fn call_tool_text(client: &mut McpClient, server: &str, tool: &str) -> String {
    let result = execute(client, server, tool, json!({}));
    assert_ne!(result["isError"], true, "{result}");
    result_text(&result).to_owned()
}

/// Error code of a refused or failed call.
fn error_code(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    result_text(result).split(':').next().unwrap()
}
