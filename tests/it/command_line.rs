//! The command line: its documentation page and shell completion. Exit codes are in `exit_codes.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use test_case::test_case;

use crate::support::TestContext;

#[test]
fn the_page_documents_exactly_the_existing_commands() {
    let help = text(TestContext::new().run(["--help"]).stdout);
    let known = commands(&help);
    assert!(known.contains("completions"), "the help was not understood: {help}");
    let page = documentation_page();
    let described: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `adjutant ")?.split([' ', '`']).next())
        .collect();
    assert_eq!(described, known, "docs/command-line.md and `adjutant --help` differ");
}

#[test]
fn the_help_of_every_command_has_examples_and_exit_codes() {
    let commands = every_command(&TestContext::new());
    for (path, help) in &commands {
        assert!(help.contains("Example"), "`{path}` teaches by no example");
        let says_how_it_ends = help.contains("Exit code") || help.contains("Exit\ncode");
        assert!(says_how_it_ends || has_subcommands(help), "`{path}`: no exit codes");
    }
    assert!(commands.len() > 20, "only {} commands were seen", commands.len());
}

#[test]
fn the_page_documents_every_environment_variable() {
    let source = fs::read_to_string(root().join("src/config/env_vars.rs")).unwrap();
    let names: Vec<&str> = source
        .lines()
        .filter_map(|line| line.strip_prefix("pub(crate) const ")?.split('"').nth(1))
        .collect();
    assert!(names.contains(&"ADJUTANT_ROOT"));
    let page = documentation_page();
    for name in names {
        assert!(
            page.contains(&format!("| `{name}`")),
            "docs/command-line.md does not know `{name}`"
        );
    }
}

#[test_case(&["--help"], 0)]
#[test_case(&["--version"], 0)]
#[test_case(&[], 2; "no command")]
#[test_case(&["no-such-command"], 2)]
#[test_case(&["completions"], 2; "an argument is missing")]
#[test_case(&["--root", "no-such-folder", "completions", "bash"], 2; "no such project")]
fn exit_codes_match_the_page(arguments: &[&str], code: i32) {
    let output = TestContext::new().adjutant([]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", text(output.stderr));
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[test_case("fish"; "fish")]
fn a_completion_script_knows_the_commands(shell: &str) {
    let context = TestContext::new();
    let script = context.run(["completions", shell]);
    assert!(script.status.success());
    let script = text(script.stdout);
    for command in commands(&text(context.run(["--help"]).stdout)) {
        assert!(script.contains(command), "{shell} does not know `{command}`");
    }
    if let Some(errors) = syntax_errors(shell, &script) {
        assert_eq!(errors, "", "{shell} cannot read its script");
    }
}

#[test]
fn bash_completes_a_command() {
    let script = text(TestContext::new().run(["completions", "bash"]).stdout);
    let ask = "\nCOMP_WORDS=(adjutant comp)\nCOMP_CWORD=1\n_adjutant adjutant comp adjutant\necho \"${COMPREPLY[@]}\"\n";
    let answer = run_with_input("bash", &["-s"], &format!("{script}{ask}")).unwrap();
    assert_eq!(answer.0.trim(), "completions", "{}", answer.1);
}

/// Errors the shell reports when it parses a script without running it; `None` if the shell is not installed.
fn syntax_errors(shell: &str, script: &str) -> Option<String> {
    let arguments: &[&str] = if shell == "fish" { &["--no-execute"] } else { &["-n"] };
    run_with_input(shell, arguments, script).map(|(_, errors)| errors)
}

fn run_with_input(program: &str, arguments: &[&str], input: &str) -> Option<(String, String)> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(input.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    Some((text(output.stdout), text(output.stderr)))
}

/// Every command and subcommand (`token new`) with its help. Found through `--help`, so that no command can be missed.
pub fn every_command(context: &TestContext) -> BTreeMap<String, String> {
    let help = |path: &str| {
        let words = path.split_whitespace();
        let output = context.adjutant([]).args(words).arg("--help").output().unwrap();
        assert!(output.status.success(), "{path:?}: {output:?}");
        text(output.stdout)
    };
    let mut found = BTreeMap::new();
    let mut left: Vec<String> = commands(&help("")).into_iter().map(str::to_owned).collect();
    while let Some(path) = left.pop() {
        let help = help(&path);
        left.extend(commands(&help).into_iter().map(|name| format!("{path} {name}")));
        found.insert(path, help);
    }
    found
}

/// Returns whether this is the help of a command that only groups others, such as `token`.
pub fn has_subcommands(help: &str) -> bool {
    !commands(help).is_empty()
}

/// Names under `Commands:` in the help.
fn commands(help: &str) -> BTreeSet<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Continuation lines of a description are indented further.
    let names =
        lines.filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

fn documentation_page() -> String {
    fs::read_to_string(root().join("docs/command-line.md")).unwrap()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}
