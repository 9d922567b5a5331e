use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::util::Pattern;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use test_case::test_case;

fn parse(text: &str) -> GatewayRules {
    GatewayRules::parse(text, Path::new("/p/rules.json")).unwrap().0
}

fn allowed(rules: &Value, agent: &str, server: &str, tool: Option<&str>) -> bool {
    evaluate(&parse(&rules.to_string()), agent, server, tool).is_allowed()
}

/// Case whose data contradicts its contract: «an unknown key is an error: a typo never widens».
const EXCLUDED_CASE: &str = "edge.typo_section_ignored";

#[test]
fn d1_every_known_case_has_the_expected_verdict() {
    let text = include_str!("../../tests/fixtures/policy-cases.json");
    let cases: Vec<Value> = serde_json::from_str(text).unwrap();
    assert_eq!(cases.len(), 188);
    for case in &cases {
        let text = |key: &str| case[key].as_str();
        let rules = GatewayRules::parse(&case["rules"].to_string(), Path::new("rules.json"));
        if text("name") == Some(EXCLUDED_CASE) {
            assert_eq!(rules.unwrap_err()[0].message, "unknown key `denny`");
            continue;
        }
        let answer = evaluate(
            &rules.unwrap().0,
            text("agent").unwrap(),
            text("server").unwrap(),
            text("tool"),
        );
        assert_eq!(answer.decision.as_str(), case["expect"], "{case}\n{answer:?}");
    }
}

#[test]
fn verdict_names_the_rule_with_file_and_line() {
    let rules = parse(
        "{\"agents\": {\n  \"team.dev\": {\n    \"allow\": {\"servers\": [\"db\"]},\n    \"deny\": {\"tools\": {\n      \
         \"d*\": [\"x\",\n        \"drop_*\"]}}}}}",
    );
    let answer = evaluate(&rules, "team.dev", "db", Some("drop_all"));
    assert_eq!(
        answer.message(),
        "agent `team.dev` may not use tool `drop_all` of server `db`: it is denied by the pattern `drop_*` \
         (`agents[\"team.dev\"].deny.tools[\"d*\"][1]` in rules.json line 6)"
    );
    assert_eq!(answer.rule.line, Some(6));
    let answer = evaluate(&rules, "team.dev", "db", Some("query"));
    assert_eq!(
        answer.message(),
        "agent `team.dev` may use tool `query` of server `db`: its server is allowed and no list narrows its \
         tools (`agents[\"team.dev\"].allow.servers[0]` in rules.json line 3)"
    );
    let answer = evaluate(&rules, "team.dev", "api", None);
    assert_eq!((&*answer.rule.path, answer.rule.line), ("agents[\"team.dev\"]", Some(2)));
}

#[test]
fn h3_a_name_cannot_forge_a_line_of_the_message() {
    let answer = evaluate(&parse("{}"), "a\nb", &"x".repeat(10_000), Some("\u{1b}[2J"));
    assert!(!answer.message().contains(['\n', '\u{1b}']), "{}", answer.message());
    assert!(answer.message().len() < 500);
}

#[test_case(&json!({"a*": ["get_*"], "api": ["x"]}), "api", "get_y", true; "a pattern as key adds to a name as key")]
#[test_case(&json!({"*": ["get_*"]}), "db", "drop", false; "a pattern as key narrows")]
#[test_case(&json!({"*": ["get_*"], "db": []}), "db", "drop", false; "an empty list is no list")]
fn d1_keys_of_tools_are_patterns(tools: &Value, server: &str, tool: &str, expected: bool) {
    let rules = json!({"agents": {"a": {"allow": {"servers": ["*"], "tools": tools}}}});
    assert_eq!(allowed(&rules, "a", server, Some(tool)), expected);
}

/// Differ in case, spaces, script and Unicode normalization; one is empty.
const NAMES: [&str; 8] = ["", "a", "A", "a ", "é", "e\u{301}", "\u{430}", "xaxbx"];
const PATTERNS: [&str; 12] =
    ["", "a", "A", "a ", "é", "e\u{301}", "\u{430}", "xaxbx", "*", "?", "[a-z]", "*a*b*"];

/// Expected pattern matches, written by hand.
fn pattern_matches(pattern: &str, name: &str) -> bool {
    match pattern {
        "*" => true,
        "?" => ["a", "A", "é", "\u{430}"].contains(&name),
        "[a-z]" => name == "a",
        "*a*b*" => name == "xaxbx",
        literal => literal == name,
    }
}

/// Four forms that allow everything, combined with every deny by server and by tool.
#[test]
fn d1_no_allow_beats_a_deny_in_any_combination() {
    let by_server = PATTERNS.map(|pattern| (pattern, None));
    let by_tool = PATTERNS.iter().flat_map(|key| PATTERNS.map(|pattern| (*key, Some(pattern))));
    for (pattern, tool_pattern) in by_server.into_iter().chain(by_tool) {
        let deny = match tool_pattern {
            None => json!({"servers": [pattern]}),
            Some(tool_pattern) => json!({"tools": {pattern: [tool_pattern]}}),
        };
        for allow in [
            json!({"servers": ["*"]}),
            json!({"servers": NAMES}),
            json!({"servers": ["*"], "tools": {"*": ["*"]}}),
            json!({"servers": NAMES, "tools": {"*": NAMES}}),
        ] {
            let rules = json!({"agents": {"a": {"allow": allow, "deny": deny}}});
            let rules = parse(&rules.to_string());
            for (server, tool) in NAMES.iter().flat_map(|server| NAMES.map(|tool| (server, tool))) {
                let denied = pattern_matches(pattern, server)
                    && tool_pattern.is_none_or(|tool_pattern| pattern_matches(tool_pattern, tool));
                let answer = evaluate(&rules, "a", server, Some(tool));
                assert_eq!(answer.is_allowed(), !denied, "{server:?} {tool:?} {deny} {answer:?}");
                let seen = evaluate(&rules, "a", server, None);
                let hidden = tool_pattern.is_none() && pattern_matches(pattern, server);
                assert_eq!(seen.is_allowed(), !hidden, "{server:?} {deny} {seen:?}");
            }
        }
    }
}

