use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::catalog::model::{AllowedCallers, OutputFormat, Permissions, ServerLaunch};

/// Parses `text` as `agents/web-search/agent.md`.
fn parse(text: &str) -> AgentParseResult {
    let name: AgentName = "web-search".parse().unwrap();
    let source = AgentSource {
        root: Path::new("/nowhere"),
        dir: PathBuf::from("/nowhere/agents/web-search"),
        file: PathBuf::from("/nowhere/agents/web-search/agent.md"),
        extension_servers: &[],
        name: &name,
        origin: AgentOrigin::Project,
        memory: None,
        siblings: &["web-search".to_owned(), "github".to_owned()],
    };
    parse_agent(text, &source, Path::new("agent.md"), &Agent::template())
}

fn agent(front_matter: &str) -> Agent {
    let reading = parse(&format!("---\ndescription: d\n{front_matter}\n---\nPrompt\n"));
    reading.agent.unwrap_or_else(|| panic!("{:#?}", reading.diagnostics))
}

/// Returns line and code of each finding.
fn found(front_matter: &str) -> Vec<(usize, &'static str)> {
    let reading = parse(&format!("---\ndescription: d\n{front_matter}\n---\nPrompt\n"));
    reading.diagnostics.iter().map(|found| (found.line, found.code)).collect()
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

const FULL: &str = r#"---
name: web-search                      # equals the folder's name
display_name: Web Search              # optional
description: "Searches the web and returns summarized results"
session: false
allowed_callers: [main]
timeout_ms: 30000
model: haiku
permissions:
  allow: ["Bash(curl:*)", "Bash(wget:*)"]
  ask:   []
  deny:  []
tools:
  - builtin:shell
  - mcp:brave-search:brave_web_search
policy:
  tools: { allowed: ["builtin:Bash", "mcp:brave-search:*"], exclude: ["builtin:Write"] }
  mcp:   { allowed: [brave-search], excluded: ["*"] }
  mcp_servers: { brave-search: { trust: true } }
mcp_servers:
  - name: brave-search
    command: npx
    args: ["-y", "@anthropic/mcp-server-brave-search"]
    env: { BRAVE_API_KEY: "${BRAVE_API_KEY}" }
  - name: github
output_format: json
output_schema: { type: object, required: [results], properties: { results: { type: array } } }
output_retries: 1
---
You are a web search agent.
"#;

#[test]
fn full_example_is_parsed() {
    let reading = parse(FULL);
    assert_eq!(reading.diagnostics, []);
    let agent = reading.agent.unwrap();
    assert_eq!(agent.display_name.as_deref(), Some("Web Search"));
    assert_eq!(agent.prompt, "You are a web search agent.");
    assert_eq!(agent.limits.timeout, Duration::from_secs(30));
    assert_eq!(texts(&agent.permissions.allow), ["Bash(curl:*)", "Bash(wget:*)"]);
    let tools = agent.tools.unwrap();
    assert_eq!(texts(&tools), ["builtin:Bash", "mcp:brave-search:brave_web_search"]);
    assert_eq!(agent.policy.trusted_servers, ["brave-search"]);
    assert_eq!(texts(&agent.policy.tools_exclude), ["builtin:Write"]);
    assert_eq!(agent.servers.len(), 2);
    assert_eq!(agent.servers[1].launch, ServerLaunch::Shared);
    let ServerLaunch::Stdio { env, .. } = &agent.servers[0].launch else { panic!("stdio") };
    assert_eq!(env["BRAVE_API_KEY"].as_written(), "${BRAVE_API_KEY}");
    let schema = json!({"type": "object", "required": ["results"], "properties": {"results": {"type": "array"}}});
    assert_eq!(agent.output.schema, Some(Arc::new(schema)));
    assert_eq!((agent.output.format, agent.output.retries), (OutputFormat::Json, 1));
}

#[test]
fn agent_without_keys_has_no_grants() {
    let agent = agent("");
    assert_eq!(agent.tools, None);
    assert_eq!(agent.permissions, Permissions::default());
    assert_eq!(agent.servers, []);
    assert_eq!(agent.allowed_callers, AllowedCallers::Named(vec!["main".to_owned()]));
}

#[test]
fn servers_are_parsed_as_list_and_as_mapping() {
    let list =
        agent("mcp_servers:\n  - name: a\n    command: x\n  - b\n  - c: { url: https://c }\n");
    let map = agent("mcp_servers:\n  a: { command: x }\n  b: {}\n  c: { url: https://c }\n");
    assert_eq!(list.servers, map.servers);
}

#[test]
fn tools_are_parsed_in_claude_code_format() {
    let agent = agent("tools: Read, Grep, mcp__b__x\nmcp_servers: [b]");
    assert_eq!(texts(&agent.tools.unwrap()), ["builtin:Read", "builtin:Grep", "mcp:b:x"]);
}

#[test]
fn problems_are_reported_at_once_in_file_order() {
    let front_matter =
        "timeout_ms: soon\npermissions:\n  allow: [\"Bash(\"]\n  dney: [Read]\nsession: 1";
    assert_eq!(
        found(front_matter),
        [(3, "wrong-type"), (5, "invalid-rule"), (6, "unknown-key"), (7, "wrong-type")]
    );
}

#[test]
fn permission_to_change_the_project_is_off_by_default_and_warned_about() {
    assert!(!agent("session: false").may_change_project_config);
    assert!(!agent("may_change_project_config: false").may_change_project_config);
    assert_eq!(found("may_change_project_config: false"), []);
    assert!(agent("may_change_project_config: true").may_change_project_config);
    assert_eq!(found("may_change_project_config: true"), [(3, "may-change-project-config")]);
    let reading = parse("---\ndescription: d\nmay_change_project_config: \"true\"\n---\nPrompt\n");
    assert!(reading.agent.is_none(), "a text is no boolean: {:#?}", reading.diagnostics);
}
