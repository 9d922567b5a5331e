use std::path::Path;

use super::super::test_support::{
    dev_agent, names, permission_rules, private_server, shared_server, tools,
};
use super::*;
use crate::catalog::{Permissions, PolicyRules};
use test_case::test_case;

fn allow(texts: &[&str]) -> Permissions {
    Permissions { allow: permission_rules(texts), ..Permissions::default() }
}

fn gateway(text: &str) -> GatewayRules {
    GatewayRules::parse(text, Path::new("rules.json")).unwrap().0
}

#[test]
fn agent_without_grants_has_no_tools() {
    assert!(builtin_tools(&dev_agent()).is_empty());
    let refused = evaluate_builtin(&dev_agent(), "Read");
    assert_eq!(
        refused.message(),
        "agent `dev` may not use the built-in tool `Read`: neither `tools` nor `permissions.allow` \
         grants it (`tools` in agent.md)"
    );
}

#[test]
fn permissions_grant_builtins_in_addition_to_tools() {
    let mut agent = dev_agent();
    agent.tools = Some(tools(&["builtin:Read", "mcp:db:*"]));
    agent.permissions = allow(&["Bash(curl:*)", "Bash(wget:*)", "mcp__db__query"]);
    agent.permissions.ask = permission_rules(&["Write"]);
    assert_eq!(builtin_tools(&agent), ["Bash", "Read", "Write"]);
    assert_eq!(&*evaluate_builtin(&agent, "Bash").rule.path, "permissions.allow[0]");
    assert_eq!(&*evaluate_builtin(&agent, "Write").rule.path, "permissions.ask[0]");
}

#[test]
fn exclusion_takes_precedence_over_permissions() {
    let mut agent = dev_agent();
    agent.permissions = allow(&["Bash(*)", "Read"]);
    agent.policy.tools_exclude = tools(&["mcp:x:*", "builtin:Bash"]);
    assert_eq!(builtin_tools(&agent), ["Read"]);
    let refused = evaluate_builtin(&agent, "Bash");
    assert_eq!(&*refused.rule.path, "policy.tools.exclude[1]");
}

#[test]
fn policy_allowed_removes_all_other_tools() {
    let mut agent = dev_agent();
    agent.permissions = allow(&["Bash", "Read", "Write"]);
    agent.policy.tools_allowed = Some(tools(&["builtin:R*", "builtin:WebFetch"]));
    assert_eq!(builtin_tools(&agent), ["Read"], "`allowed` takes away and never grants");
}

#[test_case("Bash", false; "the whole tool")]
#[test_case("Bash(*)", false; "the whole tool by its pattern")]
#[test_case("Bash(rm:*)", true; "a part of it")]
fn deny_rule_for_a_whole_tool_removes_it(deny: &str, exists: bool) {
    let mut agent = dev_agent();
    agent.permissions = allow(&["Bash(ls:*)"]);
    agent.permissions.deny = permission_rules(&[deny]);
    assert_eq!(evaluate_builtin(&agent, "Bash").is_allowed(), exists);
    assert_eq!(builtin_tools(&agent).is_empty(), !exists);
}

#[test]
fn d6_a_tool_of_a_newer_claude_is_not_granted_by_a_pattern() {
    let mut agent = dev_agent();
    agent.tools = Some(tools(&["builtin:*"]));
    assert!(evaluate_builtin(&agent, "Bash").is_allowed());
    assert!(!evaluate_builtin(&agent, "Teleport").is_allowed());
    agent.tools = Some(tools(&["builtin:Teleport"]));
    assert_eq!(builtin_tools(&agent), ["Teleport"]);
}

#[test_case("Task")]
#[test_case("Agent")]
#[test_case("SendMessage")]
#[test_case("ListAgents")]
#[test_case("Workflow")]
fn tools_that_reach_agents_must_be_named_in_tools(tool: &str) {
    let mut agent = dev_agent();
    agent.tools = Some(tools(&["builtin:*"]));
    agent.permissions = allow(&[tool]);
    assert!(!evaluate_builtin(&agent, tool).is_allowed());
    assert!(!builtin_tools(&agent).iter().any(|name| name == tool));
    agent.tools = Some(tools(&[&format!("builtin:{tool}")]));
    assert!(evaluate_builtin(&agent, tool).is_allowed());
}

#[test]
fn deny_and_exclusion_cover_former_tool_names() {
    let mut agent = dev_agent();
    agent.tools = Some(tools(&["builtin:Agent", "builtin:KillShell"]));
    agent.policy.tools_exclude = tools(&["builtin:Task", "builtin:TaskS*"]);
    assert!(!evaluate_builtin(&agent, "Agent").is_allowed());
    assert!(!evaluate_builtin(&agent, "KillShell").is_allowed());
}

