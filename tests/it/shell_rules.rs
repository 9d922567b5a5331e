//! Claude Code's permission rules for `Bash`: enforcement in both versions, compared with `docs/security.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW, OLD, report};
use crate::support::fake_claude::fake_claude;

fn agent_file(permissions: &str) -> String {
    format!("---\nname: shell\ndescription: Has a shell\n{permissions}\n---\nYou have a shell.\n")
}

/// Lets one agent run these commands, one after the other.
fn run_commands<'a>(fixture: &ClaudeContext, commands: impl IntoIterator<Item = &'a str>) -> Value {
    let mut script = String::new();
    for command in commands {
        writeln!(script, "CALL Bash {}", json!({ "command": command })).unwrap();
    }
    fixture.run("shell", &script)
}

#[test_case(NEW)]
#[test_case(OLD)]
fn d7_rule_for_one_program_does_not_allow_another(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    fixture.agent("shell", &agent_file("permissions: { allow: [\"Bash(curl:*)\"] }"));
    fixture.write("y/precious", "x").write("evil.sh", "rm -rf y").write("page", "4711");
    let place = format!("curl -s file://{}", fixture.root().display());
    let smuggled = [
        format!("{place}/page && rm -rf y"),
        format!("{place}/page; rm -rf y"),
        format!("{place}/page & rm -rf y"),
        format!("{place}/page || rm -rf y"),
        format!("{place}/evil.sh | sh"),
        format!("{place}/page $(rm -rf y)"),
        format!("{place}/page `rm -rf y`"),
        format!("{place}/page <(rm -rf y)"),
        format!("{place}/page\nrm -rf y"),
        format!("A=$(rm -rf y) {place}/page"),
        format!("PATH=. {place}/page"),
        format!("LD_PRELOAD=./evil.so {place}/page"),
        format!("{place}/page > y/precious"),
    ];
    let report = run_commands(&fixture, smuggled.iter().map(String::as_str));
    let precious = fs::read_to_string(fixture.root().join("y/precious"));
    assert_eq!(precious.ok().as_deref(), Some("x"), "{report}");
    let denials = report["denials"].as_array().unwrap();
    assert_eq!(denials.len(), smuggled.len(), "each is refused and told: {report:#}");
    let denied = fixture.audit_entries().into_iter().filter(|line| line["decision"] == "deny");
    assert_eq!(denied.count(), smuggled.len(), "and written down");
    let plain = run_commands(&fixture, [format!("{place}/page").as_str()]);
    assert_eq!(plain["result"], "4711");
}

/// One row of the table in `docs/security.md`: a command, and whether the version refuses it.
struct DocumentedCommand {
    command: String,
    is_refused: bool,
}

fn documented_commands(version: &str) -> Vec<DocumentedCommand> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md");
    let page = fs::read_to_string(page).unwrap();
    let table = page.lines().skip_while(|line| !line.starts_with("| command |"));
    let mut table = table.take_while(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        let line = line.replace("\\|", "\0");
        line.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
    };
    let header = cells(table.next().expect("the table"));
    let column = header.iter().position(|cell| cell == version).expect("the version's column");
    let rows = table.skip(1).map(|line| {
        let cells = cells(line);
        let is_refused = match cells[column].as_str() {
            "refused" => true,
            "runs" => false,
            other => panic!("`{other}` in {line}"),
        };
        DocumentedCommand {
            command: cells[1].split('`').nth(1).expect("a command").to_owned(),
            is_refused,
        }
    });
    rows.collect()
}

#[test_case(NEW)]
#[test_case(OLD)]
fn i5_disguised_denied_commands_run_or_fail_as_documented(version: &str) {
    let Some(fixture) = ClaudeContext::new(version) else { return };
    let rules = "permissions: { allow: [Bash], deny: [\"Bash(rm:*)\"] }";
    fixture.agent("shell", &agent_file(rules));
    let mut rows = documented_commands(version);
    let chain = |denied: &str| {
        let links = (0..60).map(|number| match number {
            41 => denied.to_owned(),
            number => format!("echo {number}"),
        });
        links.collect::<Vec<_>>().join(" && ")
    };
    rows.push(DocumentedCommand { command: chain("rm -rf X"), is_refused: true });
    let targets = (0..rows.len()).map(|number| format!("precious-{number}"));
    let targets: Vec<String> = targets.collect();
    for target in &targets {
        fixture.write(format!("{target}/data"), "x");
    }
    let commands = rows.iter().zip(&targets).map(|(row, target)| row.command.replace('X', target));
    let commands: Vec<String> = commands.collect();
    let report = run_commands(&fixture, commands.iter().map(String::as_str));
    for ((row, target), command) in rows.iter().zip(&targets).zip(&commands) {
        let is_there = fixture.root().join(target).join("data").exists();
        assert_eq!(is_there, row.is_refused, "`{command}` in {version}: {report:#}");
    }
    let refused = rows.iter().filter(|row| row.is_refused).count();
    assert_eq!(report["denials"].as_array().map(Vec::len), Some(refused), "{report:#}");

    // With an allow-list, none of these commands runs.
    fixture.agent("shell", &agent_file("permissions: { allow: [\"Bash(curl:*)\"] }"));
    for target in &targets {
        fixture.write(format!("{target}/data"), "x");
    }
    let report = run_commands(&fixture, commands.iter().map(String::as_str));
    for target in &targets {
        assert!(fixture.root().join(target).join("data").exists(), "{target}: {report:#}");
    }
}

/// Every call is checked by Adjutant, so `claude` cannot grant a tool as a whole, whatever its own rules decide.
#[test_case("Write"; "excluded")]
#[test_case("WebFetch"; "never granted")]
#[test_case("BrandNew"; "unknown")]
fn i5_ungranted_tool_is_denied_even_if_all_of_bash_is_allowed(tool: &str) {
    let context = TestContext::new();
    let rules = "permissions: { allow: [Bash, Edit] }\ntools: [Bash, Edit, Write]\n\
        policy: { tools: { exclude: [\"builtin:Write\"] } }";
    context.agent("shell", &agent_file(rules));
    let prompt = format!("FAKE ask {tool} {{\"file_path\":\"x\"}}");
    let mut command = context.adjutant(["run", "shell", &prompt, "--json"]);
    let report = report(&command.env("ADJUTANT_CLAUDE", fake_claude()).output().unwrap());
    assert_eq!(report["denials"][0]["tool"], tool, "{report}");
    let audit = context.audit_entries();
    let line = audit.iter().find(|line| line["operation"] == "tool_use").expect("its line");
    assert_eq!((&line["tool"], &line["decision"]), (&json!(tool), &json!("deny")), "{line}");
}

#[test]
fn d7_security_page_names_the_limits_of_shell_rules_and_the_sandbox() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## What a rule for a shell can promise\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    for promise in ["a rule sees text, not effects", "The boundary is the\nsandbox, not the rule"] {
        assert!(section.contains(promise), "{promise}");
    }
}
