//! Properties over random files, rules and calls: callable tools are granted, and are the listed tools.

use std::path::Path;

use proptest::prelude::*;
use serde_json::json;

use super::super::test_support::{dev_agent, private_server, shared_server};
use super::*;
use crate::catalog::{Permissions, PolicyRules};

const BUILTINS: &[&str] =
    &["Bash", "Read", "Write", "Agent", "Task", "SendMessage", "Teleport", "KillShell"];
const SERVERS: &[&str] = &["db", "api", "a__b", "a"];
const TOOLS: &[&str] = &["get", "put", "b", "b__get"];

fn name(plain: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    let mut words = plain.to_vec();
    words.extend(["*", "?*", "[!a]*", "*t"]);
    prop::sample::select(words).prop_map(str::to_owned)
}

fn tool_ref() -> impl Strategy<Value = ToolRef> + Clone {
    prop_oneof![
        name(BUILTINS).prop_map(ToolRef::Builtin),
        (name(SERVERS), name(TOOLS)).prop_map(|(server, tool)| ToolRef::Mcp { server, tool }),
    ]
}

fn tool_refs() -> impl Strategy<Value = Vec<ToolRef>> + Clone {
    prop::collection::vec(tool_ref(), 0..5)
}

fn rule_text() -> impl Strategy<Value = RuleText> + Clone {
    let tool = prop_oneof![
        name(BUILTINS),
        (name(SERVERS), name(TOOLS)).prop_map(|(server, tool)| format!("mcp__{server}__{tool}")),
        name(SERVERS).prop_map(|server| format!("mcp__{server}")),
    ];
    let specifier =
        prop::option::of(prop::sample::select(vec!["*", "curl:*"]).prop_map(str::to_owned));
    (tool, specifier).prop_map(|(tool, specifier)| RuleText { tool, specifier })
}

fn permissions() -> impl Strategy<Value = Permissions> {
    let list = || prop::collection::vec(rule_text(), 0..3);
    (list(), list(), list()).prop_map(|(allow, ask, deny)| Permissions { allow, ask, deny })
}

fn policy() -> impl Strategy<Value = PolicyRules> {
    let servers = || prop::collection::vec(name(SERVERS), 0..3);
    (
        prop::option::weighted(0.3, tool_refs()),
        prop::collection::vec(tool_ref(), 0..2),
        prop::option::weighted(0.3, servers()),
        prop::collection::vec(name(SERVERS), 0..2),
        servers(),
    )
        .prop_map(
            |(tools_allowed, tools_exclude, mcp_allowed, mcp_excluded, trusted_servers)| {
                PolicyRules {
                    tools_allowed,
                    tools_exclude,
                    mcp_allowed,
                    mcp_excluded,
                    trusted_servers,
                }
            },
        )
}

fn agent() -> impl Strategy<Value = Agent> {
    let servers = prop::sample::subsequence(SERVERS, 0..=SERVERS.len());
    let shares = prop::collection::vec(any::<bool>(), SERVERS.len());
    (prop::option::of(tool_refs()), permissions(), policy(), servers, shares).prop_map(
        |(tools, permissions, policy, servers, shares)| Agent {
            tools,
            permissions,
            policy,
            servers: servers
                .iter()
                .zip(shares)
                .map(|(name, share)| if share { shared_server(name) } else { private_server(name) })
                .collect(),
            ..dev_agent()
        },
    )
}

fn gateway() -> impl Strategy<Value = GatewayRules> {
    let list = || prop::collection::vec(name(SERVERS), 0..3);
    let tools =
        prop::collection::btree_map(name(SERVERS), prop::collection::vec(name(TOOLS), 0..3), 0..2);
    (list(), list(), tools).prop_map(|(allow, deny, tools)| {
        let own = json!({"allow": {"servers": allow, "tools": tools}, "deny": {"servers": deny}});
        let text = json!({"agents": {"dev": own}}).to_string();
        GatewayRules::parse(&text, Path::new("r.json")).unwrap().0
    })
}

fn call() -> impl Strategy<Value = (&'static str, &'static str)> {
    (prop::sample::select(SERVERS), prop::sample::select(TOOLS))
}

/// Reference implementation: true if the tool is granted, before any removal.
fn is_granted(agent: &Agent, server: &str, tool: &str, rules: &GatewayRules) -> bool {
    agent.servers.iter().any(|entry| {
        let shared = entry.launch == ServerLaunch::Shared;
        entry.name == server && (!shared || evaluate(rules, "dev", server, Some(tool)).is_allowed())
    })
}

