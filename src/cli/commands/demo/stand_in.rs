//! Fake `claude` for machines without one. Follows a script and identifies itself as a stand-in.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::cli::output;
use crate::process::{ProcessSpec, SymlinkPolicy, spawn_process};
use crate::store::write_new_script;
use crate::util::RunId;

const COMMAND: &str = "__stand-in-claude";
const FLAGS: &str = "  --input-format <x>\n  --mcp-config <x>\n  --setting-sources <x>\n  --settings <x>\n  --strict-mcp-config\n  --tools <x>\n  --no-session-persistence\n";

/// Writes the stand-in into a directory as an executable named `claude`.
pub(crate) fn install_into(folder: &Path) -> io::Result<PathBuf> {
    let file = folder.join("claude");
    let program = env::current_exe()?;
    let program = program.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
    // Within single quotes, a shell reads `'\''` as one single quote.
    let program = program.replace('\'', r"'\''");
    write_new_script(&file, &format!("#!/bin/sh\nexec '{program}' {COMMAND} \"$@\"\n"))?;
    Ok(file)
}

/// Runs the stand-in if this process was started as one.
pub(crate) fn hidden_command() -> Option<ExitCode> {
    let mut arguments = env::args().skip(1);
    if arguments.next().as_deref() != Some(COMMAND) {
        return None;
    }
    let arguments: Vec<String> = arguments.collect();
    match arguments.first().map(String::as_str) {
        Some("--help") => output::print(FLAGS),
        Some("--version") => output::print("0.0.0 (a stand-in, not Claude Code)"),
        _ => serve_stdin(&arguments),
    }
    Some(ExitCode::SUCCESS)
}

/// Answers control requests and prompts until the end of stdin.
fn serve_stdin(arguments: &[String]) {
    let allowed = allowed_commands(arguments);
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(frame) = serde_json::from_str::<Value>(&line) else { continue };
        match frame.get("type").and_then(Value::as_str) {
            Some("control_request") => {
                let id = frame.get("request_id");
                write_frame(
                    &json!({ "type": "control_response", "response": { "subtype": "success", "request_id": id, "response": {} } }),
                );
            }
            Some("user") => answer_prompt(
                frame.pointer("/message/content").and_then(Value::as_str).unwrap_or_default(),
                &allowed,
            ),
            _ => {}
        }
    }
}

/// Returns the commands that rules such as `Bash(curl:*)` in `permissions.allow` permit.
fn allowed_commands(arguments: &[String]) -> Vec<String> {
    let file = arguments.iter().find_map(|argument| argument.strip_prefix("--settings="));
    let text = file.and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    let settings: Value = serde_json::from_str(&text).unwrap_or_default();
    let rules = settings
        .pointer("/permissions/allow")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    rules
        .iter()
        .filter_map(|rule| {
            Some(rule.as_str()?.strip_prefix("Bash(")?.strip_suffix(":*)")?.to_owned())
        })
        .collect()
}

fn answer_prompt(prompt: &str, allowed: &[String]) {
    let script = prompt.lines().find_map(|line| line.strip_prefix("CALL Bash "));
    let input: Value = script.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let command = input.get("command").and_then(Value::as_str).unwrap_or_default();
    write_frame(
        &json!({ "type": "system", "subtype": "init", "session_id": "stand-in", "tools": ["Bash"], "mcp_servers": [] }),
    );
    let call = json!({ "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": input });
    write_frame(
        &json!({ "type": "assistant", "message": { "id": "m1", "role": "assistant", "content": [call] } }),
    );
    let permitted = allowed.iter().any(|start| command.split(' ').next() == Some(start));
    let text = if permitted { run_shell(command) } else { format!("no rule allows `{command}`") };
    let result = json!({ "type": "tool_result", "tool_use_id": "toolu_1", "is_error": !permitted, "content": text });
    write_frame(&json!({ "type": "user", "message": { "role": "user", "content": [result] } }));
    write_frame(
        &json!({ "type": "result", "subtype": "success", "is_error": false, "result": text, "session_id": "stand-in", "total_cost_usd": 0, "num_turns": 2 }),
    );
}

/// Runs a permitted command under the supervisor; returns its stdout, or the start error.
fn run_shell(command: &str) -> String {
    let launch = ProcessSpec {
        label: "shell".to_owned(),
        run: RunId::new(),
        program: "/bin/sh".into(),
        arguments: vec!["-c".into(), command.into()],
        environment: env::vars_os().collect(),
        working_dir: env::current_dir().unwrap_or_else(|_| "/".into()),
        symlinks: SymlinkPolicy::Follow,
    };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return String::new();
    };
    runtime.block_on(async {
        let mut text = String::new();
        match spawn_process(launch).await {
            Ok(mut process) => {
                if let Some(mut stdout) = process.stdout.take() {
                    let _ = stdout.read_to_string(&mut text).await;
                }
                process.wait().await;
            }
            Err(error) => text = error.to_string(),
        }
        text
    })
}

fn write_frame(frame: &Value) {
    output::print(frame);
}