#[test_case("Bash,Write")]
#[test_case("*")]
#[test_case("")]
#[test_case("Bash Write")]
#[test_case("mcp__db__query")]
fn a6_a_name_cannot_add_a_second_tool(name: &str) {
    let mut agent = dev_agent();
    agent.permissions = allow(&[name]);
    agent.tools = Some(vec![ToolRef::Builtin(name.replace('*', "Bash,Write"))]);
    assert!(builtin_tools(&agent).is_empty());
    assert!(!evaluate_builtin(&agent, name).is_allowed());
}

#[test]
fn private_server_is_granted_by_the_agent_file() {
    let mut agent = dev_agent();
    agent.servers = vec![private_server("db")];
    let granted = evaluate_mcp_tool(&agent, "db", "query", None);
    assert_eq!(
        granted.message(),
        "agent `dev` may use tool `query` of server `db`: the server is its own (`mcp_servers.db` in agent.md)"
    );
    assert!(!evaluate_mcp_tool(&agent, "other", "query", None).is_allowed());
    assert!(!evaluate_server(&agent, "DB", None).is_allowed());
}

#[test]
fn shared_server_is_granted_by_gateway_rules_only() {
    let mut agent = dev_agent();
    agent.servers = vec![shared_server("db")];
    assert!(!evaluate_server(&agent, "db", None).is_allowed());
    assert!(!evaluate_server(&agent, "db", Some(&gateway("{}"))).is_allowed());
    let rules =
        gateway(r#"{"agents":{"dev":{"allow":{"servers":["*"],"tools":{"db":["get_*"]}}}}}"#);
    assert!(evaluate_server(&agent, "db", Some(&rules)).is_allowed());
    assert!(!evaluate_mcp_tool(&agent, "db", "drop", Some(&rules)).is_allowed());
    let granted = evaluate_mcp_tool(&agent, "db", "get_x", Some(&rules));
    assert_eq!(&*granted.rule.path, "agents.dev.allow.tools.db[0]");
    assert!(
        !evaluate_server(&agent, "api", Some(&rules)).is_allowed(),
        "it declares no such server"
    );
    agent.policy.tools_exclude = tools(&["mcp:db:get_secret"]);
    assert!(!evaluate_mcp_tool(&agent, "db", "get_secret", Some(&rules)).is_allowed());
}

#[test]
fn gateway_rules_do_not_apply_to_private_servers() {
    let mut agent = dev_agent();
    agent.servers = vec![private_server("db")];
    agent.tools = Some(tools(&["mcp:db:query"]));
    let rules = gateway(r#"{"agents":{"dev":{"allow":{"servers":["*"]}}}}"#);
    assert!(evaluate_mcp_tool(&agent, "db", "query", Some(&rules)).is_allowed());
    assert!(!evaluate_mcp_tool(&agent, "db", "drop", Some(&rules)).is_allowed());
}

#[test]
fn tools_is_an_allow_list_for_servers_too() {
    let mut agent = dev_agent();
    agent.servers = vec![private_server("db"), private_server("api")];
    agent.tools = Some(tools(&["builtin:Bash", "mcp:db:get_*"]));
    assert!(evaluate_mcp_tool(&agent, "db", "get_x", None).is_allowed());
    assert!(evaluate_server(&agent, "db", None).is_allowed());
    let refused = evaluate_mcp_tool(&agent, "db", "drop", None);
    assert_eq!(&*refused.rule.path, "tools");
    assert!(!evaluate_server(&agent, "api", None).is_allowed());
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
fn policy_for_servers_has_literal_precedence(
    allowed: Option<&[&str]>,
    excluded: &[&str],
    expected: bool,
) {
    let mut agent = dev_agent();
    agent.servers = vec![private_server("db")];
    let mcp_allowed = allowed.map(names);
    agent.policy = PolicyRules { mcp_allowed, mcp_excluded: names(excluded), ..agent.policy };
    assert_eq!(evaluate_server(&agent, "db", None).is_allowed(), expected);
    assert_eq!(evaluate_mcp_tool(&agent, "db", "query", None).is_allowed(), expected);
}

#[test_case("mcp__db", false, false; "the server")]
#[test_case("mcp__db__*", false, false; "every tool")]
#[test_case("mcp__*", false, false; "every server")]
#[test_case("mcp__db__drop", true, false; "one tool")]
#[test_case("mcp__db__dr*", true, false; "a pattern of tools")]
#[test_case("mcp__api", true, true; "another server")]
fn deny_rules_apply_to_mcp_tools(deny: &str, server: bool, tool: bool) {
    let mut agent = dev_agent();
    agent.servers = vec![private_server("db")];
    agent.permissions.deny = permission_rules(&[deny]);
    assert_eq!(evaluate_server(&agent, "db", None).is_allowed(), server);
    assert_eq!(evaluate_mcp_tool(&agent, "db", "drop", None).is_allowed(), tool);
}
