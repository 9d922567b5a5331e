use std::path::Path;

use super::super::fallback_agent::{FallbackError, resolve_caller};
use super::*;
use test_case::test_case;

fn problems(text: &str) -> Vec<String> {
    let problems = GatewayRules::parse(text, Path::new("r.json")).unwrap_err();
    problems.iter().map(|problem| problem.located().to_string()).collect()
}

fn read(text: &str) -> (GatewayRules, Vec<String>) {
    let (rules, warnings) = GatewayRules::parse(text, Path::new("r.json")).unwrap();
    (rules, warnings.iter().map(|warning| warning.located().to_string()).collect())
}

#[test_case(
    "{\"agents\":{\"a\":{\n\"denny\":{}}}}",
    "r.json:2: unknown key `denny`; did you mean `deny`?"
)]
#[test_case(
    "{\"agents\":{\"a\":{\"allow\":{\n\n\"server\":[]}}}}",
    "r.json:3: unknown key `server`; did you mean `servers`?"
)]
#[test_case("{\"agent\":{}}", "r.json:1: unknown key `agent`; did you mean `agents`?")]
#[test_case(
    "{\"defaults\":{\"zzz\":1}}",
    "r.json:1: unknown key `zzz`; here stand only `deny_on_missing_agent`"
)]
#[test_case(
    "{\"agents\":{\"a\":{},\n\"a\":{}}}",
    "r.json:2: `a` is written twice, first on line 1; keep one of them"
)]
#[test_case(
    "{\"agents\":{\"a\":{\"deny\":{\"servers\":\"db\"}}}}",
    "r.json:1: `agents.a.deny.servers` must be a list of names, not text"
)]
#[test_case(
    "{\"agents\":{\"a\":{\"deny\":{\"tools\":{\"db\":[\n1]}}}}}",
    "r.json:2: `agents.a.deny.tools.db[0]` must be text, not a number"
)]
#[test_case(
    "{\"agents\":{\"a\":{\"deny\":null}}}",
    "r.json:1: `agents.a.deny` must be an object, not null"
)]
#[test_case(
    "{\"defaults\":{\"deny_on_missing_agent\":\"no\"}}",
    "r.json:1: `defaults.deny_on_missing_agent` must be true or false, not text"
)]
#[test_case("[]", "r.json:1: `the file` must be an object, not a list"; "no object")]
#[test_case("", "r.json:1: this is no JSON: EOF while parsing a value (column 0)"; "an empty file")]
#[test_case("{\n\"agents\": {\n}", "r.json:3: this is no JSON: EOF while parsing an object (column 1)"; "a torn file")]
fn a4_a_typo_is_a_problem_with_its_line(text: &str, expected: &str) {
    assert_eq!(problems(text), [expected]);
}

#[test]
fn all_problems_are_reported_at_once() {
    let found = problems("{\"agents\":{\"a\":{\"denny\":{},\n\"allow\":[]}},\n\"default\":{}}");
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn rules_without_effect_are_warnings() {
    let (rules, warnings) = read(
        "{\"$schema\":\"x\",\"agents\":{\"*\":{\"allow\":{\"servers\":[\"db\"]}},\n\"a\":{\"allow\":{\"servers\":[\" db\"],\n\"tools\":{\"db\":[]}}}}}",
    );
    assert_eq!(rules.agents().collect::<Vec<_>>(), ["a"]);
    assert_eq!(
        warnings,
        [
            "r.json:1: nobody can be called `*`: this entry does nothing; an agent id has letters, digits, \
             `_`, `.` and `-`, and is no pattern",
            "r.json:2: ` db` is taken exactly as written, spaces included",
            "r.json:3: the empty list for `db` counts as not written; to forbid every tool of a server, put \
             the server under `deny.servers`",
        ]
    );
}

#[test]
fn unknown_server_is_a_warning() {
    let (rules, _) = read(
        "{\"agents\":{\"a\":{\"allow\":{\"servers\":[\"postgers\",\"*\",\"api\"]},\n\"deny\":{\"tools\":{\"gone\":[\"x\"]}}}}}",
    );
    let warnings = unknown_servers(&rules, ["postgres", "api"]);
    let messages: Vec<String> = warnings.iter().map(|w| w.located().to_string()).collect();
    assert_eq!(
        messages,
        [
            "r.json:1: the rules name server `postgers`, which is not configured; did you mean `postgres`?",
            "r.json:2: the rules name server `gone`, which is not configured",
        ]
    );
    assert_eq!(rules.named_servers(), ["api", "gone", "postgers"]);
    assert_eq!(rules.named_tools("gone"), ["x"]);
}

const STRICT: &str = r#"{"agents":{"a":{},"default":{}}}"#;
const LAX: &str = r#"{"agents":{"a":{},"default":{}},"defaults":{"deny_on_missing_agent":false}}"#;
const LAX_ALONE: &str = r#"{"agents":{"a":{}},"defaults":{"deny_on_missing_agent":false}}"#;

#[test_case(STRICT, Some("a"), None, "a asserted")]
#[test_case(LAX, Some("a"), Some("default"), "a asserted")]
#[test_case(STRICT, Some("x"), None, "INVALID_AGENT_ID")]
#[test_case(LAX, Some("x"), Some("a"), "INVALID_AGENT_ID"; "c5 an unknown agent never falls back")]
#[test_case(LAX, Some("A"), None, "INVALID_AGENT_ID"; "case counts")]
#[test_case(STRICT, None, Some("a"), "INVALID_AGENT_ID"; "missing, whatever else is set")]
#[test_case(STRICT, Some(""), None, "INVALID_AGENT_ID"; "empty is missing")]
#[test_case(LAX, Some(""), Some("a"), "a fallback"; "empty falls back")]
#[test_case(LAX, None, Some("a"), "a fallback")]
#[test_case(LAX, None, Some("x"), "FALLBACK_AGENT_NOT_IN_RULES"; "no further fallback")]
#[test_case(LAX, None, None, "default fallback")]
#[test_case(LAX, None, Some(""), "default fallback"; "an empty variable is unset")]
#[test_case(LAX_ALONE, None, None, "NO_FALLBACK_CONFIGURED")]
#[test_case("{}", None, None, "INVALID_AGENT_ID"; "no rules, no agent")]
fn resolves_the_named_or_fallback_agent(
    text: &str,
    explicit: Option<&str>,
    default_agent: Option<&str>,
    expected: &str,
) {
    let found = resolve_caller(&read(text).0, explicit, default_agent).map(|caller| {
        let known_by = serde_json::to_value(caller.known_by).unwrap();
        format!("{} {}", caller.name, known_by.as_str().unwrap())
    });
    assert_eq!(found.unwrap_or_else(|error: FallbackError| error.code().to_owned()), expected);
}