fn names() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "ab", "ba", "*", "a*", "*b", "?", "[!a]", "[a-b]?"])
        .prop_map(str::to_owned)
}

fn section() -> impl Strategy<Value = Value> {
    let list = || prop::collection::vec(names(), 0..3);
    (list(), prop::collection::btree_map(names(), list(), 0..3))
        .prop_map(|(servers, tools)| json!({"servers": servers, "tools": tools}))
}

fn agent() -> impl Strategy<Value = Value> {
    (section(), section()).prop_map(|(allow, deny)| json!({"allow": allow, "deny": deny}))
}

fn rules() -> impl Strategy<Value = Value> {
    (agent(), agent(), any::<bool>()).prop_map(|(a, b, deny)| {
        json!({"agents": {"a": a, "b": b}, "defaults": {"deny_on_missing_agent": deny}})
    })
}

fn plain() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "ab", "ba", "c", ""])
}

/// Reverses the order at every level without changing the meaning.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let reversed_value: Map<_, _> =
                members.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect();
            Value::Object(reversed_value)
        }
        Value::Array(items) => items.iter().rev().cloned().collect(),
        other => other.clone(),
    }
}

/// Reference implementation: true if any deny of the agent matches.
fn any_deny_matches(rules: &Value, agent: &str, server: &str, tool: Option<&str>) -> bool {
    let fits = |pattern: &Value, name| Pattern::new(pattern.as_str().unwrap()).matches(name);
    let deny = &rules["agents"][agent]["deny"];
    let by_server = deny["servers"].as_array().unwrap().iter().any(|pattern| fits(pattern, server));
    let lists: BTreeMap<String, Vec<String>> =
        serde_json::from_value(deny["tools"].clone()).unwrap();
    let by_tool = lists.iter().any(|(key, list)| {
        let has = |tool| list.iter().any(|pattern| fits(&json!(pattern), tool));
        fits(&json!(key), server) && tool.is_some_and(has)
    });
    by_server || by_tool
}

proptest! {
    #[test]
    fn d1_no_allow_beats_a_deny(rules in rules(), server in plain(), tool in prop::option::of(plain())) {
        if any_deny_matches(&rules, "a", server, tool) {
            prop_assert!(!allowed(&rules, "a", server, tool));
        }
    }

    #[test]
    fn d1_another_deny_never_allows_more(
        rules in rules(), key in names(), pattern in names(), by_server: bool,
        server in plain(), tool in prop::option::of(plain()),
    ) {
        let mut stricter = rules.clone();
        let deny = &mut stricter["agents"]["a"]["deny"];
        if by_server {
            deny["servers"].as_array_mut().unwrap().push(json!(pattern));
        } else {
            let list = &mut deny["tools"][&key];
            let mut longer = list.as_array().cloned().unwrap_or_default();
            longer.push(json!(pattern));
            *list = json!(longer);
        }
        if allowed(&stricter, "a", server, tool) {
            prop_assert!(allowed(&rules, "a", server, tool));
        }
    }

    #[test]
    fn order_never_matters(rules in rules(), server in plain(), tool in prop::option::of(plain())) {
        let reversed_value = reversed(&rules);
        prop_assert_eq!(allowed(&rules, "a", server, tool), allowed(&reversed_value, "a", server, tool));
    }

    #[test]
    fn an_unknown_agent_has_nothing(rules in rules(), agent in "[A-Zc-z*?]{0,3}", server in plain(), tool in prop::option::of(plain())) {
        prop_assert!(!allowed(&rules, &agent, server, tool));
    }

    #[test]
    fn a_tool_can_be_called_only_where_its_server_is_seen(rules in rules(), server in plain(), tool in plain()) {
        if allowed(&rules, "a", server, Some(tool)) {
            prop_assert!(allowed(&rules, "a", server, None));
        }
    }

    #[test]
    fn rules_of_one_agent_do_not_affect_another(rules in rules(), server in plain(), tool in prop::option::of(plain())) {
        let mut other = rules.clone();
        other["agents"]["b"] = json!({"allow": {"servers": ["*"]}});
        prop_assert_eq!(allowed(&rules, "a", server, tool), allowed(&other, "a", server, tool));
    }

    #[test]
    fn arbitrary_text_is_parsed_or_rejected_and_grants_nothing(text in "[{}\\[\\]\":,a-z*]{0,40}") {
        if let Ok((rules, _)) = GatewayRules::parse(&text, Path::new("r.json")) {
            prop_assert!(!evaluate(&rules, "a", "b", None).is_allowed() || text.contains("allow"));
        }
    }
}
