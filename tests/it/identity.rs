//! Caller identity: attestations distinguish the main agent from its native subagents.

mod attacks;
mod main_session_events;
mod native_subagents;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::gateway::faulty;
use crate::support::claude_context::ClaudeContext;
use crate::support::fake_claude::fake_claude;
use crate::support::real_claude::scripted_environment;

/// A project set up by `adjutant init`, with a native subagent `code-reviewer` and one agent that each caller may call.
pub(crate) fn identity_project(version: &str) -> Option<ClaudeContext> {
    let fixture = ClaudeContext::new(version)?;
    for (name, caller) in [("for-main", "main"), ("for-reviewer", "code-reviewer")] {
        let text = format!(
            "---\nname: {name}\ndescription: Helps\nallowed_callers: [{caller}]\n---\nHelp.\n"
        );
        fixture.agent(name, &text);
    }
    fixture.write(
        ".claude/agents/code-reviewer.md",
        "---\nname: code-reviewer\ndescription: Reviews code\n---\nYou review.\n",
    );
    fixture.write(
        ".mcp-gateway-rules.json",
        r#"{"agents": {"main": {"allow": {"servers": ["good"]}}, "code-reviewer": {"deny": {"servers": ["*"]}}}}"#,
    );
    assert!(fixture.context.run(["init"]).status.success());
    let servers = json!({ "mcpServers": {
        "adjutant": {
            "command": env!("CARGO_BIN_EXE_adjutant"), "args": ["serve"],
            // These tests need no real `claude` for Adjutant's own subagents.
            "env": { "ADJUTANT_CLAUDE": fake_claude() },
        },
        "good": { "command": faulty() },
    }});
    fixture.write(".mcp.json", servers.to_string());
    Some(fixture)
}

/// Runs the real `claude` as the main agent with this script.
pub(crate) fn run_main_agent(fixture: &ClaudeContext, script: &str) -> Output {
    start_main_agent(fixture, script).wait_with_output().unwrap()
}

/// Starts the real `claude` as the main agent and returns while it runs.
pub(crate) fn start_main_agent(fixture: &ClaudeContext, script: &str) -> Child {
    let mut command = Command::new(&fixture.claude);
    command
        .args(["-p", "--output-format", "stream-json", "--verbose"])
        .args(["--settings", r#"{"enabledMcpjsonServers": ["adjutant", "tools"]}"#])
        .args(["--permission-mode", "bypassPermissions"])
        .env_clear()
        .envs(scripted_environment(&fixture.model, &fixture.home()))
        // `claude` refuses `bypassPermissions` to root unless this is set.
        .env("IS_SANDBOX", "1")
        .current_dir(fixture.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("claude starts");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    child
}

/// The audit entries of one operation.
pub(crate) fn audit_entries_of(fixture: &ClaudeContext, operation: &str) -> Vec<Value> {
    let mut entries = fixture.audit_entries();
    entries.retain(|entry| entry["operation"] == operation);
    entries
}

/// Ids of the tool uses in the transcripts below `folder` whose path contains `word` (`has`) or does not (`!has`).
pub(crate) fn tool_use_ids(folder: &Path, word: &str, has: bool) -> Vec<String> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            ids.extend(tool_use_ids(&path, word, has));
        } else if path.extension().is_some_and(|end| end == "jsonl")
            && path.to_string_lossy().contains(word) == has
        {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let parts = text.split("\"type\":\"tool_use\",\"id\":\"").skip(1);
            ids.extend(parts.filter_map(|part| Some(part.split_once('"')?.0.to_owned())));
        }
    }
    ids
}
