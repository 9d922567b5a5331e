//! Commands started by an agent: commands that act for a caller or change the project are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use adjutant::process::{ProcessEnd, ProcessSpec, SymlinkPolicy, spawn_process};
use adjutant::util::RunId;
use serde_json::json;
use test_case::test_case;

use crate::command_line::{every_command, has_subcommands};
use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW, OLD};
use crate::support::wait::wait_until;

use self::Expected::{Allowed, Refused, RefusedWithZero};

/// Expected result of a command started by an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Runs: the command only reads.
    Allowed,
    /// Exit code 2, nothing on stdout and one line on stderr.
    Refused,
    /// As [`Self::Refused`] with exit code 0: Claude Code takes 2 from a hook as "block this call".
    RefusedWithZero,
}

/// Every command with valid arguments. `{kit}` is replaced by a directory with an extension.
const COMMANDS: &[(&str, &str, Expected)] = &[
    ("audit", "", Allowed),
    ("auth login", "files", Refused),
    ("auth logout", "files", Refused),
    ("auth status", "", Allowed),
    ("check", "", Allowed),
    ("check", "--fix", Refused),
    ("completions", "bash", Allowed),
    ("costs", "", Allowed),
    ("demo", "--scripted", Refused),
    ("doctor", "", Allowed),
    ("doctor", "--live", Refused),
    ("events", "", Allowed),
    ("explain", "--agent helper --builtin Bash", Allowed),
    ("extensions add", "{kit}", Refused),
    ("extensions check", "", Allowed),
    ("extensions list", "", Allowed),
    ("extensions remove", "installed", Refused),
    ("gateway", "", Refused),
    ("hook", "", RefusedWithZero),
    ("init", "", Refused),
    ("init", "--refresh", Refused),
    ("list", "", Allowed),
    ("matrix", "", Allowed),
    ("new", "another", Refused),
    ("plan", "helper", Allowed),
    ("run", "helper hello", Refused),
    ("runs list", "--all", Allowed),
    ("runs show", "last", Allowed),
    ("runs stop", "0", Refused),
    ("schema", "", Allowed),
    ("serve", "", Refused),
    ("sessions forget", "helper", Refused),
    ("sessions list", "", Allowed),
    ("sessions prune", "--older-than 1d --yes", Refused),
    ("sessions show", "helper", Allowed),
    ("show", "helper", Allowed),
    ("stats", "", Allowed),
    ("token list", "", Refused),
    ("token new", "main", Refused),
    ("token revoke", "main", Refused),
    ("trust", "files", Refused),
];

const REFUSAL: &str = "error: this command was started by the subagent `helper`: ";

#[test]
fn the_table_lists_every_command() {
    let every = every_command(&TestContext::new());
    let every: BTreeSet<&str> = every
        .iter()
        .filter(|(_, help)| !has_subcommands(help))
        .map(|(path, _)| path.as_str())
        .collect();
    let table: BTreeSet<&str> = COMMANDS.iter().map(|(path, ..)| *path).collect();
    assert_eq!(table, every, "every command needs a decision what an agent gets from it");
}

/// A project in which every command has something to do, with traps for programs that must not be executed.
fn project() -> TestContext {
    let context = TestContext::new();
    let trap = context.home().join("executed");
    let server = json!({ "command": "touch", "args": [trap] });
    let manifest = json!({ "name": "kit", "version": "1.0.0" }).to_string();
    context
        .agent("helper", "---\nname: helper\ndescription: Helps\nsession: true\n---\nHelp.\n")
        .write(".mcp.json", json!({ "mcpServers": { "files": server } }).to_string())
        .write(".mcp-gateway-rules.json", r#"{"agents": {"main": {"allow": {"servers": ["*"]}}}}"#)
        .write("extensions/installed/extension.json", manifest.replace("kit", "installed"))
        .write("../home/kit/extension.json", &manifest)
        .write("../home/payload", r#"{"hook_event_name": "SessionStart", "session_id": "s1"}"#);
    let claude = context.home().join("claude");
    let script = format!(
        "#!/bin/sh\ncase $1 in --help|--version) exit 1;; esac\ntouch {}\n",
        trap.display()
    );
    fs::write(&claude, script).unwrap();
    fs::set_permissions(&claude, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(context.run(["token", "new", "main"]).status.success());
    context
}

/// A shell script that runs every command with the prefix `how`, and writes output and exit code below `results`.
fn commands_script(context: &TestContext, how: &str) -> String {
    let home = context.home();
    let home = home.display();
    let program = env!("CARGO_BIN_EXE_adjutant");
    let line = |(number, (path, arguments, _)): (usize, &(&str, &str, Expected))| {
        let arguments = arguments.replace("{kit}", &format!("{home}/kit"));
        let result = format!("{home}/results/{number}");
        format!(
            "{how} {program} {path} {arguments} < {home}/payload > {result}.out 2> {result}.err; echo $? > {result}.code\n"
        )
    };
    COMMANDS.iter().enumerate().map(line).collect()
}

/// A process with the environment of an agent that runs the script.
fn agent_process_spec(context: &TestContext, script: String) -> ProcessSpec {
    let variable = |name: &str, value: PathBuf| (name.into(), value.into_os_string());
    ProcessSpec {
        label: "helper".to_owned(),
        run: RunId::new(),
        program: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: vec![
            variable("PATH", std::env::var_os("PATH").unwrap_or_default().into()),
            variable("HOME", context.home()),
            variable("ADJUTANT_CLAUDE", context.home().join("claude")),
            variable("ADJUTANT_AGENT", "helper".into()),
        ],
        working_dir: context.root(),
        symlinks: SymlinkPolicy::Follow,
    }
}

/// Runs a process under its own supervisor; asserts that the exit code is 0.
async fn run_process(launch: ProcessSpec) {
    let mut process = spawn_process(launch).await.unwrap();
    assert_eq!(process.wait().await, ProcessEnd::Exited(0), "{}", process.stderr_tail());
}

/// Every file and directory of the project, with content and mode.
///
/// Lock files are skipped: they name their last holder, and read-only commands lock the files they read.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        if path.is_dir() {
            found.extend(snapshot(&path));
            found.insert(path, (mode, Vec::new()));
        } else if path.extension().is_none_or(|extension| extension != "lock") {
            let content = fs::read(&path).unwrap();
            found.insert(path, (mode, content));
        }
    }
    found
}

