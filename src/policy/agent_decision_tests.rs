use std::path::Path;

use super::*;
use crate::catalog::{Permissions, PolicyRules};
use crate::policy::test_agent::{dev, names, private, rules, shared, tools};
use test_case::test_case;

fn allow(texts: &[&str]) -> Permissions {
    Permissions { allow: rules(texts), ..Permissions::default() }
}

fn gateway(text: &str) -> GatewayRules {
    GatewayRules::parse(text, Path::new("rules.json")).unwrap().0
}

#[test]
fn nothing_granted_means_nothing() {
    assert!(builtin_tools(&dev()).is_empty());
    let refused = judge_builtin(&dev(), "Read");
    assert_eq!(
        refused.sentence(),
        "agent `dev` may not use the built-in tool `Read`: neither `tools` nor `permissions.allow` \
         grants it (`tools` in agent.md)"
    );
}

#[test]
fn what_permissions_name_exists_beside_what_tools_list() {
    let mut agent = dev();
    agent.tools = Some(tools(&["builtin:Read", "mcp:db:*"]));
    agent.permissions = allow(&["Bash(curl:*)", "Bash(wget:*)", "mcp__db__query"]);
    agent.permissions.ask = rules(&["Write"]);
    assert_eq!(builtin_tools(&agent), ["Bash", "Read", "Write"]);
    assert_eq!(&*judge_builtin(&agent, "Bash").rule.path, "permissions.allow[0]");
    assert_eq!(&*judge_builtin(&agent, "Write").rule.path, "permissions.ask[0]");
}

#[test]
fn an_exclusion_beats_a_permission() {
    let mut agent = dev();
    agent.permissions = allow(&["Bash(*)", "Read"]);
    agent.policy.tools_exclude = tools(&["mcp:x:*", "builtin:Bash"]);
    assert_eq!(builtin_tools(&agent), ["Read"]);
    let refused = judge_builtin(&agent, "Bash");
    assert_eq!(&*refused.rule.path, "policy.tools.exclude[1]");
}

#[test]
fn only_what_the_policy_allows_remains() {
    let mut agent = dev();
    agent.permissions = allow(&["Bash", "Read", "Write"]);
    agent.policy.tools_allowed = Some(tools(&["builtin:R*", "builtin:WebFetch"]));
    assert_eq!(builtin_tools(&agent), ["Read"], "`allowed` takes away and never grants");
}

#[test_case("Bash", false; "the whole tool")]
#[test_case("Bash(*)", false; "the whole tool by its pattern")]
#[test_case("Bash(rm:*)", true; "a part of it")]
fn a_denied_tool_does_not_exist(deny: &str, exists: bool) {
    let mut agent = dev();
    agent.permissions = allow(&["Bash(ls:*)"]);
    agent.permissions.deny = rules(&[deny]);
    assert_eq!(judge_builtin(&agent, "Bash").is_allowed(), exists);
    assert_eq!(builtin_tools(&agent).is_empty(), !exists);
}

#[test]
fn d6_a_tool_of_a_newer_claude_is_not_granted_by_a_pattern() {
    let mut agent = dev();
    agent.tools = Some(tools(&["builtin:*"]));
    assert!(judge_builtin(&agent, "Bash").is_allowed());
    assert!(!judge_builtin(&agent, "Teleport").is_allowed());
    agent.tools = Some(tools(&["builtin:Teleport"]));
    assert_eq!(builtin_tools(&agent), ["Teleport"]);
}

#[test_case("Task")]
#[test_case("Agent")]
#[test_case("SendMessage")]
#[test_case("ListAgents")]
#[test_case("Workflow")]
fn other_agents_are_reached_only_where_tools_names_the_tool(tool: &str) {
    let mut agent = dev();
    agent.tools = Some(tools(&["builtin:*"]));
    agent.permissions = allow(&[tool]);
    assert!(!judge_builtin(&agent, tool).is_allowed());
    assert!(!builtin_tools(&agent).iter().any(|name| name == tool));
    agent.tools = Some(tools(&[&format!("builtin:{tool}")]));
    assert!(judge_builtin(&agent, tool).is_allowed());
}

#[test]
fn a_renamed_tool_cannot_slip_through() {
    let mut agent = dev();
    agent.tools = Some(tools(&["builtin:Agent", "builtin:KillShell"]));
    agent.policy.tools_exclude = tools(&["builtin:Task", "builtin:TaskS*"]);
    assert!(!judge_builtin(&agent, "Agent").is_allowed());
    assert!(!judge_builtin(&agent, "KillShell").is_allowed());
}

#[test_case("Bash,Write")]
#[test_case("*")]
#[test_case("")]
#[test_case("Bash Write")]
#[test_case("mcp__db__query")]
fn a6_a_name_cannot_smuggle_a_second_tool(name: &str) {
    let mut agent = dev();
    agent.permissions = allow(&[name]);
    agent.tools = Some(vec![ToolRef::Builtin(name.replace('*', "Bash,Write"))]);
    assert!(builtin_tools(&agent).is_empty());
    assert!(!judge_builtin(&agent, name).is_allowed());
}

#[test]
fn a_private_server_is_granted_by_its_own_file() {
    let mut agent = dev();
    agent.servers = vec![private("db")];
    let granted = judge_mcp_tool(&agent, "db", "query", None);
    assert_eq!(
        granted.sentence(),
        "agent `dev` may use tool `query` of server `db`: the server is its own (`mcp_servers.db` in agent.md)"
    );
    assert!(!judge_mcp_tool(&agent, "other", "query", None).is_allowed());
    assert!(!judge_server(&agent, "DB", None).is_allowed());
}

