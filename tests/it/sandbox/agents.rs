//! Agents with `sandbox:` in their `agent.md`, with the real `claude` and a scripted model.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use test_case::test_case;

use super::bwrap;
use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::idle_processes::{call_agent, wait_for_idle_process, wait_until_gone};
use crate::support::wait::wait_until;

const WORKSPACE: &str = "---\ndescription: \"Works.\"\nsandbox: workspace\npermissions: { allow: [Bash, Write, Read] }\n---\n\nYou work.\n";
/// Everything in the project of a test before the first run.
const BEFORE: [&str; 2] = [".git", "agents"];

/// A project with one agent in a sandbox; `None`, with a message, if this cannot be tested here.
fn project(version: &str, agent: &str) -> Option<ClaudeContext> {
    bwrap()?;
    let context = ClaudeContext::new(version)?;
    context.agent("worker", agent);
    Some(context)
}

fn bash(command: &str) -> String {
    format!("CALL Bash {}\n", json!({ "command": command, "description": "test" }))
}

/// Results of tools that the model was given, as text.
fn tool_results(context: &ClaudeContext) -> String {
    let requests = context.model.requests();
    let Some(last) = requests.last() else { return String::new() };
    let mut texts = String::new();
    collect(&last.body["messages"], &mut texts);
    texts
}

fn collect(value: &Value, texts: &mut String) {
    match value {
        Value::Object(members) if members.get("type") == Some(&json!("tool_result")) => {
            texts.push_str(members["content"].as_str().unwrap_or(&members["content"].to_string()));
            texts.push('\n');
        }
        Value::Object(members) => members.values().for_each(|value| collect(value, texts)),
        Value::Array(items) => items.iter().for_each(|value| collect(value, texts)),
        _ => {}
    }
}

/// Runs commands in the sandbox and returns what they printed.
fn shell(context: &ClaudeContext, command: &str) -> String {
    let report = context.run("worker", &format!("{}SAY done", bash(command)));
    assert_eq!(report["result"], "done", "{report}");
    tool_results(context)
}

/// Names in the project's folder without `data/`.
fn left(root: &Path) -> Vec<String> {
    let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name != "data");
    names.sort();
    names
}

fn wait_until_clean(root: &Path, wanted: &[&str]) {
    wait_until("the placeholders are gone", || (left(root) == wanted).then_some(()));
}

#[test_case(OLD)]
#[test_case(NEW)]
fn an_agent_works_in_its_project_and_nowhere_else(version: &str) {
    let Some(context) = project(version, WORKSPACE) else { return };
    fs::write(context.home().join("private.txt"), "secret of the user").unwrap();
    let root = context.root();
    let command = "echo ran-it; id -un; pwd; echo made > made.txt; cat ~/private.txt; ls -A data; env; \
        for f in agents/worker/agent.md .mcp.json .mcp-gateway-rules.json .claude/settings.json extensions/x .git/config config/.mcp.json data/x; do \
        (echo x > $f) 2>&1 | grep -o 'Read-only file system\\|Permission denied'; done";
    let write = format!(
        "CALL Write {}\n",
        json!({ "file_path": root.join("written.txt"), "content": "by Write" })
    );
    let report = context.run("worker", &format!("{}{write}SAY done", bash(command)));
    assert_eq!(report["result"], "done", "{report}");
    let output = tool_results(&context);
    assert!(output.contains("ran-it") && output.contains("agent"), "{output}");
    assert!(output.contains(root.to_str().unwrap()) && !output.contains("secret of"), "{output}");
    assert_eq!(output.matches("Read-only file system").count(), 8, "{output}");
    assert!(!output.contains("sk-ant-scripted"), "the key is not inside: {output}");
    assert_eq!(fs::read_to_string(root.join("made.txt")).unwrap(), "made\n");
    assert_eq!(fs::read_to_string(root.join("written.txt")).unwrap(), "by Write");
    assert!(context.model.requests().iter().all(|r| r.headers["x-api-key"] == "sk-ant-scripted"));
    wait_until_clean(&root, &[".git", "agents", "made.txt", "written.txt"]);
}

