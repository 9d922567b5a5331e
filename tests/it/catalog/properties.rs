//! Properties of the agent parser: any input gives an agent or an error in bounded time, never more permissions.

use std::fs;
use std::time::{Duration, Instant};

use adjutant::catalog::{AgentState, Snapshot};
use adjutant::config::Settings;
use proptest::prelude::*;

use crate::support::TestContext;

/// An agent file that uses every part of the format.
const FULL: &str = r#"---
name: one
display_name: One
description: "Does: things"
session: true
allowed_callers: [main, "reviewer"]
timeout_ms: 30000
model: haiku
env: { A: "${B:-c}" }
permissions:
  allow: ["Bash(curl:*)", Read]
  deny: ["Bash(rm:*)"]
tools: [builtin:Bash, "mcp:brave:*"]
policy:
  tools: { allowed: ["builtin:*"], exclude: ["builtin:Write"] }
  mcp: { allowed: [brave], excluded: ["*"] }
  mcp_servers: { brave: { trust: true } }
mcp_servers:
  - name: brave
    command: npx
    args: ["-y", "x"]
output_schema: { type: object, properties: { a: { type: string } } }
---
You are one.
"#;

struct Project {
    context: TestContext,
    settings: Settings,
}

impl Project {
    fn new() -> Self {
        let context = TestContext::new();
        let settings = Settings::resolve(Some(&context.root())).expect("a project");
        fs::create_dir_all(context.root().join("agents/one")).expect("a folder");
        Self { context, settings }
    }

    /// Reads `bytes` as an agent file.
    ///
    /// Asserts that the agent is valid without errors or broken with a reason, and that loading takes at most 5 s. A busy
    /// machine may slow down one load, so the fastest of three counts.
    fn read(&self, bytes: &[u8]) -> Result<Snapshot, TestCaseError> {
        self.context.write("agents/one/agent.md", bytes);
        let mut loads = (0..3).map(|_| {
            let started = Instant::now();
            (Snapshot::load(&self.settings), started.elapsed())
        });
        let fast = loads.find(|(_, took)| *took < Duration::from_secs(5));
        let Some((snapshot, _)) = fast else { return Err(TestCaseError::fail("it took too long")) };
        let entry = snapshot.get("one").expect("a folder with an agent file is listed");
        match &entry.state {
            AgentState::Valid(_) => prop_assert_eq!(entry.errors().count(), 0),
            AgentState::Invalid => {
                prop_assert!(entry.reason().is_some() && entry.agent().is_none());
            }
        }
        let lines = bytes.split(|byte| *byte == b'\n').count();
        for found in entry.diagnostics.iter() {
            prop_assert!(found.line >= 1 && found.line <= lines + 1, "{}", found);
        }
        Ok(snapshot)
    }
}

fn front_matter() -> impl Strategy<Value = String> {
    // Tokens that are special to YAML or to the agent format, in any order.
    let piece = prop::sample::select(vec![
        "---",
        "\n",
        " ",
        "  ",
        "\t",
        ":",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "'",
        "&a ",
        "*a",
        "!x ",
        "|",
        ">",
        "#",
        "? ",
        "<<",
        "%",
        "@",
        "name",
        "permissions",
        "allow",
        "deny",
        "policy",
        "tools",
        "mcp_servers",
        "output_schema",
        "Bash",
        "Bash(",
        ")",
        "${",
        "}",
        "1",
        "null",
        "true",
        "~",
        "\r\n",
        "\u{feff}",
        "é",
        "\0",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

#[test]
fn arbitrary_bytes_give_an_agent_or_an_error() {
    let project = Project::new();
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() };
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..400),
        front_matter().prop_map(String::into_bytes),
        front_matter().prop_map(|text| format!("---\ndescription: d\n{text}\n---\nx").into_bytes()),
    ];
    proptest!(config, |(bytes in bytes)| { project.read(&bytes)?; });
}

#[test]
fn mutations_of_a_valid_file_give_an_agent_or_an_error() {
    let project = Project::new();
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() };
    let edit = (0..FULL.len(), 0..12_usize, prop::collection::vec(any::<u8>(), 0..4));
    proptest!(config, |(edits in prop::collection::vec(edit, 1..4))| {
        let mut bytes = FULL.as_bytes().to_vec();
        for (start, length, put) in edits {
            let start = start.min(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, put);
        }
        project.read(&bytes)?;
    });
}

#[test]
fn a4_a_misspelt_key_never_loosens_a_restriction() {
    let project = Project::new();
    let whole = project.read(FULL.as_bytes()).expect("it reads");
    let whole = whole.get("one").and_then(|one| one.agent()).expect("it is sound").clone();
    // Every character of every restricting key, replaced in turn: no result may lack the restriction.
    for key in
        ["permissions", "deny", "policy", "exclude", "excluded", "allowed_callers", "timeout_ms"]
    {
        let at = FULL.find(&format!("{key}:")).expect("the key is there");
        for offset in 0..key.len() {
            let mut bytes = FULL.as_bytes().to_vec();
            bytes[at + offset] = b'q';
            let snapshot = project.read(&bytes).expect("it reads");
            let one = snapshot.get("one").expect("it is listed");
            assert!(
                one.agent().is_none_or(|agent| **agent == *whole),
                "`{key}` with its character {offset} wrong made another agent"
            );
        }
    }
}

#[test]
fn a3_yaml_bombs_and_deep_nesting_are_handled_in_bounded_time() {
    let project = Project::new();
    let wrap = |yaml: String| format!("---\ndescription: d\n{yaml}\n---\nx\n").into_bytes();
    let towers = [
        "[".repeat(60_000),
        format!("a: {}", "{a: ".repeat(10_000)),
        format!("a: {}", "- ".repeat(25_000)),
        format!("a:\n{}", "? ".repeat(25_000)),
        format!("a: {}{}", "[".repeat(200), "]".repeat(200)),
        "a: &a [*a]".to_owned(),
        format!("a: \"{}", "\\".repeat(60_000)),
        "k: ".repeat(20_000),
        (0..6_000).map(|n| format!("k{n}: 1")).collect::<Vec<_>>().join("\n"),
    ];
    for tower in towers {
        project.read(&wrap(tower)).expect("an agent or an error, soon");
    }
    let long = project.read(&wrap("#".repeat(100_000))).expect("an error");
    assert_eq!(
        long.get("one").expect("listed").reason().expect("broken"),
        "agents/one/agent.md:2:1: the settings have 100016 bytes, more than the 65536 that are \
         read"
    );
}
