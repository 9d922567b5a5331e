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

#[test]
fn the_security_specialist_reads_the_project_and_nothing_beside_it() {
    let Some(stage) = Stage::new(NEW) else { return };
    copy_agent(&stage, "security-specialist");
    stage.context.write("src/door.rs", "fn open() { /* the key is under the mat */ }");
    let outside = stage.context.home().join("secret");
    fs::write(&outside, "nobody's business").unwrap();
    let home = stage.context.home();
    let script = [
        format!("CALL Read {}", json!({ "file_path": stage.context.root().join("src/door.rs") })),
        format!("CALL Grep {}", json!({ "pattern": "fn open", "output_mode": "content" })),
        format!("CALL Read {}", json!({ "file_path": outside })),
        format!(
            "CALL Grep {}",
            json!({ "pattern": "business", "path": home, "output_mode": "content" })
        ),
        format!(
            "CALL Write {}",
            json!({ "file_path": stage.context.root().join("new"), "content": "x" })
        ),
    ]
    .join("\n");
    let report = stage.run("security-specialist", &script);
    let result = report["result"].as_str().unwrap_or_default();
    assert!(result.contains("under the mat"), "{report}");
    assert!(!result.contains("business"), "{report}");
    assert!(!stage.context.root().join("new").exists(), "{report}");
}

#[test]
fn the_auditor_returns_json_that_was_checked() {
    let Some(stage) = Stage::new(NEW) else { return };
    copy_agent(&stage, "dependency-auditor");
    let answer = json!({ "summary": "Nothing to audit.", "ecosystems": [], "findings": [], "not_checked": [] });
    // As `claude` tells a model with a schema to answer.
    let report = stage.run("dependency-auditor", &format!("CALL StructuredOutput {answer}"));
    assert_eq!(report["output"], answer, "{report}");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn claude_code_finds_the_server_where_init_has_put_it(version: &str) {
    let Some(stage) = Stage::new(version) else { return };
    assert!(stage.adjutant(["init"]).output().unwrap().status.success());
    stage.context.write("src/door.rs", "the door is blue");
    let file = stage.context.root().join("src/door.rs");
    let prompt = format!("CALL Read {}", json!({ "file_path": file }));
    let task = json!({ "agent_name": "project-guide", "prompt": prompt });
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
    assert!(answer.contains("the door is blue"), "{answer}");
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
