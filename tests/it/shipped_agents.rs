//! The agents of this repository, which users copy: their files are valid and grant no more than intended.

use std::fs;
use std::path::PathBuf;

use adjutant::catalog::{Agent, OutputFormat, Snapshot, ToolRef};
use adjutant::config::Settings;
use serde_json::json;

use crate::support::TestContext;

#[test]
fn every_shipped_agent_is_valid_without_warnings() {
    let snapshot = shipped_catalog();
    for entry in snapshot.entries() {
        assert!(entry.agent().is_some(), "{}: {:?}", entry.name, entry.reason());
        assert!(entry.diagnostics.is_empty(), "{}: {:?}", entry.name, entry.diagnostics);
    }
    assert!(snapshot.defaults_diagnostics().is_empty(), "{:?}", snapshot.defaults_diagnostics());
    let names: Vec<&str> = snapshot.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["dependency-auditor", "github", "security-specialist", "web-search"]);
}

#[test]
fn web_search_may_use_only_curl_and_wget() {
    let agent = shipped_agent("web-search");
    let rules: Vec<String> = agent.permissions.allow.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["Bash(curl:*)", "Bash(wget:*)"]);
    assert!(agent.servers.is_empty() && agent.permissions.ask.is_empty() && !agent.session);
}

#[test]
fn github_has_a_session_and_asks_before_writing() {
    let agent = shipped_agent("github");
    assert!(agent.session && agent.memory.is_some());
    let written = ["create", "comment", "edit", "close", "api", "merge", "delete"];
    let free = agent.permissions.allow.iter().filter_map(|rule| rule.specifier.as_deref());
    for rule in free {
        assert!(!written.iter().any(|word| rule.contains(word)), "`{rule}` is not asked about");
    }
}

#[test]
fn security_specialist_can_only_read_through_its_own_server() {
    let agent = shipped_agent("security-specialist");
    // A rule `Read` would allow every file on the machine; without a rule only the project is readable.
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
fn auditor_schema_accepts_its_json_answer() {
    let agent = shipped_agent("dependency-auditor");
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
fn every_commented_setting_of_the_defaults_is_valid() {
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

fn shipped_agent(name: &str) -> Agent {
    shipped_catalog().get(name).and_then(|entry| entry.agent()).unwrap().as_ref().clone()
}

fn shipped_catalog() -> Snapshot {
    Snapshot::load(&Settings::resolve(Some(&root())).unwrap())
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
