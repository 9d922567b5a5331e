//! The agents of this repository, as people copy them.

use std::fs;
use std::path::PathBuf;

use adjutant::catalog::{Agent, OutputFormat, Snapshot, ToolRef};
use adjutant::config::Settings;
use serde_json::json;

use crate::support::TestContext;

#[test]
fn every_agent_is_sound_without_a_warning() {
    let snapshot = snapshot();
    for entry in snapshot.entries() {
        assert!(entry.agent().is_some(), "{}: {:?}", entry.name, entry.reason());
        assert!(entry.diagnostics.is_empty(), "{}: {:?}", entry.name, entry.diagnostics);
    }
    assert!(snapshot.defaults_diagnostics().is_empty(), "{:?}", snapshot.defaults_diagnostics());
    let names: Vec<&str> = snapshot.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["dependency-auditor", "github", "security-specialist", "web-search"]);
}

#[test]
fn the_web_search_has_curl_and_wget_and_nothing_else() {
    let agent = agent("web-search");
    let rules: Vec<String> = agent.permissions.allow.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["Bash(curl:*)", "Bash(wget:*)"]);
    assert!(agent.servers.is_empty() && agent.permissions.ask.is_empty() && !agent.session);
}

#[test]
fn github_keeps_a_conversation_and_asks_before_it_writes() {
    let agent = agent("github");
    assert!(agent.session && agent.memory.is_some());
    let written = ["create", "comment", "edit", "close", "api", "merge", "delete"];
    let free = agent.permissions.allow.iter().filter_map(|rule| rule.specifier.as_deref());
    for rule in free {
        assert!(!written.iter().any(|word| rule.contains(word)), "`{rule}` is not asked about");
    }
}

#[test]
fn the_security_specialist_can_only_read_and_only_through_what_is_its_own() {
    let agent = agent("security-specialist");
    // A rule `Read` would reach every file of the machine; without one it is the project's.
    assert!(agent.permissions.allow.is_empty() && agent.permissions.ask.is_empty());
    let tools = agent.tools.clone().unwrap();
    assert!(tools.iter().all(|tool| !agent.policy.tools_exclude.contains(tool)));
    for writing in ["write_file", "edit_file", "move_file", "create_directory"] {
        let tool = ToolRef::Mcp { server: "project-files".into(), tool: writing.into() };
        assert!(agent.policy.tools_exclude.contains(&tool), "`{writing}` is excluded");
    }
    let servers: Vec<&str> = agent.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(servers, ["project-files"]);
}

#[test]
fn the_auditor_answers_in_json_that_its_schema_describes() {
    let agent = agent("dependency-auditor");
    assert_eq!(agent.output.format, OutputFormat::Json);
    let schema = jsonschema::validator_for(agent.output.schema.as_deref().unwrap()).unwrap();
    let finding = json!({
        "severity": "low", "kind": "unpinned", "package": "x", "version": null, "file": "package.json",
        "line": 7, "evidence": "`\"x\": \"*\"` in package.json", "recommendation": "name a version",
    });
    let answer = |finding| {
        json!({
            "summary": "One dependency is not pinned.",
            "ecosystems": [{"name": "npm", "manifest": "package.json", "direct": 1, "locked": false}],
            "findings": [finding],
            "not_checked": [],
        })
    };
    assert!(schema.is_valid(&answer(finding.clone())));
    let mut without_evidence = finding.clone();
    without_evidence["evidence"] = json!("");
    assert!(!schema.is_valid(&answer(without_evidence)));
    let mut invented = finding;
    invented["severity"] = json!("catastrophic");
    assert!(!schema.is_valid(&answer(invented)));
}

#[test]
fn every_line_of_the_defaults_can_be_switched_on() {
    let text = fs::read_to_string(root().join("agents/defaults.yaml")).unwrap();
    let setting = |line: &str| {
        let (key, _) = line.strip_prefix("# ")?.split_once(": ")?;
        key.chars().all(|c| c.is_ascii_lowercase() || c == '_').then(|| line.replacen("# ", "", 1))
    };
    let switched: Vec<String> =
        text.lines().map(|line| setting(line).unwrap_or_else(|| line.to_owned())).collect();
    assert!(
        switched.iter().filter(|line| line.contains(": ") && !line.starts_with('#')).count() > 10
    );
    let context = TestContext::new();
    context.write("agents/defaults.yaml", switched.join("\n"));
    let snapshot = Snapshot::load(&Settings::resolve(Some(&context.root())).unwrap());
    assert!(snapshot.defaults_diagnostics().is_empty(), "{:?}", snapshot.defaults_diagnostics());
}

fn agent(name: &str) -> Agent {
    snapshot().get(name).and_then(|entry| entry.agent()).unwrap().as_ref().clone()
}

fn snapshot() -> Snapshot {
    Snapshot::load(&Settings::resolve(Some(&root())).unwrap())
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
