//! Exit codes and error codes: the tables of the pages are those of the program, and every cell of the table
//! command × exit code is run, with and without `--json`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use adjutant::cli::{ErrorCode, ExitStatus};
use adjutant::runs::RunRegistry;
use adjutant::util::RunId;
use serde_json::{Value, json};

use crate::command_line::{every_command, has_subcommands};
use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::wait::wait_until;

/// Commands without `--json`: they serve, print a script or a schema, or talk to people.
const WITHOUT_JSON: [&str; 6] = ["completions", "demo", "gateway", "hook", "schema", "serve"];

/// How a cell of the table is tested.
enum Test {
    /// Runs the command with these arguments in a project that was changed by the function.
    Run(&'static str, fn(&TestContext)),
    /// The test function of this name in this file below `tests/it/` or `src/`.
    In(&'static str, &'static str),
}

use Test::{In, Run};

const OUTCOMES: Test = In("tests/it/outcomes.rs", "every_outcome_matches_its_row_in_the_docs");

const CELLS: &[(&str, u8, Test)] = &[
    ("audit", 0, Run("", unchanged)),
    ("audit", 1, Run("--verify", |context| write(context, "data/audit.jsonl", "{}\n"))),
    ("audit", 2, Run("--limit many", unchanged)),
    ("audit", 4, Run("--verify", unchanged)),
    (
        "auth login",
        0,
        In("tests/it/gateway/oauth.rs", "agents_sign_in_separately_if_the_entry_says_so"),
    ),
    ("auth login", 1, Run("far --no-browser", unchanged)),
    ("auth login", 2, Run("far --agent helper", unchanged)),
    ("auth login", 3, Run("fra", unchanged)),
    (
        "auth logout",
        0,
        In(
            "tests/it/gateway/oauth.rs",
            "a_server_that_needs_a_sign_in_reports_it_at_once_and_works_after_login",
        ),
    ),
    ("auth logout", 2, Run("", unchanged)),
    ("auth logout", 3, Run("far", unchanged)),
    ("auth status", 0, Run("", unchanged)),
    ("auth status", 1, Run("", |context| write(context, ".mcp.json", "{"))),
    ("auth status", 2, Run("far", unchanged)),
    ("check", 0, Run("", unchanged)),
    ("check", 1, Run("", break_agent)),
    ("check", 2, Run("helper", unchanged)),
    ("completions", 0, Run("bash", unchanged)),
    ("completions", 2, Run("csh", unchanged)),
    ("costs", 0, Run("", unchanged)),
    ("costs", 2, Run("--by week", unchanged)),
    ("costs", 4, Run("", |context| folder(context, "data/costs.json"))),
    ("demo", 0, In("tests/it/demo.rs", "the_stand_in_works_if_the_path_of_adjutant_has_quotes")),
    ("demo", 1, Run("--scripted", |context| write(context, "../home/.cache", ""))),
    ("demo", 2, Run("now", unchanged)),
    ("doctor", 0, Run("", unchanged)),
    ("doctor", 1, Run("", break_agent)),
    ("doctor", 2, Run("now", unchanged)),
    ("events", 0, Run("", unchanged)),
    ("events", 2, Run("--since ever", unchanged)),
    ("events", 4, Run("", |context| folder(context, "data/events.jsonl"))),
    ("explain", 0, Run("--agent helper --builtin Read", unchanged)),
    ("explain", 1, Run("--agent helper --builtin Bash", unchanged)),
    ("explain", 2, Run("--agent helper --builtin Bash", break_agent)),
    ("explain", 3, Run("--agent hleper --builtin Bash", unchanged)),
    ("extensions add", 0, Run("../home/kit", unchanged)),
    ("extensions add", 1, Run("../home/kit", |context| folder(context, "extensions/kit"))),
    ("extensions add", 2, Run("../home/kti", unchanged)),
    (
        "extensions add",
        4,
        Run("../home/kit", |context| {
            fs::remove_dir_all(context.root().join("extensions")).unwrap();
            write(context, "extensions", "");
        }),
    ),
    ("extensions check", 0, Run("", unchanged)),
    (
        "extensions check",
        1,
        Run("", |context| write(context, "extensions/installed/extension.json", "{")),
    ),
    ("extensions check", 2, Run("kit", unchanged)),
    ("extensions list", 0, Run("", unchanged)),
    ("extensions list", 2, Run("kit", unchanged)),
    ("extensions remove", 0, Run("installed", unchanged)),
    ("extensions remove", 2, Run("", unchanged)),
    ("extensions remove", 3, Run("instaled", unchanged)),
    ("gateway", 0, Run("", unchanged)),
    ("gateway", 2, Run("--http nowhere", unchanged)),
    ("gateway", 4, Run("--http 127.0.0.1:0", |context| folder(context, "data/tokens.json"))),
    ("hook", 0, Run("--what", unchanged)),
    ("init", 0, Run("", unchanged)),
    ("init", 1, Run("", |context| write(context, ".mcp.json", "{"))),
    ("init", 2, Run("here", unchanged)),
    ("init", 4, Run("", |context| write(context, "agents/main", ""))),
    ("list", 0, Run("", unchanged)),
    ("list", 2, Run("helper", unchanged)),
    ("matrix", 0, Run("", unchanged)),
    ("matrix", 2, Run("", |context| write(context, ".mcp-gateway-rules.json", "{"))),
    ("matrix", 3, Run("--agent hleper", unchanged)),
    ("new", 0, Run("another", unchanged)),
    ("new", 1, Run("helper", unchanged)),
    ("new", 2, Run("a/b", unchanged)),
    (
        "new",
        4,
        Run("another", |context| {
            fs::remove_dir_all(context.root().join("agents")).unwrap();
            write(context, "agents", "");
        }),
    ),
    ("plan", 0, Run("helper", unchanged)),
    ("plan", 2, Run("", unchanged)),
    ("plan", 3, Run("hleper", unchanged)),
    ("plan", 4, Run("helper", |context| write(context, "../home/no-claude", ""))),
    ("run", 0, Run("helper FAKE", unchanged)),
    ("run", 1, OUTCOMES),
    ("run", 2, Run("helper", unchanged)),
    ("run", 3, Run("hleper x", unchanged)),
    ("run", 4, Run("helper x", |context| folder(context, "data/audit.jsonl"))),
    ("run", 5, OUTCOMES),
    ("run", 6, OUTCOMES),
    ("run", 75, OUTCOMES),
    ("run", 124, OUTCOMES),
    ("run", 130, OUTCOMES),
    ("runs list", 0, Run("", unchanged)),
    ("runs list", 2, Run("now", unchanged)),
    ("runs list", 4, Run("", |context| write(context, "data/runs", ""))),
    ("runs show", 0, Run("last", |context| run_helper(context, 1))),
    ("runs show", 2, Run("0", |context| run_helper(context, 2))),
    ("runs show", 3, Run("last", unchanged)),
    ("runs show", 4, Run("last", |context| folder(context, "data/events.jsonl"))),
    ("runs stop", 0, OUTCOMES),
    ("runs stop", 1, In("tests/it/exit_codes.rs", "stop_fails_if_the_run_does_not_end")),
    ("runs stop", 2, In("tests/it/processes/runs.rs", "unknown_or_ambiguous_run_is_an_error")),
    ("runs stop", 3, Run("0", unchanged)),
    ("runs stop", 4, Run("0", |context| write(context, "data/runs", ""))),
    ("schema", 0, Run("defaults", unchanged)),
    ("schema", 2, Run("nothing", unchanged)),
    ("serve", 0, In("tests/it/exit_codes.rs", "serve_succeeds_when_its_client_leaves")),
    ("serve", 1, Run("", unchanged)),
    ("serve", 2, Run("--http nowhere", unchanged)),
    ("serve", 4, Run("--http 127.0.0.1:0", |context| folder(context, "data/tokens.json"))),
    ("sessions forget", 0, Run("helper", keep_session)),
    ("sessions forget", 2, Run("../x", unchanged)),
    ("sessions forget", 3, Run("hleper", keep_session)),
    ("sessions forget", 4, Run("helper", |context| folder(context, "data/sessions.json"))),
    ("sessions forget", 75, In("tests/it/exit_codes.rs", "a_session_in_use_is_not_forgotten")),
    ("sessions list", 0, Run("", unchanged)),
    ("sessions list", 2, Run("helper", unchanged)),
    ("sessions list", 4, Run("", |context| folder(context, "data/sessions.json"))),
    ("sessions prune", 0, Run("--older-than 1d --yes", unchanged)),
    ("sessions prune", 1, Run("--older-than 1d", keep_session)),
    ("sessions prune", 2, Run("", unchanged)),
    ("sessions prune", 4, Run("--older-than 1d", |context| folder(context, "data/sessions.json"))),
    ("sessions show", 0, Run("helper", keep_session)),
    ("sessions show", 2, Run("../x", unchanged)),
    ("sessions show", 3, Run("helper", unchanged)),
    ("sessions show", 4, Run("helper", |context| folder(context, "data/sessions.json"))),
    ("show", 0, Run("helper", unchanged)),
    ("show", 1, Run("helper", break_agent)),
    ("show", 2, Run("", unchanged)),
    ("show", 3, Run("hleper", unchanged)),
    ("stats", 0, Run("", unchanged)),
    ("stats", 2, Run("--since ever", unchanged)),
    ("stats", 4, Run("", |context| folder(context, "data/events.jsonl"))),
    ("token list", 0, Run("", unchanged)),
    ("token list", 2, Run("bot", unchanged)),
    ("token list", 4, Run("", |context| folder(context, "data/tokens.json"))),
    ("token new", 0, Run("bot", unchanged)),
    ("token new", 2, Run("bot --expires never", unchanged)),
    ("token new", 4, Run("bot", |context| folder(context, "data/tokens.json"))),
    (
        "token revoke",
        0,
        Run("ci", |context| {
            assert!(context.run(["token", "new", "ci"]).status.success());
        }),
    ),
    ("token revoke", 2, Run("", unchanged)),
    ("token revoke", 3, Run("bot", unchanged)),
    ("token revoke", 4, Run("bot", |context| folder(context, "data/tokens.json"))),
    (
        "trust",
        0,
        In(
            "tests/it/golden_stores.rs",
            "stored_tool_pins_are_compared_with_and_rewritten_byte_for_byte",
        ),
    ),
    ("trust", 2, Run("", unchanged)),
    ("trust", 3, Run("files", unchanged)),
    ("trust", 4, Run("files", |context| folder(context, "data/tool-pins.json"))),
];

#[test]
fn the_help_and_the_page_have_the_table_of_exit_codes() {
    let help = String::from_utf8(TestContext::new().run(["--help"]).stdout).unwrap();
    let page = page("docs/command-line.md");
    for exit in ExitStatus::ALL {
        let (number, name, meaning) = (exit.number(), exit.name(), exit.meaning());
        assert!(page.contains(&format!("| {number} | {name} | {meaning} |")), "{exit:?}");
        assert!(help.contains(&format!("{number:>3}  {name:<14}  {meaning}")), "{help}");
    }
}

#[test]
fn the_page_describes_every_error_code_with_its_exit_code() {
    let page = page("docs/reference/error-codes.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    for code in ErrorCode::all() {
        let row = format!("| `{}` | {} | ", code.as_str(), code.exit_status().number());
        assert!(rows.iter().any(|line| line.starts_with(&row)), "no row: {row}");
    }
    assert_eq!(rows.len(), ErrorCode::all().count(), "a row is about no code");
}

#[test]
fn the_table_lists_every_command_and_every_cell_has_a_test() {
    let every = every_command(&TestContext::new());
    let every: BTreeSet<&str> = every
        .iter()
        .filter(|(_, help)| !has_subcommands(help))
        .map(|(path, _)| path.as_str())
        .collect();
    let page = page("docs/command-line.md");
    let documented = documented_cells(&page);
    let commands: BTreeSet<&str> = documented.iter().map(|(command, _)| *command).collect();
    assert_eq!(commands, every);
    let tested: BTreeSet<(&str, u8)> =
        CELLS.iter().map(|(command, exit, _)| (*command, *exit)).collect();
    assert_eq!(documented, tested, "cells of the page, and cells with a test");
}

#[test]
fn every_command_exits_as_its_row_says() {
    let wrong: Vec<String> = CELLS.iter().flat_map(check_cell).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns the cells of the table command × exit code.
fn documented_cells(page: &str) -> BTreeSet<(&str, u8)> {
    let mut lines = page.lines().skip_while(|line| !line.starts_with("| command | 0 |"));
    let header = columns(lines.next().expect("the table"));
    let numbers: Vec<u8> = header[1..].iter().map(|cell| cell.parse().expect("a code")).collect();
    assert_eq!(numbers, ExitStatus::ALL.map(ExitStatus::number));
    let mut found = BTreeSet::new();
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let row = columns(line);
        let marked = row[1..].iter().zip(&numbers).filter(|(cell, _)| **cell == "•");
        found.extend(marked.map(|(_, number)| (row[0].trim_matches('`'), *number)));
    }
    found
}

fn columns(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// Runs the cell; returns what is wrong.
fn check_cell((command, exit, test): &(&str, u8, Test)) -> Vec<String> {
    let (arguments, change) = match test {
        In(file, name) => {
            assert!(page(file).contains(&format!("fn {name}(")), "{file} has no test `{name}`");
            return Vec::new();
        }
        Run(arguments, change) => (arguments, change),
    };
    let mut wrong = Vec::new();
    let modes: &[&str] = if WITHOUT_JSON.contains(command) { &[""] } else { &["", "--json"] };
    for mode in modes {
        let context = project();
        change(&context);
        let mut program = context.adjutant([]);
        let words = command.split(' ').chain(arguments.split_whitespace());
        program.args(words).args(mode.split_whitespace()).stdin(Stdio::null());
        let claude = context.home().join("no-claude");
        program.env("ADJUTANT_CLAUDE", if claude.exists() { claude } else { fake_claude() });
        program.env("ANTHROPIC_API_KEY", "x").env("ADJUTANT_KEYRING", "off");
        let output = program.output().expect("the program starts");
        let found = output.status.code();
        let problem = match (found == Some(i32::from(*exit)), *mode) {
            (false, _) => Some(format!("exit code {found:?}")),
            (true, "--json") => json_problem(&output, *exit),
            (true, _) => None,
        };
        wrong.extend(
            problem.map(|why| format!("{command} {arguments} {mode}: {exit}: {why}: {output:?}")),
        );
    }
    wrong
}

/// Checks stdout and stderr of a command with `--json`. Commands that judge have a result with code 1 or 2.
fn json_problem(output: &Output, exit: u8) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let Some(Ok(value)) = values.next() else {
        return (exit != 0).then(|| "stdout is no JSON".to_owned());
    };
    if exit == 0 {
        return None;
    }
    if values.next().is_some() {
        return Some("more than one value".to_owned());
    }
    let error = &value["error"];
    let code = error["code"].as_str().or(value["code"].as_str());
    let Some(code) = code else {
        return (exit > 2).then(|| "no code of the error".to_owned());
    };
    let found = ErrorCode::all().find(|known| known.as_str() == code);
    if found.is_none_or(|found| found.exit_status().number() != exit) {
        return Some(format!("the code {code}"));
    }
    let message = error["message"].as_str();
    if message.is_some_and(|message| message.is_empty() || message.starts_with(code)) {
        return Some("the message".to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let sentences = said.lines().filter(|line| line.starts_with("error: ")).count();
    (error.is_object() && sentences != 1).then(|| "stderr".to_owned())
}

#[test]
fn the_error_object_has_code_message_and_help() {
    let context = project();
    let error = |arguments: &[&str]| -> Value {
        let output = context.adjutant([]).args(arguments).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    assert_eq!(
        error(&["show", "helpr", "--json"]),
        json!({ "error": {
            "code": "AGENT_NOT_FOUND", "message": "there is no agent `helpr`", "help": "did you mean `helper`?",
        } })
    );
    assert_eq!(
        error(&["list", "--jsno", "--json"]),
        json!({ "error": {
            "code": "INVALID_ARGUMENT", "message": "unexpected argument '--jsno' found",
            "help": "a similar argument exists: '--json'",
        } })
    );
    assert_eq!(
        error(&["--root", "nowhere", "list", "--json"]),
        json!({ "error": {
            "code": "PROJECT_NOT_FOUND",
            "message": "the project root `nowhere` cannot be opened: No such file or directory (os error 2)",
        } })
    );
}

#[test]
fn serve_succeeds_when_its_client_leaves() {
    let context = project();
    let request = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    context.write("request", format!("{request}\n"));
    let mut command = context.adjutant(["serve"]);
    command.stdin(fs::File::open(context.root().join("request")).unwrap());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn stop_fails_if_the_run_does_not_end() {
    let context = project();
    let registry = RunRegistry::at(&context.root().join("data"));
    let _run = registry.register(RunId::new(), "helper", "main").unwrap();
    let output = context.run(["runs", "stop", "0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_session_in_use_is_not_forgotten() {
    let context = project();
    context.agent("helper", "---\nname: helper\ndescription: Helps\nsession: true\n---\nHelp.\n");
    run_helper(&context, 1);
    let mut command = context.adjutant(["run", "helper", "FAKE hang-mid-turn"]);
    command.env("ADJUTANT_CLAUDE", fake_claude()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    wait_until("the second run", || {
        let listed = context.run(["runs", "list", "--json"]).stdout;
        String::from_utf8(listed).unwrap().contains("helper").then_some(())
    });
    let output = context.run(["sessions", "forget", "helper", "--json"]);
    assert!(context.run(["runs", "stop", "0"]).status.success());
    running.wait().unwrap();
    assert_eq!(output.status.code(), Some(75), "{output:?}");
}

/// A project in which every command has something to do.
fn project() -> TestContext {
    let context = TestContext::new();
    let servers =
        json!({ "files": { "command": "cat" }, "far": { "url": "http://127.0.0.1:1/mcp" } });
    let manifest = json!({ "name": "kit", "version": "1.0.0" }).to_string();
    context
        .agent(
            "helper",
            "---\nname: helper\ndescription: Helps\npermissions:\n  allow: [Read]\n---\nHelp.\n",
        )
        .write(".mcp.json", json!({ "mcpServers": servers }).to_string())
        .write(".mcp-gateway-rules.json", r#"{"agents": {"main": {"allow": {"servers": ["*"]}}}}"#)
        .write("extensions/installed/extension.json", manifest.replace("kit", "installed"))
        .write("../home/kit/extension.json", &manifest);
    context
}

fn unchanged(_: &TestContext) {}

fn write(context: &TestContext, path: &str, text: &str) {
    context.write(path, text);
}

fn folder(context: &TestContext, path: &str) {
    fs::create_dir_all(context.root().join(path)).unwrap();
}

fn break_agent(context: &TestContext) {
    context.agent("helper", "---\nname: helper\n");
}

fn run_helper(context: &TestContext, times: usize) {
    for _ in 0..times {
        let mut command = context.adjutant(["run", "helper", "FAKE"]);
        let output = command.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn keep_session(context: &TestContext) {
    let session = json!({
        "agent": "helper", "key": "default", "state": "ready", "turns": 1, "cost_usd": 0.1,
        "session_id": "0b4a6f0e-4d7e-4c6e-9d43-6f1a4cbb3f11", "created": "2026-01-02T03:04:05Z",
        "last_used": "2026-01-02T03:04:05Z", "last_run": "019a8d5ce1d27c0b8e6a3f0f3f0a1b2c",
        "folder": "/work/here", "config_dir": "/work/.claude", "contract": "sha256:1",
    });
    context.write(
        "data/sessions.json",
        json!({ "format": 1, "conversations": [session] }).to_string(),
    );
}

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}
