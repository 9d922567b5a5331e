//! Who is calling: the main agent and its native subagents, told apart by what Claude Code itself attests.

mod attacks;
#[path = "identity/native_subagents.rs"]
mod native;
#[path = "identity/main_session_events.rs"]
mod recorded;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::gateway::faulty;
use crate::support::claude::scripted_environment;
use crate::support::fake::fake_claude;
use crate::support::stage::Stage;

/// A project that `adjutant init` made ready, with a native subagent and somebody to call for each.
pub(crate) fn stage(version: &str) -> Option<Stage> {
    let stage = Stage::new(version)?;
    for (name, caller) in [("for-main", "main"), ("for-reviewer", "code-reviewer")] {
        let text = format!(
            "---\nname: {name}\ndescription: Helps\nallowed_callers: [{caller}]\n---\nHelp.\n"
        );
        stage.context.agent(name, &text);
    }
    stage.context.write(
        ".claude/agents/code-reviewer.md",
        "---\nname: code-reviewer\ndescription: Reviews code\n---\nYou review.\n",
    );
    stage.context.write(
        ".mcp-gateway-rules.json",
        r#"{"agents": {"main": {"allow": {"servers": ["good"]}}, "code-reviewer": {"deny": {"servers": ["*"]}}}}"#,
    );
    assert!(stage.context.run(["init"]).status.success());
    let servers = json!({ "mcpServers": {
        "adjutant": {
            "command": env!("CARGO_BIN_EXE_adjutant"), "args": ["serve"],
            // The subagents' own `claude` is not the subject here.
            "env": { "ADJUTANT_CLAUDE": fake_claude() },
        },
        "good": { "command": faulty() },
    }});
    stage.context.write(".mcp.json", servers.to_string());
    Some(stage)
}

/// Lets the real `claude` work on a script as the main agent.
pub(crate) fn main_agent(stage: &Stage, script: &str) -> Output {
    start_main_agent(stage, script).wait_with_output().unwrap()
}

/// The same, while it works.
pub(crate) fn start_main_agent(stage: &Stage, script: &str) -> Child {
    let mut command = Command::new(&stage.claude);
    command
        .args(["-p", "--output-format", "stream-json", "--verbose"])
        .args(["--settings", r#"{"enabledMcpjsonServers": ["adjutant", "tools"]}"#])
        .args(["--permission-mode", "bypassPermissions"])
        .env_clear()
        .envs(scripted_environment(&stage.model, &stage.context.home()))
        // `bypassPermissions` is refused to root without it.
        .env("IS_SANDBOX", "1")
        .current_dir(stage.context.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("claude starts");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script.as_bytes()).unwrap();
    child
}

/// The lines of the audit log with that operation.
pub(crate) fn audited(stage: &Stage, operation: &str) -> Vec<Value> {
    let log = fs::read_to_string(stage.context.root().join("data/audit.jsonl")).unwrap_or_default();
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["operation"] == operation)
        .collect()
}

/// The ids of the tool uses in every transcript below `folder` whose path has that word, or has it not.
pub(crate) fn used(folder: &Path, word: &str, has: bool) -> Vec<String> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            ids.extend(used(&path, word, has));
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
