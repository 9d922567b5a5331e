//! Documentation tests: the examples in the README and `docs/` are run, and their links are checked.
//!
//! In a block marked `console`, each `$ adjutant …` line is run, in order, in a project that starts empty for each
//! page. The lines below a command are its expected output: `...` matches any lines, `[..]` anything within a line.
//! `console exit=1` marks commands that must fail. A block marked `FORMAT file=PATH` is written to the project.
//! Other blocks, and those after a line `<!-- test: … -->`, which belong to other tests, are not run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use test_case::test_case;

use crate::support::TestContext;

#[test]
fn examples_in_the_pages_behave_as_shown() {
    let mut commands = 0;
    for page in pages() {
        let context = TestContext::new();
        for block in fenced_blocks(&fs::read_to_string(&page).unwrap()) {
            commands += run_block(&context, &page, &block);
        }
    }
    assert!(commands >= 5, "only {commands} commands were found in the pages");
}

/// A release build takes four times as long and shares no artifacts with `cargo test`.
#[test]
fn the_first_command_of_the_readme_is_a_debug_build() {
    let readme = include_str!("../../README.md");
    let first = readme.lines().find(|line| line.starts_with("cargo ")).unwrap();
    assert!(first.starts_with("cargo run -- demo "), "{first}");
}

#[test]
fn links_between_pages_resolve() {
    for page in pages() {
        for link in local_links(&fs::read_to_string(&page).unwrap()) {
            let path = link.split('#').next().unwrap_or_default();
            let target = page.parent().unwrap().join(path);
            assert!(target.exists(), "{} links to `{link}`, which is not there", page.display());
        }
    }
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(readme.contains("\ncargo test"), "the README gives the test command");
    assert!(ci.lines().any(|line| line == "cargo test"), "and .ci/run runs it");
}

#[test_case("a\nb", "a\nb", true)]
#[test_case("a", "b", false)]
#[test_case("...", "", true; "dots match no lines")]
#[test_case("a\n...\nd", "a\nb\nc\nd", true)]
#[test_case("a\n...\nd", "a\nb\nc", false)]
#[test_case("took [..] ms", "took 12 ms", true)]
#[test_case("took [..] ms", "took 12 s", false)]
#[test_case("a", "a\nb", false; "extra output")]
fn expected_output_is_compared(expected: &str, found: &str, same: bool) {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(output_matches(&lines(expected), &lines(found)), same);
}

struct Block {
    line: usize,
    /// The text after the opening fence.
    marks: Vec<String>,
    lines: Vec<String>,
}

/// Runs the commands of a block or writes its file. Returns the number of commands.
fn run_block(context: &TestContext, page: &Path, block: &Block) -> usize {
    let setting = |name: &str| block.marks.iter().find_map(|mark| mark.strip_prefix(name));
    if let Some(file) = setting("file=") {
        context.write(file, block.lines.join("\n") + "\n");
    }
    if block.marks.first().map(String::as_str) != Some("console") {
        return 0;
    }
    let exit: i32 = setting("exit=").map_or(0, |code| code.parse().unwrap());
    let steps = commands_with_output(block);
    for (command, expected) in &steps {
        let place = format!("{}:{}: `{command}`", page.display(), block.line);
        let output = parse_command(context, command).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{place} said:\n{said}");
        // A page shows stdout alone, or stderr followed by stdout, as on a terminal.
        let data = lines(&output.stdout);
        let printed = [lines(&output.stderr), data.clone()].concat();
        let fine = expected.is_empty()
            || output_matches(expected, &data)
            || output_matches(expected, &printed);
        assert!(
            fine,
            "{place} should print:\n{}\nand prints:\n{}\n",
            expected.join("\n"),
            printed.join("\n")
        );
    }
    steps.len()
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(|line| line.trim_end().to_owned()).collect()
}

fn parse_command(context: &TestContext, command: &str) -> Command {
    let mut words = shell_words(command).into_iter();
    assert_eq!(words.next().as_deref(), Some("adjutant"), "only adjutant is run: {command}");
    let mut program = context.adjutant([]);
    program.args(words).env("COLUMNS", "100");
    program
}

/// Splits a line into words like a shell, with single and double quotes.
fn shell_words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == ' ' => words.push(String::new()),
            _ => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The commands of a block, each with its expected output.
fn commands_with_output(block: &Block) -> Vec<(String, Vec<String>)> {
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for line in &block.lines {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
            (None, Some((_, expected))) => expected.push(line.trim_end().to_owned()),
            (None, None) => panic!("line {}: output without a command", block.line),
        }
    }
    steps
}

fn output_matches(expected: &[String], found: &[String]) -> bool {
    match (expected.split_first(), found.split_first()) {
        (None, None) => true,
        (Some((line, rest)), _) if line == "..." => {
            output_matches(rest, found)
                || found.split_first().is_some_and(|(_, later)| output_matches(expected, later))
        }
        (Some((line, rest)), Some((first, later))) => {
            line_matches(line, first) && output_matches(rest, later)
        }
        _ => false,
    }
}

fn line_matches(expected: &str, found: &str) -> bool {
    let Some((head, rest)) = expected.split_once("[..]") else { return expected == found };
    let Some(found) = found.strip_prefix(head) else { return false };
    (0..=found.len()).filter_map(|at| found.get(at..)).any(|tail| line_matches(rest, tail))
}

fn fenced_blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, Block)> = None;
    let mut tested_elsewhere = false;
    for (index, line) in page.lines().enumerate() {
        let fence: String = line.chars().take_while(|c| *c == '`').collect();
        match &mut open {
            None if fence.len() >= 3 => {
                let marks = line.trim_matches('`').split_whitespace().map(str::to_owned).collect();
                open = Some((fence, Block { line: index + 1, marks, lines: Vec::new() }));
            }
            Some((opening, _)) if line.trim_end() == *opening => {
                let closed = open.take().map(|(_, block)| block);
                blocks.extend(closed.filter(|_| !tested_elsewhere));
                tested_elsewhere = false;
            }
            Some((_, block)) => block.lines.push(line.to_owned()),
            None => tested_elsewhere = line.starts_with("<!-- test:"),
        }
    }
    assert!(open.is_none(), "a block is never closed");
    blocks
}

/// Targets of `](…)` and `src="…"` within the repository, outside of blocks.
fn local_links(page: &str) -> Vec<String> {
    let mut inside = false;
    let mut text = String::new();
    for line in page.lines() {
        inside ^= line.starts_with("```");
        text.push_str(if inside { "" } else { line });
        text.push('\n');
    }
    let marked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let quoted = text.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let own = |link: &&str| !link.contains("://") && !link.starts_with('#') && !link.is_empty();
    marked.chain(quoted).filter(own).map(str::to_owned).collect()
}

/// The README and every page in `docs/` and `docs/reference/`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for folder in ["docs", "docs/reference"] {
        let docs = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(docs.filter(|path| path.extension().is_some_and(|name| name == "md")));
    }
    pages.sort();
    pages
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
