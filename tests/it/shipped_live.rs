//! The shipped agents and a project made by `init`, with the real `claude`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::claude::scripted_environment;
use crate::support::stage::{NEW, OLD, Stage, report};

/// Stands in for `gh`, and notes how it was called.
const GH: &str = "#!/bin/sh\necho \"$*\" >> \"$(dirname \"$0\")/calls\"\n";

#[test]
fn github_reads_freely_and_writes_with_a_person_alone() {
    let Some(stage) = Stage::new(NEW) else { return };
    copy_agent(&stage, "github");
    let bin = program(&stage, "gh", GH);
    let refused = [
        "gh issue create --title x",
        "gh api repos/a/b",
        "gh auth token",
        "gh pr list && gh auth token",
        "gh repo delete a/b",
    ];
    let commands = ["gh issue list --limit 3"].into_iter().chain(refused);
    let calls = commands.map(|command| format!("CALL Bash {}", json!({ "command": command })));
    let script = calls.collect::<Vec<_>>().join(
        "
",
    );
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = stage.adjutant(["run", "github", &script, "--json"]).env("PATH", path).output();
    let report = report(&output.unwrap());
    let calls = fs::read_to_string(bin.join("calls")).unwrap_or_default();
    assert_eq!(calls, "issue list --limit 3\n", "{report}");
    // The two that need a person are one denial: nobody was there to ask.
    assert!(report["denials"].as_array().is_some_and(|denials| denials.len() >= 4), "{report}");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn claude_code_finds_the_server_where_init_has_put_it(version: &str) {
    let Some(stage) = Stage::new(version) else { return };
    assert!(stage.adjutant(["init"]).output().unwrap().status.success());
    let task = json!({ "agent_name": "project-guide", "prompt": "SAY it is in src/door.rs" });
    let script = format!("CALL mcp__adjutant__run_subagent {task}");
    let output = Command::new(&stage.claude)
        .args(["-p", &script, "--output-format", "json", "--mcp-config", ".mcp.json"])
        .args(["--allowedTools", "mcp__adjutant__run_subagent"])
        .current_dir(stage.context.root())
        .env_clear()
        .envs(scripted_environment(&stage.model, &stage.context.home()))
        .env("ADJUTANT_CLAUDE", &stage.claude)
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let answer = answer["result"].as_str().unwrap_or_default();
    assert!(answer.contains("it is in src/door.rs"), "{answer}");
}

fn copy_agent(stage: &Stage, name: &str) {
    let shipped = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("agents").join(name);
    for entry in fs::read_dir(shipped).unwrap() {
        let entry = entry.unwrap();
        let path = format!("agents/{name}/{}", entry.file_name().to_str().unwrap());
        stage.context.write(path, fs::read(entry.path()).unwrap());
    }
}

/// A program of the test's own, in a folder for the `PATH`.
fn program(stage: &Stage, name: &str, text: &str) -> PathBuf {
    stage.context.write(format!("bin/{name}"), text);
    let folder = stage.context.root().join("bin");
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}
