//! A `claude -p` as somebody would call it without Adjutant, with the same flags.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::support::claude::scripted_environment;
use crate::support::stage::Stage;

/// The agent of all rows: one tool, a prompt of its own.
pub const AGENT: &str = "---\nname: fetcher\ndescription: Fetches pages\npermissions:\n  allow: [\"Bash(curl:*)\"]\n---\nYou fetch pages.\n";

/// One call from start to end; `more` are further flags.
pub fn call(stage: &Stage, more: &[String], prompt: &str, expected: &str) {
    finish(begin(stage, more, prompt), expected);
}

/// Starts one and gives it the prompt.
pub fn begin(stage: &Stage, more: &[String], prompt: &str) -> Child {
    let home = stage.context.home();
    fs::write(home.join("prompt.md"), "You fetch pages.\n").unwrap();
    fs::write(home.join("settings.json"), r#"{"permissions":{"allow":["Bash(curl:*)"]}}"#).unwrap();
    let mut command = Command::new(&stage.claude);
    command
        .args(["-p", "--output-format=stream-json", "--verbose", "--setting-sources="])
        .args(["--strict-mcp-config", "--disable-slash-commands", "--tools=Bash"])
        .arg("--permission-mode=default")
        .arg(format!("--settings={}", home.join("settings.json").display()))
        .arg(format!("--system-prompt-file={}", home.join("prompt.md").display()))
        .args(more)
        .env_clear()
        .envs(scripted_environment(&stage.model, &home))
        .env("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1")
        .current_dir(stage.context.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("claude starts");
    child.stdin.take().unwrap().write_all(prompt.as_bytes()).unwrap();
    child
}

/// Waits for its answer.
pub fn finish(child: Child, expected: &str) {
    let output = child.wait_with_output().unwrap();
    let wanted = format!("\"result\":\"{expected}\"");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&wanted), "{output:?}");
}

/// Flags of a call that leaves no transcript and has no servers.
pub fn passing() -> Vec<String> {
    vec!["--no-session-persistence".to_owned(), "--mcp-config={\"mcpServers\":{}}".to_owned()]
}
