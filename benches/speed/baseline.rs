//! A `claude -p` without Adjutant, with the same flags.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::support::claude_context::ClaudeContext;
use crate::support::real_claude::scripted_environment;

/// One call from start to end; `more` are further flags.
pub fn call(fixture: &ClaudeContext, more: &[String], prompt: &str, expected: &str) {
    finish(start(fixture, more, prompt), expected);
}

/// Starts one call and writes the prompt to its stdin.
pub fn start(fixture: &ClaudeContext, more: &[String], prompt: &str) -> Child {
    let home = fixture.context.home();
    fs::write(home.join("prompt.md"), "You fetch pages.\n").unwrap();
    fs::write(home.join("settings.json"), r#"{"permissions":{"allow":["Bash(curl:*)"]}}"#).unwrap();
    let mut command = Command::new(&fixture.claude);
    command
        .args(["-p", "--output-format=stream-json", "--verbose", "--setting-sources="])
        .args(["--strict-mcp-config", "--disable-slash-commands", "--tools=Bash"])
        .arg("--permission-mode=default")
        .arg(format!("--settings={}", home.join("settings.json").display()))
        .arg(format!("--system-prompt-file={}", home.join("prompt.md").display()))
        .args(more)
        .env_clear()
        .envs(scripted_environment(&fixture.model, &home))
        .env("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1")
        .current_dir(fixture.context.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("claude starts");
    child.stdin.take().unwrap().write_all(prompt.as_bytes()).unwrap();
    child
}

/// Waits for the exit and checks the answer.
pub fn finish(child: Child, expected: &str) {
    let output = child.wait_with_output().unwrap();
    let wanted = format!("\"result\":\"{expected}\"");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&wanted), "{output:?}");
}

/// Flags of a call without transcript and servers.
pub fn one_shot_flags() -> Vec<String> {
    vec!["--no-session-persistence".to_owned(), "--mcp-config={\"mcpServers\":{}}".to_owned()]
}