#[test]
fn a_read_only_project_cannot_be_written() {
    let agent = WORKSPACE.replace("workspace", "read-only");
    let Some(context) = project(NEW, &agent) else { return };
    context.write("src/a.txt", "text");
    let output = shell(
        &context,
        "cat src/a.txt; (echo x > src/b.txt) 2>&1; echo x > /tmp/t && echo tmp-works",
    );
    assert!(output.contains("text") && output.contains("Read-only file system"), "{output}");
    assert!(output.contains("tmp-works"), "{output}");
    assert_eq!(
        left(&context.root()),
        [".git", "agents", "src"],
        "a read-only project needs no placeholder"
    );
}

#[test]
fn folders_are_hidden_readable_and_writable_as_written() {
    let agent = WORKSPACE.replace(
        "sandbox: workspace",
        "sandbox:\n  filesystem:\n    write: [src]\n    read: [\"~/lib\"]\n    hide: [secrets/]\n  network: none",
    );
    let Some(context) = project(NEW, &agent) else { return };
    context.write("src/a", "").write("secrets/s", "hidden-text").write("other", "");
    fs::create_dir(context.home().join("lib")).unwrap();
    fs::write(context.home().join("lib/l"), "library").unwrap();
    let output = shell(
        &context,
        "echo start; cat secrets/s; cat ~/lib/l; echo x > src/new && echo src-works; echo x > other; echo x > ~/lib/x; \
         curl -s --max-time 3 http://127.0.0.1:1 || echo no-network",
    );
    assert!(output.contains("library") && output.contains("src-works"), "{output}");
    assert!(!output.contains("hidden-text") && output.contains("no-network"), "{output}");
    assert_eq!(output.matches("Read-only file system").count(), 2, "{output}");
}

#[test_case(OLD)]
#[test_case(NEW)]
fn a_session_goes_on_and_sees_its_own_transcript_only(version: &str) {
    let agent = WORKSPACE.replace("sandbox:", "session: true\nsandbox:");
    let Some(context) = project(version, &agent) else { return };
    let first = context.run("worker", "REMEMBER the-first\nSAY one");
    let id = first["session_id"].as_str().unwrap_or_else(|| panic!("{first}")).to_owned();
    let second = context.run(
        "worker",
        &format!("{}SAY two", bash("find ~/.claude/projects -name '*.jsonl' | wc -l; ls data")),
    );
    assert_eq!((&second["result"], &second["session_id"]), (&json!("two"), &json!(id)), "{second}");
    assert!(tool_results(&context).trim().starts_with('1'), "{}", tool_results(&context));
    let requests = context.model.requests();
    assert!(requests.last().unwrap().body.to_string().contains("REMEMBER the-first"));
    let shown = context.adjutant(["sessions", "show", "worker", "--json"]).output().unwrap();
    let shown = crate::support::claude_context::report(&shown);
    let transcript = shown["agent_transcript_path"].as_str().unwrap_or_else(|| panic!("{shown}"));
    assert!(transcript.contains(&format!("data/transcripts/{id}/")), "{transcript}");
    let events = context.events_named("RunEnded");
    let told =
        events.last().unwrap()["agent_transcript_path"].as_str().unwrap_or_default().to_owned();
    assert!(told == transcript, "{told}");
    assert!(context.adjutant(["sessions", "forget", "worker"]).output().unwrap().status.success());
    assert!(!Path::new(transcript).exists(), "forgotten with its session");
}

#[test]
fn a_session_begun_without_a_sandbox_goes_on_in_one() {
    let agent = WORKSPACE.replace("sandbox:", "session: true\nsandbox:");
    let Some(context) = project(NEW, &agent.replace("sandbox: workspace", "sandbox: off")) else {
        return;
    };
    let first = context.run("worker", "SAY one");
    context.agent("worker", &agent);
    let second = context.run("worker", "SAY two");
    assert_eq!(second["result"], "two", "{second}");
    assert_eq!(first["session_id"], second["session_id"]);
    let last = context.model.requests().last().unwrap().body.to_string();
    assert!(last.contains("SAY one"), "{last}");
}