#[test]
fn a_shared_server_is_granted_by_the_gateways_rules_alone() {
    let mut agent = dev();
    agent.servers = vec![shared("db")];
    assert!(!judge_server(&agent, "db", None).is_allowed());
    assert!(!judge_server(&agent, "db", Some(&gateway("{}"))).is_allowed());
    let rules =
        gateway(r#"{"agents":{"dev":{"allow":{"servers":["*"],"tools":{"db":["get_*"]}}}}}"#);
    assert!(judge_server(&agent, "db", Some(&rules)).is_allowed());
    assert!(!judge_mcp_tool(&agent, "db", "drop", Some(&rules)).is_allowed());
    let granted = judge_mcp_tool(&agent, "db", "get_x", Some(&rules));
    assert_eq!(&*granted.rule.path, "agents.dev.allow.tools.db[0]");
    assert!(!judge_server(&agent, "api", Some(&rules)).is_allowed(), "it declares no such server");
    agent.policy.tools_exclude = tools(&["mcp:db:get_secret"]);
    assert!(!judge_mcp_tool(&agent, "db", "get_secret", Some(&rules)).is_allowed());
}

#[test]
fn private_servers_need_no_gateway_rules_and_get_nothing_from_them() {
    let mut agent = dev();
    agent.servers = vec![private("db")];
    agent.tools = Some(tools(&["mcp:db:query"]));
    let rules = gateway(r#"{"agents":{"dev":{"allow":{"servers":["*"]}}}}"#);
    assert!(judge_mcp_tool(&agent, "db", "query", Some(&rules)).is_allowed());
    assert!(!judge_mcp_tool(&agent, "db", "drop", Some(&rules)).is_allowed());
}

#[test]
fn tools_is_a_whitelist_for_servers_too() {
    let mut agent = dev();
    agent.servers = vec![private("db"), private("api")];
    agent.tools = Some(tools(&["builtin:Bash", "mcp:db:get_*"]));
    assert!(judge_mcp_tool(&agent, "db", "get_x", None).is_allowed());
    assert!(judge_server(&agent, "db", None).is_allowed());
    let refused = judge_mcp_tool(&agent, "db", "drop", None);
    assert_eq!(&*refused.rule.path, "tools");
    assert!(!judge_server(&agent, "api", None).is_allowed());
}

#[test_case(Some(&["db"]), &["*"], true; "a literal name in allowed beats a pattern in excluded")]
#[test_case(Some(&["d*"]), &["*"], false; "a pattern in allowed does not")]
#[test_case(Some(&["db"]), &["db"], false; "a literal name in excluded beats all")]
#[test_case(Some(&["db"]), &["*", "db"], false; "also behind a pattern")]
#[test_case(Some(&["api"]), &[], false; "allowed means only those")]
#[test_case(Some(&[]), &[], false; "an empty list allows none")]
#[test_case(Some(&["d?"]), &[], true; "a pattern in allowed")]
#[test_case(None, &["d*"], false; "excluded by a pattern")]
#[test_case(None, &["api"], true; "another is excluded")]
fn the_policy_for_servers(allowed: Option<&[&str]>, excluded: &[&str], expected: bool) {
    let mut agent = dev();
    agent.servers = vec![private("db")];
    let mcp_allowed = allowed.map(names);
    agent.policy = PolicyRules { mcp_allowed, mcp_excluded: names(excluded), ..agent.policy };
    assert_eq!(judge_server(&agent, "db", None).is_allowed(), expected);
    assert_eq!(judge_mcp_tool(&agent, "db", "query", None).is_allowed(), expected);
}

#[test_case("mcp__db", false, false; "the server")]
#[test_case("mcp__db__*", false, false; "every tool")]
#[test_case("mcp__*", false, false; "every server")]
#[test_case("mcp__db__drop", true, false; "one tool")]
#[test_case("mcp__db__dr*", true, false; "a pattern of tools")]
#[test_case("mcp__api", true, true; "another server")]
fn denied_by_a_permission_rule(deny: &str, server: bool, tool: bool) {
    let mut agent = dev();
    agent.servers = vec![private("db")];
    agent.permissions.deny = rules(&[deny]);
    assert_eq!(judge_server(&agent, "db", None).is_allowed(), server);
    assert_eq!(judge_mcp_tool(&agent, "db", "drop", None).is_allowed(), tool);
}

#[test]
fn approval_comes_from_trust_or_a_rule() {
    let mut agent = dev();
    agent.servers = vec![private("db"), private("my.api")];
    assert!(needs_approval(&agent, "db", "query"));
    agent.permissions = allow(&["mcp__db__get_*", "mcp__my_api"]);
    assert!(!needs_approval(&agent, "db", "get_x"));
    assert!(needs_approval(&agent, "db", "drop"));
    assert!(!needs_approval(&agent, "my.api", "x"), "as `claude` writes the name");
    agent.policy.trusted_servers = names(&["db"]);
    assert!(!needs_approval(&agent, "db", "drop"));
    agent.permissions.ask = rules(&["mcp__db__drop"]);
    assert!(needs_approval(&agent, "db", "drop"), "what is to be asked about is asked about");
}

#[test]
fn a_rule_for_one_servers_tool_does_not_approve_another_server() {
    let mut agent = dev();
    agent.servers = vec![private("a"), private("a__b")];
    agent.permissions = allow(&["mcp__a__b", "mcp__*"]);
    assert!(needs_approval(&agent, "a", "b"), "it could be meant for either: a person decides");
    assert!(needs_approval(&agent, "a__b", "drop"));
    assert!(needs_approval(&agent, "a", "c"), "a pattern in the server's place approves nothing");
}
