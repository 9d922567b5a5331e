//! `adjutant explain` and `adjutant matrix`: the policy test cases and the output formats.

use std::process::Output;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::text::mask;

const RULES_FILE: &str = ".mcp-gateway-rules.json";

fn json_output(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The case that deviates from the fixture: an unknown key is an error, because a typo must not widen access.
const REJECTED_CASE: &str = "edge.typo_section_ignored";

#[test]
fn d1_explain_decides_every_policy_case() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../fixtures/policy-cases.json")).expect("the cases");
    assert_eq!(cases.len(), 188);
    let context = TestContext::new();
    for case in &cases {
        context.write(RULES_FILE, case["rules"].to_string());
        let text = |key: &str| case[key].as_str().unwrap_or_default();
        let mut command = context.adjutant([
            "explain",
            "--json",
            "--agent",
            text("agent"),
            "--server",
            text("server"),
        ]);
        if let Some(tool) = case["tool"].as_str() {
            command.args(["--tool", tool]);
        }
        let output = command.output().expect("the program starts");
        let expected = if text("name") == REJECTED_CASE {
            (Some("undetermined"), 2)
        } else {
            (Some(text("expect")), i32::from(text("expect") == "deny"))
        };
        let found = json_output(&output);
        assert_eq!(
            (found["decision"].as_str(), output.status.code()),
            (expected.0, Some(expected.1)),
            "{case}\n{found}"
        );
    }
}