#[test]
fn a_control_file_that_is_replaced_on_the_host_ends_the_run() {
    let Some(context) = project(NEW, WORKSPACE) else { return };
    let root = context.root();
    context.write(".mcp.json", "{\"mcpServers\": {}}").write("new.json", "{\"mcpServers\": {}}");
    let mut command = context.adjutant(["run", "worker", "--json"]);
    command.arg(format!("{}SAY done", bash("echo up > up.txt; sleep 60")));
    let running = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("the command runs", || root.join("up.txt").exists().then_some(()));
    fs::rename(root.join("new.json"), root.join(".mcp.json")).unwrap();
    let report = crate::support::claude_context::report(&running.wait_with_output().unwrap());
    assert_eq!(report["error"]["code"], "INTERRUPTED", "{report}");
    assert!(report.to_string().contains(".mcp.json"), "{report}");
    let audited = context.audit_entries();
    assert!(audited.iter().any(|entry| entry["code"] == "INTERRUPTED"), "{audited:?}");
}

#[test]
fn scripts_that_run_outside_are_not_the_agents_to_write() {
    let agent = WORKSPACE.replace(
        "permissions:",
        "hooks:\n  Stop:\n    - hooks: [{ type: command, command: \"sh ./tools/hook.sh\" }]\npermissions:",
    );
    let Some(context) = project(NEW, &agent) else { return };
    context.write("tools/hook.sh", "exit 0\n").write("tools/other.sh", "");
    context.write(
        ".mcp.json",
        r#"{"mcpServers": {"s": {"command": "node", "args": ["tools/server.js"]}}}"#,
    );
    context.write("tools/server.js", "");
    let output = shell(
        &context,
        "echo start; for f in hook.sh server.js other.sh; do echo evil > tools/$f && echo wrote-$f; done; \
         mv tools/hook.sh tools/x; rm tools/server.js; mv tools t2 && mkdir tools",
    );
    assert!(output.contains("wrote-other.sh") && !output.contains("wrote-hook.sh"), "{output}");
    assert!(!output.contains("wrote-server.js"), "{output}");
}

#[test]
fn a_plan_lists_every_mount_and_variable_with_its_reason() {
    let Some(context) = project(NEW, WORKSPACE) else { return };
    let output = context.adjutant(["plan", "worker", "--json"]).output().unwrap();
    let plan = crate::support::claude_context::report(&output);
    let parts: Vec<String> = plan["sandbox"]
        .as_array()
        .unwrap_or_else(|| panic!("{plan}"))
        .iter()
        .map(|part| {
            format!("{} {}: {}", part["kind"], part["text"], part["reason"]).replace('"', "")
        })
        .collect();
    let root = context.root().display().to_string();
    for wanted in [
        format!("mount writable {root}: `write: .` in its sandbox"),
        format!("mount read-only {root}/agents: agent files"),
        "variable inside ANTHROPIC_API_KEY: stands for the login, which is outside".to_owned(),
    ] {
        assert!(parts.contains(&wanted), "{wanted} in {parts:#?}");
    }
    assert!(!plan.to_string().contains("sk-ant-scripted"));
    assert_eq!(left(&context.root()), BEFORE, "nothing is created");
}

#[test]
fn symbolic_links_at_protected_paths_are_refused() {
    let Some(context) = project(NEW, WORKSPACE) else { return };
    std::os::unix::fs::symlink("elsewhere", context.root().join(".claude")).unwrap();
    let report = context.run("worker", "SAY hello");
    assert_eq!(report["error"]["code"], "SANDBOX_UNAVAILABLE", "{report}");
    assert!(report.to_string().contains("symbolic link"), "{report}");
    assert!(context.model.requests().is_empty());
}