/// Shell loop that waits until the supervisor has adopted the shell.
const WAIT_UNTIL_ADOPTED: &str =
    "until grep -q adjutant-keep /proc/$(cut -d' ' -f4 /proc/$$/stat)/comm; do :; done";

#[test_case(""; "with the environment of the agent")]
#[test_case("env -i"; "with an empty environment")]
#[test_case("nohup env -i setsid -w"; "in a session of its own")]
#[tokio::test]
async fn an_agent_cannot_run_commands_that_act_or_change_the_project(how: &str) {
    let context = project();
    let commands = commands_script(&context, how);
    assert_commands_refused(&context, commands).await;
}

#[tokio::test]
async fn a_detached_process_without_an_environment_still_counts_as_the_agent() {
    let context = project();
    let home = context.home().display().to_string();
    let commands = commands_script(&context, "env -i");
    let commands = format!("{WAIT_UNTIL_ADOPTED}\n{commands}\necho done > {home}/done");
    context.write("../home/detached.sh", commands);
    // Double fork: the first shell exits at once, and the supervisor adopts the second.
    let detach = format!(
        "(env -i PATH=\"$PATH\" setsid sh {home}/detached.sh > {home}/log 2>&1 &)\n\
         until [ -e {home}/done ]; do sleep 0.01; done",
    );
    assert_commands_refused(&context, detach).await;
}

/// 300 processes without an environment lie between the command and the agent's process.
#[tokio::test]
async fn three_hundred_intermediate_processes_do_not_hide_the_agent() {
    let context = project();
    let commands = commands_script(&context, "env -i");
    let deeper =
        "deeper() { if [ $1 -gt 0 ]; then (deeper $(($1 - 1)); true); else commands; fi; }";
    let deep = format!("commands() {{\n{commands}}}\n{deeper}\ndeeper 300");
    context.write("../home/deep.sh", deep);
    let start = format!("env -i PATH=\"$PATH\" sh {}/deep.sh", context.home().display());
    assert_commands_refused(&context, start).await;
}

/// A user's hooks and MCP servers also run under a supervisor, but are not agents.
#[tokio::test]
async fn hooks_and_servers_of_the_user_may_run_every_command() {
    let context = project();
    let program = env!("CARGO_BIN_EXE_adjutant");
    let mut launch = agent_process_spec(&context, format!("exec {program} new another"));
    launch.environment.retain(|(name, _)| name != "ADJUTANT_AGENT");
    run_process(launch).await;
    assert!(context.root().join("agents/another/agent.md").exists());
}

async fn assert_commands_refused(context: &TestContext, script: String) {
    let results = context.home().join("results");
    fs::create_dir(&results).unwrap();
    let before = snapshot(&context.root());
    run_process(agent_process_spec(context, script)).await;
    for (number, (path, arguments, expected)) in COMMANDS.iter().enumerate() {
        let read = |kind: &str| fs::read_to_string(results.join(format!("{number}.{kind}")));
        let (output, errors) = (read("out").unwrap(), read("err").unwrap());
        let code = read("code").unwrap();
        let command = format!("`{path} {arguments}`: {output}{errors}");
        let refused = errors.starts_with(REFUSAL) && errors.lines().count() == 1;
        assert_eq!(refused, *expected != Allowed, "{command}");
        match expected {
            Allowed => {}
            Refused => assert_eq!((output.as_str(), code.trim()), ("", "2"), "{command}"),
            RefusedWithZero => assert_eq!((output.as_str(), code.trim()), ("", "0"), "{command}"),
        }
    }
    let after = snapshot(&context.root());
    let differs = |path: &&PathBuf| before.get(*path) != after.get(*path);
    let changed: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).filter(differs).collect();
    assert!(changed.is_empty(), "the project was changed: {changed:?}");
    assert!(!context.home().join("executed").exists(), "a server or an agent was started");
}

/// End to end: `adjutant run`, a real `claude`, its `Bash` tool.
#[test_case(NEW; "new")]
#[test_case(OLD; "old")]
fn detaching_from_a_real_agents_shell_does_not_allow_changes(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    let agent =
        "---\nname: helper\ndescription: Helps\npermissions: { allow: [\"Bash\"] }\n---\nHelp.\n";
    fixture.agent("helper", agent);
    let home = fixture.home().display().to_string();
    let program = env!("CARGO_BIN_EXE_adjutant");
    let detached = format!(
        "{WAIT_UNTIL_ADOPTED}\n\
         env -i {program} new another > {home}/out 2> {home}/err\n\
         echo $? > {home}/code",
    );
    fixture.write("../home/detached.sh", detached);
    let command = format!(
        "(env -i PATH=\"$PATH\" setsid sh {home}/detached.sh > /dev/null 2>&1 &); \
         until [ -e {home}/code ]; do sleep 0.01; done"
    );
    let report = fixture.run("helper", &format!("CALL Bash {}", json!({ "command": command })));
    let errors = wait_until("the command's end", || fs::read_to_string(format!("{home}/err")).ok());
    assert!(errors.starts_with(REFUSAL), "{errors} {report}");
    assert!(!fixture.root().join("agents/another").exists());
}