/// Reference implementation: true if `tools` and `policy.tools` do not remove the tool.
fn is_not_removed(agent: &Agent, server: &str, tool: &str) -> bool {
    let names = |written: &ToolRef| match written {
        ToolRef::Mcp { server: of, tool: named } => {
            Pattern::new(of).matches(server) && Pattern::new(named).matches(tool)
        }
        ToolRef::Builtin(_) => false,
    };
    let lists = [&agent.tools, &agent.policy.tools_allowed];
    lists.into_iter().flatten().all(|list| list.iter().any(names))
        && !agent.policy.tools_exclude.iter().any(names)
}

proptest! {
    #[test]
    fn listed_servers_are_granted_and_not_excluded(agent in agent(), rules in gateway()) {
        let all = || SERVERS.iter().flat_map(|server| TOOLS.iter().map(move |tool| (*server, *tool)));
        let listed = |agent: &Agent| -> Vec<_> {
            all().filter(|(server, tool)| evaluate_mcp_tool(agent, server, tool, Some(&rules)).is_allowed()).collect()
        };
        let expected: Vec<_> = all()
            .filter(|(server, tool)| is_granted(&agent, server, tool, &rules) && is_not_removed(&agent, server, tool))
            .collect();
        prop_assert!(listed(&agent).iter().all(|call| expected.contains(call)));
        // Equality holds only if nothing else removes tools.
        let mut plain = agent;
        plain.permissions.deny.clear();
        plain.policy.mcp_allowed = None;
        plain.policy.mcp_excluded.clear();
        prop_assert_eq!(listed(&plain), expected);
    }

    #[test]
    fn a_built_in_tool_exists_exactly_if_it_is_listed(agent in agent(), tool in prop::sample::select(BUILTINS)) {
        let listed = builtin_tools(&agent);
        let exists = all_names(tool).any(|name| listed.iter().any(|listed| listed == name));
        prop_assert_eq!(evaluate_builtin(&agent, tool).is_allowed(), exists, "{:?}", listed);
    }

    #[test]
    fn callable_tools_are_granted(agent in agent(), rules in gateway(), (server, tool) in call()) {
        if evaluate_mcp_tool(&agent, server, tool, Some(&rules)).is_allowed() {
            prop_assert!(is_granted(&agent, server, tool, &rules));
            prop_assert!(evaluate_server(&agent, server, Some(&rules)).is_allowed(), "its server is seen");
        }
    }

    #[test]
    fn without_gateway_rules_no_shared_server_is_reached(agent in agent(), (server, tool) in call()) {
        if evaluate_mcp_tool(&agent, server, tool, None).is_allowed() {
            prop_assert!(agent.servers.iter().any(|e| e.name == server && e.launch != ServerLaunch::Shared));
        }
    }

    #[test]
    fn tools_and_policy_only_take_away(agent in agent(), rules in gateway(), (server, tool) in call(), builtin in prop::sample::select(BUILTINS)) {
        let free = Agent { tools: None, policy: PolicyRules::default(), ..agent.clone() };
        if evaluate_mcp_tool(&agent, server, tool, Some(&rules)).is_allowed() {
            prop_assert!(evaluate_mcp_tool(&free, server, tool, Some(&rules)).is_allowed());
        }
        let without_policy = Agent { policy: PolicyRules::default(), ..agent.clone() };
        if evaluate_builtin(&agent, builtin).is_allowed() {
            prop_assert!(evaluate_builtin(&without_policy, builtin).is_allowed());
        }
    }

    #[test]
    fn another_exclusion_or_deny_never_allows_more(
        agent in agent(), rules in gateway(), excluded in tool_ref(), denied in rule_text(), gone in name(SERVERS),
        (server, tool) in call(), builtin in prop::sample::select(BUILTINS),
    ) {
        let mut stricter = agent.clone();
        stricter.policy.tools_exclude.push(excluded);
        stricter.policy.mcp_excluded.push(gone);
        stricter.permissions.deny.push(denied);
        if evaluate_mcp_tool(&stricter, server, tool, Some(&rules)).is_allowed() {
            prop_assert!(evaluate_mcp_tool(&agent, server, tool, Some(&rules)).is_allowed());
        }
        if evaluate_builtin(&stricter, builtin).is_allowed() {
            prop_assert!(evaluate_builtin(&agent, builtin).is_allowed());
        }
    }

    #[test]
    fn an_exclusion_overrides_every_grant(agent in agent(), (server, tool) in call(), rules in gateway(), builtin in prop::sample::select(BUILTINS)) {
        let mut agent = agent;
        agent.policy.tools_exclude.push(ToolRef::Mcp { server: server.to_owned(), tool: tool.to_owned() });
        agent.policy.tools_exclude.push(ToolRef::Builtin(builtin.to_owned()));
        prop_assert!(!evaluate_mcp_tool(&agent, server, tool, Some(&rules)).is_allowed());
        prop_assert!(!evaluate_builtin(&agent, builtin).is_allowed());
    }
}