#[test_case(&[("ADJUTANT_BWRAP", "/nowhere/bwrap")], "ADJUTANT_BWRAP"; "no bubblewrap")]
#[test_case(&[("ADJUTANT_BWRAP", "refusing")], "No permissions"; "a system that refuses")]
#[test_case(&[("CLAUDE_CODE_USE_BEDROCK", "1")], "Bedrock"; "bedrock")]
#[test_case(&[("CLAUDE_CODE_USE_VERTEX", "1")], "Vertex"; "vertex")]
#[test_case(&[("CLAUDE_CODE_USE_FOUNDRY", "1")], "Foundry"; "foundry")]
#[test_case(&[("ANTHROPIC_API_KEY", "")], "no login"; "no login")]
fn without_a_sandbox_nothing_is_started(variables: &[(&str, &str)], reason: &str) {
    let Some(context) = project(NEW, WORKSPACE) else { return };
    let mut command = context.adjutant(["run", "worker", "SAY hello", "--json"]);
    command.envs(variables.iter().copied());
    if variables[0].1 == "refusing" {
        let refusing = context.home().join("bwrap");
        fs::write(
            &refusing,
            "#!/bin/sh\necho 'bwrap: No permissions to create new namespace, likely' >&2\nexit 1\n",
        )
        .unwrap();
        fs::set_permissions(&refusing, fs::Permissions::from_mode(0o755)).unwrap();
        command.env("ADJUTANT_BWRAP", refusing);
    }
    let output = command.output().unwrap();
    let report = crate::support::claude_context::report(&output);
    assert!(report["error"].to_string().contains(reason), "{report}");
    assert_eq!(report["result"], Value::Null);
    assert!(context.model.requests().is_empty());
    wait_until_clean(&context.root(), &BEFORE);
    assert_eq!(report["error"]["code"], "SANDBOX_UNAVAILABLE", "{report}");
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn warm_processes_have_their_sandbox_and_reach_the_model_only_in_a_run() {
    let agent = WORKSPACE.replace("sandbox:", "warm: 1\nsandbox:");
    let Some(context) = project(NEW, &agent) else { return };
    let mut server = context.serve();
    server.initialize();
    let pid = wait_for_idle_process(&context);
    let answer = call_agent(
        &mut server,
        "worker",
        &format!("{}SAY warm", bash("cat /proc/1/cmdline | tr '\\0' ' '; id -un")),
    );
    assert!(answer.to_string().contains("warm"), "{answer}");
    assert!(tool_results(&context).contains("__relay"), "{}", tool_results(&context));
    wait_until_gone(pid);
    server.stop();
    wait_until_clean(&context.root(), &BEFORE);
}

#[test]
fn a_deadline_ends_everything_in_the_sandbox() {
    let agent = WORKSPACE.replace("sandbox:", "timeout_ms: 6000\nsandbox:");
    let Some(context) = project(NEW, &agent) else { return };
    let marker = format!("27182{}", std::process::id());
    let command = format!("(setsid nohup sleep {marker} &); sleep {marker}");
    let report = context.run("worker", &format!("{}SAY done", bash(&command)));
    assert_eq!(report["error"]["code"], "TIMEOUT", "{report}");
    assert_eq!(super::processes_with(&marker), 0);
    wait_until_clean(&context.root(), &BEFORE);
}

/// Every fifth run is killed at another time. `ADJUTANT_TEST_SANDBOX_RUNS` raises the number of runs.
#[test]
fn nothing_is_left_in_the_project_after_runs_and_kills() {
    let Some(context) = project(NEW, WORKSPACE) else { return };
    let runs = std::env::var("ADJUTANT_TEST_SANDBOX_RUNS").ok().and_then(|n| n.parse().ok());
    for run in 0..runs.unwrap_or(10_u64) {
        let mut command = context.adjutant(["run", "worker", "--json"]);
        command.arg(format!("{}SAY done", bash("sleep 0.2; echo ran")));
        let mut running = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        if run % 5 == 4 {
            std::thread::sleep(Duration::from_millis(100 + 97 * (run % 13)));
            running.kill().unwrap();
        }
        running.wait().unwrap();
    }
    assert_eq!(context.run("worker", "SAY last")["result"], "last");
    wait_until_clean(&context.root(), &BEFORE);
    let placeholders = fs::read_dir(context.root().join("data/placeholders")).unwrap();
    let names = placeholders.map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| name != ".lock").count(), 0);
}