#[test]
fn explain_names_rule_file_and_line() {
    let context = TestContext::new();
    context.write(RULES_FILE, "{\"agents\": {\"dev\": {\n\"allow\": {\"servers\": [\"*\"]},\n\"deny\": {\"servers\": [\"db\"]}}}}");
    let output =
        context.run(["explain", "--agent", "dev", "--server", "db", "--tool", "x", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        json_output(&output),
        json!({
            "decision": "deny", "agent": "dev", "kind": "tool", "target": "db/x", "server": "db", "tool": "x",
            "rule": "agents.dev.deny.servers[0]", "file": context.root().join(RULES_FILE), "line": 3,
            "reason": "agent `dev` may not use tool `x` of server `db`: it is denied by name \
                       (`agents.dev.deny.servers[0]` in .mcp-gateway-rules.json line 3)",
        })
    );
    let output = context.run(["explain", "--agent", "dev", "--server", "api"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        text.starts_with(
            "allowed: agent `dev` may use server `api`: it is allowed by the pattern `*`"
        ),
        "{text}"
    );
}

#[test]
fn gateway_rules_variable_names_the_rules_file() {
    let context = TestContext::new();
    context.write("elsewhere/r.json", r#"{"agents":{"a":{"allow":{"servers":["db"]}}}}"#);
    let explain = |value: &str| {
        let mut command = context.adjutant(["explain", "--agent", "a", "--server", "db"]);
        command.env("GATEWAY_RULES", value).output().expect("the program starts")
    };
    assert_eq!(explain("elsewhere/r.json").status.code(), Some(0));
    assert_eq!(explain("").status.code(), Some(1), "empty means unset: no rules, nobody may");
    let missing = explain("gone.json");
    assert_eq!(missing.status.code(), Some(2), "a file that was asked for by name has to be there");
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(
        mask(&said),
        "error: the rules `[ROOT]/gone.json` (named by `GATEWAY_RULES`) cannot be read: No such \
         file or directory (os error 2)\n"
    );
}

#[test]
fn explain_fails_if_the_rules_file_is_invalid() {
    let context = TestContext::new();
    context.write(RULES_FILE, "{\"agents\": {\"a\": {\"allow\": {\"servers\": [\"*\"]},\n\"denny\": {\"servers\": [\"db\"]}}}}");
    let output = context.run(["explain", "--agent", "a", "--server", "db"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    insta::assert_snapshot!(mask(&said), @r"
    error: the rules are broken, so nothing can be said
      [ROOT]/.mcp-gateway-rules.json:2: unknown key `denny`; did you mean `deny`?
    ");
    assert!(output.stdout.is_empty());
}

#[test]
fn explain_without_server_or_builtin_is_a_usage_error() {
    let context = TestContext::new();
    for arguments in
        [["explain", "--agent", "a", "--json"], ["explain", "--agent", "a", "--tool=x"]]
    {
        assert_eq!(context.run(arguments).status.code(), Some(2));
    }
}

const DEV_AGENT: &str = "---
name: dev
description: \"Develops\"
permissions:
  allow: [\"Bash(*)\", \"Read\"]
policy:
  tools:
    exclude:
      - \"builtin:Write\"
      - \"builtin:shell\"
      - \"mcp:files:delete_*\"
mcp_servers:
  - name: files
    command: server-files
  - name: db
---
You develop.
";

#[test]
fn explain_evaluates_subagents_by_their_own_file() {
    let context = TestContext::new();
    context.agent("dev", DEV_AGENT);
    context.write(RULES_FILE, r#"{"agents": {"dev": {"allow": {"servers": ["db", "other"]}}}}"#);
    let explain = |arguments: &[&str]| {
        let mut command = context.adjutant(["explain", "--json", "--agent", "dev"]);
        let output = command.args(arguments).output().expect("the program starts");
        (output.status.code(), json_output(&output))
    };
    let (code, found) = explain(&["--builtin", "shell"]);
    assert_eq!(
        (code, found),
        (
            Some(1),
            json!({
                "decision": "deny", "agent": "dev", "kind": "builtin", "target": "shell",
                "rule": "policy.tools.exclude[1]", "file": context.root().join("agents/dev/agent.md"), "line": 10,
                "reason": "agent `dev` may not use the built-in tool `Bash`: `builtin:Bash` is excluded \
                           (`policy.tools.exclude[1]` in agent.md)",
            })
        )
    );
    assert_eq!(explain(&["--builtin", "Read"]).0, Some(0));
    assert_eq!(explain(&["--builtin", "WebFetch"]).0, Some(1));
    assert_eq!(explain(&["--server", "files", "--tool", "read"]).0, Some(0));
    assert_eq!(explain(&["--server", "files", "--tool", "delete_all"]).1["line"], 11);
    let (code, found) = explain(&["--server", "db", "--tool", "query"]);
    assert_eq!((code, &found["rule"]), (Some(0), &json!("agents.dev.allow.servers[0]")));
    let (code, found) = explain(&["--server", "other"]);
    assert_eq!(
        (code, &found["file"]),
        (Some(0), &json!(context.root().join(RULES_FILE))),
        "not its own: the gateway's rules"
    );
    assert_eq!(explain(&["--server", "api"]).0, Some(1));
}

#[test]
fn explain_fails_for_a_broken_or_unknown_agent() {
    let context = TestContext::new();
    context.agent("dev", &DEV_AGENT.replace("exclude:", "exclud:"));
    let output = context.run(["explain", "--agent", "dev", "--builtin", "Read"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said,
        "error: agent `dev` is broken, so nothing can be said: agents/dev/agent.md:8:5: unknown \
         key `exclud` in `policy.tools` (did you mean `exclude`?)\n"
    );
    let output = context.run(["explain", "--agent", "devv", "--builtin", "Read"]);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "error: there is no agent `devv`: did you mean `dev`?\n");
}

fn matrix_project() -> TestContext {
    let context = TestContext::new();
    context.agent("dev", DEV_AGENT);
    context
        .write(".mcp.json", r#"{"mcpServers": {"db": {"command": "x"}, "<b>": {"command": "x"}}}"#);
    let rules = json!({"agents": {
        "dev": {"allow": {"servers": ["db"], "tools": {"db": ["query"]}}},
        "ops": {"allow": {"servers": ["*"]}, "deny": {"tools": {"db": ["drop_*"]}}},
    }});
    context.write(RULES_FILE, rules.to_string());
    context
}

/// The decisions of one row, one word per agent: `allow`, `deny` or `none`.
fn row_decisions(matrix: &Value, server: &str, tool: Option<&str>) -> Vec<String> {
    let decisions = matrix.as_array().expect("decisions");
    let word = |agent: &str| {
        let mut found = decisions.iter().filter(|found| {
            found["agent"] == agent && found["server"] == server && found["tool"].as_str() == tool
        });
        let word = found.next().map_or("none", |found| found["decision"].as_str().expect("a word"));
        assert!(found.next().is_none(), "{server} {tool:?} of {agent}: more than one: {matrix:#}");
        word.to_owned()
    };
    ["dev", "ops"].map(word).to_vec()
}

#[test]
fn matrix_and_explain_agree() {
    let context = matrix_project();
    let output = context.run(["matrix", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let matrix = json_output(&output);
    assert_eq!(row_decisions(&matrix, "db", None), ["allow", "allow"]);
    assert_eq!(row_decisions(&matrix, "db", Some("query")), ["allow", "allow"]);
    assert_eq!(row_decisions(&matrix, "db", Some("drop_*")), ["deny", "deny"]);
    assert_eq!(row_decisions(&matrix, "db", Some("any other tool")), ["deny", "allow"]);
    assert_eq!(
        row_decisions(&matrix, "files", None),
        ["allow", "none"],
        "nobody else sees a private server"
    );
    assert_eq!(row_decisions(&matrix, "files", Some("delete_*")), ["deny", "none"]);
    for cell in matrix.as_array().expect("decisions") {
        let text = |key: &str| cell[key].as_str().unwrap_or_default();
        let mut explain = context.adjutant(["explain", "--json", "--agent", text("agent")]);
        match (cell["server"].as_str(), cell["tool"].as_str()) {
            (Some(server), Some(tool)) => explain.args(["--server", server, "--tool", tool]),
            (Some(server), None) => explain.args(["--server", server]),
            (None, tool) => explain.args(["--builtin", tool.expect("a tool")]),
        };
        let explained = json_output(&explain.output().expect("the program starts"));
        for key in ["decision", "agent", "reason", "rule", "file", "line", "target"] {
            assert_eq!(cell[key], explained[key], "{key} of {cell}");
        }
    }
}

#[test]
fn matrix_prints_a_table_or_a_self_contained_html_page() {
    let context = matrix_project();
    let table = context.run(["matrix", "--agent", "ops", "--server", "db"]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    insta::assert_snapshot!(text, @r"
                      ops
    db                yes  allow.servers[0]
      drop_*          no  deny.tools.db[0]
      query           yes  allow.servers[0]
      any other tool  yes  allow.servers[0]
    ");
    let page = context.run(["matrix", "--html"]);
    let text = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(
        text.starts_with("<!doctype html>") && text.contains("&lt;b&gt;") && !text.contains("<b>"),
        "{text}"
    );
    for fetched in ["http:", "https:", "src=", "url(", "@import", "<link"] {
        assert!(!text.contains(fetched), "the page needs nothing else, but has `{fetched}`");
    }
}

#[test_case(&["--agent", "opps"], "error: there is no agent `opps`: did you mean `ops`?\n")]
#[test_case(&["--agent", "dev", "--agent", "zz"], "error: there is no agent `zz`: there are `dev`, `ops`\n")]
#[test_case(&["--server", "fils"], "error: there is no server `fils`: did you mean `files`?\n")]
#[test_case(&["--server", "zz", "--json"], "error: there is no server `zz`: there are `<b>`, `db`, `files`\n")]
fn matrix_of_an_unknown_agent_or_server_is_an_error(asked: &[&str], expected: &str) {
    let context = matrix_project();
    let output = context.adjutant(["matrix"]).args(asked).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(said, expected);
    assert_eq!(output.stdout.is_empty(), !asked.contains(&"--json"), "{output:?}");
}

#[test]
fn matrix_of_one_agent_accepts_private_servers_of_other_agents() {
    let context = matrix_project();
    let output = context.run(["matrix", "--agent", "ops", "--server", "files"]);
    assert_eq!(output.status.code(), Some(0), "`files` is `dev`'s own: {output:?}");
}

/// The contents of all fenced blocks after `<!-- test: NAME -->` in a page.
pub(crate) fn marked_examples(page: &str, name: &str) -> Vec<String> {
    let mark = format!("<!-- test: {name} -->\n```");
    let fenced = page.split(&mark).skip(1).map(|rest| {
        let body = rest.split_once('\n').expect("a language").1;
        body.split("\n```").next().expect("an end").to_owned() + "\n"
    });
    fenced.collect()
}

#[test]
fn examples_in_the_policy_page_match_the_program() {
    let page = include_str!("../../docs/policy.md");
    let context = TestContext::new();
    context.write(RULES_FILE, &marked_examples(page, "rules")[0]);
    context.agent("dev", &marked_examples(page, "agent dev")[0]);
    let sessions = marked_examples(page, "run");
    assert_eq!(sessions.len(), 3);
    for session in sessions {
        let lines: Vec<&str> = session.lines().collect();
        for pair in lines.chunks(2) {
            let words: Vec<&str> =
                pair[0].strip_prefix("$ adjutant ").expect("a command").split(' ').collect();
            let output = context.adjutant([]).args(&words).output().expect("the program starts");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(said.lines().next(), Some(pair[1]), "{}\n{output:?}", pair[0]);
        }
    }
}
