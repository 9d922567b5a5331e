//! The measured calls of `execute_tool`: downstream server, project and messages.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Sequential calls of one round.
pub const CALLS: usize = 1_500;
/// Factor for the number of concurrent calls, each of which takes a tenth of the time.
pub const AT_ONCE: usize = 10;
/// Concurrent requests of the throughput measurements.
pub const IN_FLIGHT: usize = 32;
/// Text in the answer to each call.
pub const ANSWER: &str = "Echo: hello";

/// `server-everything`, installed by `cargo test --test it gateway_real`.
pub fn everything() -> Option<PathBuf> {
    let server = under_target("mcp-servers/node/node_modules/.bin/mcp-server-everything");
    if server.exists() {
        return Some(server);
    }
    println!("server-everything is not installed; run `cargo test --test it gateway_real` first");
    None
}

/// A path below the `target` folder of this crate.
pub fn under_target(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(path)
}

/// A project with this server behind the gateway, with rules and audit log.
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
