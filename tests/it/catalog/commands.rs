//! `list`, `show`, `new` and `schema`.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::TestContext;

fn stdout(context: &TestContext, arguments: &[&str]) -> String {
    let output = context.adjutant([]).args(arguments).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

const SEARCH: &str = "---
name: search
description: Searches the web
timeout_ms: 30000
permissions:
  allow: [\"Bash(curl:*)\"]
mcp_servers:
  - name: brave
    command: npx
    env: { KEY: \"${BRAVE_KEY}\" }
---
You search.
";

#[test]
fn show_names_the_source_of_every_setting() {
    let context = TestContext::new();
    context.agent("search", SEARCH).write("agents/defaults.yaml", "# ours\nmodel: haiku\n");
    let report: Value =
        serde_json::from_str(&stdout(&context, &["show", "search", "--json"])).expect("JSON");
    let setting = |key: &str| {
        let all = report["settings"].as_array().expect("a list");
        all.iter().find(|setting| setting["key"] == key).expect("the setting").clone()
    };
    let source = |setting: &Value| ["from", "file", "line"].map(|key| setting[key].clone());
    let from = |file: &str, line: u64| [json!("file"), json!(file), json!(line)];
    let timeout = setting("timeout_ms");
    assert_eq!(timeout["value"], 30_000);
    assert_eq!(source(&timeout), from("agents/search/agent.md", 4));
    let model = setting("model");
    assert_eq!(model["value"], "haiku");
    assert_eq!(source(&model), from("agents/defaults.yaml", 2));
    let callers = setting("allowed_callers");
    assert_eq!(callers["value"], json!(["main"]));
    assert_eq!(source(&callers), [json!("built_in"), Value::Null, Value::Null]);
}

#[test]
fn show_does_not_expand_variables() {
    let context = TestContext::new();
    context.agent("search", SEARCH);
    for arguments in [["show", "search", "--json"].as_slice(), &["show", "search"]] {
        let mut command = context.adjutant([]);
        let output = command.args(arguments).env("BRAVE_KEY", "s3cret").output().expect("it runs");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("${BRAVE_KEY}") && !shown.contains("s3cret"), "{shown}");
    }
}

#[test]
fn an_unknown_agent_is_refused_with_the_closest_name() {
    let context = TestContext::new();
    context.agent("search", SEARCH);
    let output = context.run(["show", "serach"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: there is no agent `serach`: did you mean `search`?\n"
    );
}

#[test]
fn list_shows_valid_and_broken_agents() {
    let context = TestContext::new();
    context
        .agent("search", SEARCH)
        .agent("broken", "---\ndescription: d\n")
        .agent("chat", "---\ndescription: Talks\nsession: true\nallowed_callers: \"*\"\n---\nx\n");
    insta::assert_snapshot!(stdout(&context, &["list"]), @r"
    AGENT   DESCRIPTION       CALLERS  SESSION  STATE
    broken  –                          –        broken: agents/broken/agent.md:1:1: the front matter is opened by `---` and never closed (put a line with `---` between the settings and the prompt)
    chat    Talks             *        yes      ok
    search  Searches the web  main     no       ok
    ");
}

#[test]
fn a_new_agent_in_an_initialized_project_passes_check() {
    let context = TestContext::new();
    stdout(&context, &["init"]);
    stdout(&context, &["new", "web-search"]);
    let main = fs::read_to_string(context.root().join("agents/main/system-prompt.md")).unwrap();
    assert!(main.contains("web-search"), "{main}");
    let checked = context.run(["check", "--strict"]);
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn a_new_agent_passes_check_and_is_never_overwritten() {
    let context = TestContext::new();
    assert_eq!(stdout(&context, &["new", "web-search"]), "agents/web-search/agent.md\n");
    assert_eq!(
        stdout(&context, &["check", "--strict"]),
        "1 agent, 1 file checked: 0 errors, 0 warnings\n"
    );
    context.agent("web-search", "mine");
    let again = context.run(["new", "web-search"]);
    assert_eq!(again.status.code(), Some(1));
    let kept = fs::read_to_string(context.root().join("agents/web-search/agent.md"));
    assert_eq!(kept.expect("still there"), "mine");
}

#[test]
fn check_notes_agents_with_a_shell_and_warns_of_permissions_to_change_the_project() {
    let context = TestContext::new();
    let agent = |name: &str, settings: &str| {
        context.agent(name, &format!("---\ndescription: d\n{settings}\n---\nWork.\n"));
    };
    agent("reader", "permissions: { allow: [Read] }");
    agent("builder", "permissions: { allow: [\"Bash(make:*)\"] }");
    let checked = context.run(["check", "--strict"]);
    assert!(checked.status.success(), "a note is no warning: {checked:?}");
    let note = "agent `builder` has a shell: only a sandbox keeps a shell from changing control files \
        and reading `data/` (docs/security.md)";
    assert_eq!(String::from_utf8(checked.stderr).unwrap(), format!("note: {note}\n"));
    assert_eq!(
        String::from_utf8(checked.stdout).unwrap(),
        "2 agents, 2 files checked: 0 errors, 0 warnings\n"
    );
    let report = |context: &TestContext| -> Value {
        serde_json::from_slice(&context.run(["check", "--json"]).stdout).unwrap()
    };
    assert_eq!(
        report(&context),
        json!({ "ok": true, "files": 2, "errors": 0, "warnings": 0,
            "findings": [{ "level": "note", "code": "shell", "message": note }] })
    );
    agent("builder", "may_change_project_config: true");
    let report = report(&context);
    assert_eq!(
        (&report["warnings"], report["findings"].as_array().map(Vec::len)),
        (&json!(1), Some(1)),
        "{report}"
    );
    let found = &report["findings"][0];
    assert_eq!(
        (&found["level"], &found["code"], &found["line"]),
        (&json!("warning"), &json!("may-change-project-config"), &json!(3))
    );
    let shown: Value =
        serde_json::from_str(&stdout(&context, &["show", "builder", "--json"])).unwrap();
    let settings = shown["settings"].as_array().unwrap();
    let setting = settings.iter().find(|s| s["key"] == "may_change_project_config").unwrap();
    assert_eq!(setting["value"], true, "{setting}");
}

#[test]
fn a1_an_invalid_agent_name_is_explained_and_creates_nothing() {
    let context = TestContext::new();
    for name in ["../main", "a/b", "/etc/x", "", ".", "main", "MAIN", "a\nb"] {
        let output = context.run(["new", name]);
        assert_eq!(output.status.code(), Some(2), "{name:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("agent name")
                || String::from_utf8_lossy(&output.stderr).contains("`main` is")
        );
    }
    assert!(!context.root().join("agents").exists());
}

#[test]
fn strict_fails_on_warnings() {
    let context = TestContext::new();
    context.agent("odd", "---\ndescription: d\ncolor: red\n---\nx\n");
    assert_eq!(context.run(["check"]).status.code(), Some(0));
    assert_eq!(context.run(["check", "--strict"]).status.code(), Some(1));
}

/// Regenerate with `cargo run -- schema > docs/schema/agent.schema.json` (and `schema defaults`).
#[test]
fn the_committed_schemas_are_up_to_date() {
    let context = TestContext::new();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema");
    for (arguments, file) in [
        (["schema", "agent"], "agent.schema.json"),
        (["schema", "defaults"], "defaults.schema.json"),
    ] {
        let committed = fs::read_to_string(docs.join(file)).expect("a committed schema");
        assert_eq!(stdout(&context, &arguments), committed, "{file} is stale");
    }
}

#[test]
fn the_schema_accepts_valid_agents_and_rejects_invalid_ones() {
    let schema: Value =
        serde_json::from_str(&stdout(&TestContext::new(), &["schema"])).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let good = json!({
        "description": "d",
        "allowed_callers": "*",
        "tools": ["builtin:Bash"],
        "policy": { "tools": { "exclude": ["builtin:Write"] } },
        "mcp_servers": [{ "name": "a", "command": "x" }, "b", { "c": { "url": "https://c" } }],
        "output_schema": { "type": "object" },
        "color": "red",
    });
    assert!(validator.is_valid(&good));
    for bad in [
        json!({}),
        json!({ "description": "d", "timeout_ms": "soon" }),
        json!({ "description": "d", "timeout_ms": null }),
        json!({ "description": "d", "permissions": { "dney": [] } }),
        json!({ "description": "d", "mcp_servers": { "a": { "argz": [] } } }),
    ] {
        assert!(!validator.is_valid(&bad), "{bad}");
    }
}

#[test]
fn show_lists_the_remaining_mcp_tools_and_explains_the_excluded_ones() {
    let context = TestContext::new();
    context.agent(
        "dev",
        "---\nname: dev\ndescription: Develops\n\
         tools: [\"mcp:files:read_*\", \"mcp:files:write_file\", \"mcp:wiki:*\", \"mcp:notes:*\", \"mcp:gone:*\"]\n\
         policy:\n  tools:\n    exclude: [\"mcp:files:write_file\"]\n\
         mcp_servers:\n  - name: files\n    command: /no/such/program\n  - name: notes\n    command: /no/such/program\n  - wiki\n  - gone\n---\nYou develop.\n",
    );
    context.write(".mcp.json", r#"{"mcpServers":{"wiki":{"command":"/no/such/program"}}}"#);
    let rules = r#"{"agents":{"dev":{"allow":{"servers":["wiki"],"tools":{"wiki":["search"]}}}}}"#;
    context.write(".mcp-gateway-rules.json", rules);
    let text = stdout(&context, &["show", "dev"]);
    let (_, tools) = text.split_once("MCP tools:\n").unwrap_or_else(|| panic!("{text}"));
    let expected = [
        "  files (its own): read_*",
        "    agent `dev` may not use tool `write_file` of server `files`: `mcp:files:write_file` is excluded (`policy.tools.exclude[0]` in agent.md)",
        "    agent `dev` may not use tool `any other tool` of server `files`: `tools` is given and does not list it (`tools` in agent.md)",
        "  notes (its own): all of its tools",
        "  wiki (shared): search",
        "    agent `dev` may not use tool `any other tool` of server `wiki`: the list of allowed tools does not have it (`agents.dev.allow.tools.wiki` in .mcp-gateway-rules.json line 1)",
        "  gone (shared): none",
        "    no shared server has that name, so a run fails before its first turn",
        "system prompt: 1 line",
    ];
    assert_eq!(tools.lines().collect::<Vec<_>>(), expected);
    let report: Value =
        serde_json::from_str(&stdout(&context, &["show", "dev", "--json"])).unwrap();
    assert_eq!(report["servers"][0]["tools"], json!(["read_*"]), "{report}");
    assert_eq!(report["servers"][0]["other_tools"], false, "{report}");
    assert_eq!(report["servers"][1]["other_tools"], true, "{report}");
}
