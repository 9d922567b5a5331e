//! The shipped agents and a project created by `adjutant init`, with the real `claude`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::claude_context::{ClaudeContext, NEW, OLD, report};
use crate::support::real_claude::scripted_environment;
use crate::support::text::mask;

/// A fake `gh` that logs its arguments to the file `calls`.
const FAKE_GH: &str = "#!/bin/sh\necho \"$*\" >> \"$(dirname \"$0\")/calls\"\n";

#[test]
fn github_reads_without_approval_and_writes_only_with_it() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    copy_agent(&fixture, "github");
    let bin = write_program(&fixture, "gh", FAKE_GH);
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
    let output = fixture.adjutant(["run", "github", &script, "--json"]).env("PATH", path).output();
    let report = report(&output.unwrap());
    let calls = fs::read_to_string(bin.join("calls")).unwrap_or_default();
    assert_eq!(calls, "issue list --limit 3\n", "{report}");
    // Two commands need approval and no person can be asked, so both are denied.
    assert!(report["denials"].as_array().is_some_and(|denials| denials.len() >= 4), "{report}");
}

#[test]
fn security_specialist_reads_only_the_project() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    copy_agent(&fixture, "security-specialist");
    fixture.write("src/door.rs", "fn open() { /* the key is under the mat */ }");
    let outside = fixture.home().join("secret");
    fs::write(&outside, "nobody's business").unwrap();
    let home = fixture.home();
    let script = [
        format!("CALL Read {}", json!({ "file_path": fixture.root().join("src/door.rs") })),
        format!("CALL Grep {}", json!({ "pattern": "fn open", "output_mode": "content" })),
        format!("CALL Read {}", json!({ "file_path": outside })),
        format!(
            "CALL Grep {}",
            json!({ "pattern": "business", "path": home, "output_mode": "content" })
        ),
        format!(
            "CALL Write {}",
            json!({ "file_path": fixture.root().join("new"), "content": "x" })
        ),
    ]
    .join("\n");
    let report = fixture.run("security-specialist", &script);
    let result = report["result"].as_str().unwrap_or_default();
    insta::assert_snapshot!(mask(result), @r"
    1	fn open() { /* the key is under the mat */ }
    src/door.rs:1:fn open() { /* the key is under the mat */ }
    Denied by Adjutant: agent `security-specialist` wants `Read: [HOME]/secret`; no rule for `Read` in `permissions.allow` of its agent.md allows it, and nobody can be asked: `adjutant run` has no terminal. `Read(/[HOME]/**)` in `permissions.allow` of its agent.md would allow it. Do without it, and say so in your answer.
    PreToolUse:Grep hook error: agent `security-specialist` may not search `[HOME]` with this call: it holds files of Adjutant that `claude` would not leave out; search the working directory without `path`, or directories that hold none of them
    <tool_use_error>Error: No such tool available: Write. Write is disabled for this session, in subagents as well as here.</tool_use_error>
    ");
    assert!(!result.contains("business"), "{report}");
    assert!(!fixture.root().join("new").exists(), "{report}");
}

#[test]
fn auditor_returns_validated_json() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    copy_agent(&fixture, "dependency-auditor");
    let answer = json!({ "summary": "Nothing to audit.", "ecosystems": [], "findings": [], "not_checked": [] });
    // `claude` tells a model with a schema to answer like this.
    let report = fixture.run("dependency-auditor", &format!("CALL StructuredOutput {answer}"));
    assert_eq!(report["output"], answer, "{report}");
}

#[test_case(NEW)]
#[test_case(OLD)]
fn claude_code_finds_the_server_that_init_configured(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    assert!(fixture.adjutant(["init"]).output().unwrap().status.success());
    fixture.write("src/door.rs", "the door is blue");
    let file = fixture.root().join("src/door.rs");
    let prompt = format!("CALL Read {}", json!({ "file_path": file }));
    let task = json!({ "agent_name": "project-guide", "prompt": prompt });
    let script = format!("CALL mcp__adjutant__run_subagent {task}");
    let output = Command::new(&fixture.claude)
        .args(["-p", &script, "--output-format", "json", "--mcp-config", ".mcp.json"])
        .args(["--allowedTools", "mcp__adjutant__run_subagent"])
        .current_dir(fixture.root())
        .env_clear()
        .envs(scripted_environment(&fixture.model, &fixture.home()))
        .env("ADJUTANT_CLAUDE", &fixture.claude)
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let answer = answer["result"].as_str().unwrap_or_default();
    assert!(answer.contains("the door is blue"), "{answer}");
}

fn copy_agent(fixture: &ClaudeContext, name: &str) {
    let shipped = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("agents").join(name);
    for entry in fs::read_dir(shipped).unwrap() {
        let entry = entry.unwrap();
        let path = format!("agents/{name}/{}", entry.file_name().to_str().unwrap());
        fixture.write(path, fs::read(entry.path()).unwrap());
    }
}

/// Writes an executable script and returns its directory, for use in `PATH`.
fn write_program(fixture: &ClaudeContext, name: &str, text: &str) -> PathBuf {
    fixture.write(format!("bin/{name}"), text);
    let folder = fixture.root().join("bin");
    fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}
