//! One agent per mistake: each mistake is reported at its line, and the agent cannot be run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::fake_claude::fake_claude;
use crate::support::mcp::{McpClient, result_text};
use crate::support::text::mask;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/agents-invalid");

/// Directory, line, code and severity, in the order of `check`.
const EXPECTED: &[(&str, u64, &str, &str)] = &[
    ("alias-bomb", 4, "yaml-anchor", "error"),
    ("bare-star", 4, "yaml-anchor", "error"),
    ("byte-order-mark", 1, "byte-order-mark", "error"),
    ("crlf", 1, "crlf", "warning"),
    ("description-too-long", 3, "description-too-long", "error"),
    ("duplicate-key", 6, "duplicate-key", "error"),
    ("duplicate-name", 2, "duplicate-name", "error"),
    ("duplicate-permissions", 6, "duplicate-key", "error"),
    ("glob-path-rule", 5, "rule-never-consulted", "error"),
    ("invalid-rule", 7, "invalid-rule", "error"),
    ("invalid-schema", 4, "invalid-schema", "error"),
    ("mcp-star-rule", 5, "rule-never-consulted", "error"),
    ("missing-front-matter", 1, "missing-front-matter", "error"),
    ("misspelt-permissions", 4, "unknown-key", "error"),
    ("misspelt-tool", 4, "unknown-tool", "error"),
    ("name-mismatch", 2, "name-mismatch", "error"),
    ("no-callers", 4, "no-callers", "error"),
    ("server-name-smuggles-a-rule", 5, "invalid-server-name", "error"),
    ("tab-indentation", 5, "tab-indentation", "error"),
    ("tool-without-server", 5, "unknown-server", "error"),
    ("unknown-key", 4, "unknown-key", "warning"),
    ("unknown-key", 5, "unknown-key", "warning"),
    ("unknown-key-in-permissions", 6, "unknown-key", "error"),
    ("unknown-key-in-policy", 5, "unknown-key", "error"),
    ("unknown-key-in-server", 7, "unknown-key", "error"),
    ("unknown-output-key", 4, "unknown-key", "error"),
    ("unquoted-colon", 3, "unquoted-colon", "error"),
    ("unset-brace", 5, "template-syntax", "error"),
    ("unterminated-front-matter", 1, "unterminated-front-matter", "error"),
    ("write-path-rule", 5, "rule-never-consulted", "error"),
    ("wrong-types", 4, "wrong-type", "error"),
    ("wrong-types", 5, "wrong-type", "error"),
    ("wrong-types", 6, "wrong-type", "error"),
    ("wrong-types", 7, "wrong-type", "error"),
    ("yaml-anchor", 4, "yaml-anchor", "error"),
];

fn invalid_project() -> TestContext {
    let context = TestContext::new();
    for folder in fs::read_dir(FIXTURES).expect("fixtures") {
        let folder = folder.expect("a fixture");
        let text = fs::read(folder.path().join("agent.md")).expect("an agent file");
        let name = folder.file_name().into_string().expect("a plain name");
        context.write(format!("agents/{name}/agent.md"), text);
    }
    context
}

/// Findings of `check --json`: directory, line, code and severity.
fn findings(context: &TestContext) -> Vec<(String, u64, String, String)> {
    let output = context.run(["check", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|found| {
            let file = text(&found["file"]);
            let folder = Path::new(&file).parent().and_then(Path::file_name).expect("a folder");
            let line = found["line"].as_u64().expect("a line");
            let folder = folder.to_str().expect("a plain name").to_owned();
            (folder, line, text(&found["code"]), text(&found["level"]))
        })
        .collect()
}

#[test]
fn every_mistake_is_reported_at_its_line() {
    let found = findings(&invalid_project());
    let found: Vec<_> =
        found.iter().map(|(a, line, b, c)| (a.as_str(), *line, b.as_str(), c.as_str())).collect();
    assert_eq!(found, EXPECTED);
}

#[test]
fn an_invalid_agent_is_listed_as_broken_and_the_others_work() {
    let context = invalid_project();
    context.agent("sound", "---\ndescription: Works\n---\nYou work.\n");
    let output = context.run(["list", "--json"]);
    assert!(output.status.success());
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for row in rows.as_array().expect("a list") {
        let name = row["agent"].as_str().expect("a name");
        let state = match name {
            "sound" => "ok",
            "crlf" | "unknown-key" => "warned",
            _ => "broken",
        };
        assert_eq!(row["state"], state, "{row}");
        assert_eq!(row["reason"].is_null(), state == "ok", "{row}");
    }
}

#[test]
fn a_mistake_is_shown_with_its_source_line() {
    let context = TestContext::new();
    let text = "---\nname: search\ndescription: Searches: the web\n---\nYou search.\n";
    context.agent("search", text);
    let text = "---\ndescription: d\npermissions:\n  allow: [Read]\n  dney: [Bash]\n\
                policy:\n  tools: { exclude: [\"builtin:Wrte\"] }\n---\nYou help.\n";
    context.agent("several", text);
    let output = context.run(["check"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @r#"
    error[unquoted-colon]: the value of `description` has a colon in it, which YAML reads as a new key
     --> agents/search/agent.md:3:14
      |
    3 | description: Searches: the web
      |              ^^^^^^^^^^^^^^^^^
      |
      = help: put it in quotes: `description: "Searches: the web"`

    error[unknown-key]: unknown key `dney` in `permissions`
     --> agents/several/agent.md:5:3
      |
    5 |   dney: [Bash]
      |   ^^^^
      |
      = help: did you mean `deny`?

    error[unknown-tool]: there is no built-in tool `Wrte`
     --> agents/several/agent.md:7:22
      |
    7 |   tools: { exclude: ["builtin:Wrte"] }
      |                      ^^^^^^^^^^^^^^
      |
      = help: did you mean `Write`?
    "#);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "2 agents, 2 files checked: 3 errors, 0 warnings\n"
    );
}

/// A2: a path that is not a regular file inside the project is refused without being read.
#[test]
fn a2_files_that_must_not_be_read_are_refused() {
    let context = TestContext::new();
    let root = context.root();
    let outside = context.home().join("agent.md");
    fs::write(&outside, "---\ndescription: d\n---\nOutside\n").expect("a file outside");
    for name in ["link", "fifo", "folder", "huge", "bytes", "nowhere", "memory"] {
        fs::create_dir_all(root.join("agents").join(name)).expect("a folder");
    }
    symlink(&outside, root.join("agents/link/agent.md")).expect("a symlink");
    symlink(context.home(), root.join("agents/linked-folder")).expect("a symlink");
    symlink("/does/not/exist", root.join("agents/nowhere/agent.md")).expect("a symlink");
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&root.join("agents/fifo/agent.md"), mode).expect("a FIFO");
    fs::create_dir(root.join("agents/folder/agent.md")).expect("a folder");
    let huge = fs::File::create(root.join("agents/huge/agent.md")).expect("a file");
    huge.set_len(5 << 30).expect("5 GB of nothing");
    context.write("agents/bytes/agent.md", b"---\ndescription: d\n---\nab\xff\n");
    context.agent("memory", "---\ndescription: d\nsession: true\n---\nx\n");
    symlink("/etc/passwd", root.join("agents/memory/memory.md")).expect("a symlink");
    let found: Vec<_> =
        findings(&context).into_iter().map(|(a, line, b, _)| (a, line, b)).collect();
    let expected = [
        ("bytes", 4, "not-utf8"),
        ("fifo", 1, "not-a-file"),
        ("folder", 1, "not-a-file"),
        ("huge", 1, "too-large"),
        ("link", 1, "symlink-leaves-project"),
        ("linked-folder", 1, "symlink-leaves-project"),
        ("memory", 1, "symlink-leaves-project"),
        ("nowhere", 1, "unreadable"),
    ];
    assert_eq!(found, expected.map(|(a, line, b)| (a.to_owned(), line, b.to_owned())));
}

/// An agent with every permission, if a parser accepted part of its file.
fn agent_with_all_permissions(name: &str) -> String {
    format!(
        "---\nname: {name}\ndescription: Helps\ntools: [Bash]\npermissions: {{ allow: [Bash] }}\n---\nYou help.\n"
    )
}

#[test]
fn a3_ambiguous_front_matter_is_an_error_and_never_grants_more_permissions() {
    let narrow = "permissions: { deny: [Bash] }\n";
    let with = |name: &str, more: &str| {
        agent_with_all_permissions(name).replace("tools:", &format!("{more}tools:"))
    };
    let bomb: Vec<String> =
        (0..9).map(|n| format!("a{}: &a{} [*a{n}, *a{n}]\n", n + 1, n + 1)).collect();
    let bomb = bomb.concat();
    assert_refused(&[
        (
            "unterminated",
            agent_with_all_permissions("unterminated").replace("\n---\n", "\n"),
            "unterminated-front-matter",
        ),
        (
            "unterminated-twice",
            agent_with_all_permissions("unterminated-twice").replace("\n---\n", "\n-----\n"),
            "unterminated-front-matter",
        ),
        ("bom", format!("\u{feff}{}", agent_with_all_permissions("bom")), "byte-order-mark"),
        ("bomb", with("bomb", &format!("a0: &a0 [x, x]\n{bomb}")), "yaml-anchor"),
        ("alias", with("alias", "x: &wide { allow: [Bash] }\npermissions: *wide\n"), "yaml-anchor"),
        ("narrow-first", with("narrow-first", narrow), "duplicate-key"),
        (
            "narrow-last",
            agent_with_all_permissions("narrow-last")
                .replace("\n---\nYou", &format!("\n{narrow}---\nYou")),
            "duplicate-key",
        ),
    ]);
}

#[test]
fn a4_a_typo_in_a_restriction_is_an_error_and_never_drops_the_rule() {
    let with = |name: &str, more: &str| {
        agent_with_all_permissions(name).replace("---\nYou", &format!("{more}---\nYou"))
    };
    let denying = |name: &str, deny: &str| {
        agent_with_all_permissions(name).replace("[Bash] }", &format!("[Bash], {deny} }}"))
    };
    let permitting =
        |name: &str, key: &str| agent_with_all_permissions(name).replace("permissions:", key);
    assert_refused(&[
        ("deny-key", denying("deny-key", "dney: [\"Bash(rm:*)\"]"), "unknown-key"),
        ("deny-case", denying("deny-case", "Deny: [\"Bash(rm:*)\"]"), "unknown-key"),
        ("deny-tool", denying("deny-tool", "deny: [\"Bsh(rm:*)\"]"), "unknown-tool"),
        ("deny-open", denying("deny-open", "deny: [\"Bash(rm:*\"]"), "invalid-rule"),
        ("deny-number", denying("deny-number", "deny: 7"), "wrong-type"),
        (
            "exclude-key",
            with("exclude-key", "policy: { tools: { exlude: [\"builtin:Bash\"] } }\n"),
            "unknown-key",
        ),
        (
            "exclude-tool",
            with("exclude-tool", "policy: { tools: { exclude: [\"builtin:Bsh\"] } }\n"),
            "unknown-tool",
        ),
        (
            "exclude-kind",
            with("exclude-kind", "policy: { tools: { exclude: [\"bultin:Bash\"] } }\n"),
            "invalid-tool",
        ),
        (
            "excluded-key",
            with("excluded-key", "policy: { mcp: { exluded: [\"*\"] } }\n"),
            "unknown-key",
        ),
        (
            "policy-key",
            with("policy-key", "polcy: { tools: { exclude: [\"builtin:Bash\"] } }\n"),
            "unknown-key",
        ),
        ("permission", permitting("permission", "permission:"), "unknown-key"),
        ("permisions", permitting("permisions", "permisions:"), "unknown-key"),
        ("capital", permitting("capital", "Permissions:"), "unknown-key"),
    ]);
}

/// Asserts that `check` reports each file with its code, that a call is refused and audited, and that no run starts.
fn assert_refused(files: &[(&str, String, &str)]) {
    let context = TestContext::new();
    for (name, content, _) in files {
        context.agent(name, content);
    }
    let found = findings(&context);
    let mut client = McpClient::connect({
        let mut command = context.adjutant(["serve"]);
        command.env("ADJUTANT_CLAUDE", fake_claude());
        command
    });
    for (name, content, code) in files {
        let of_file = found.iter().filter(|(folder, ..)| folder == name);
        let errors: Vec<&str> = of_file
            .filter(|(.., severity)| severity == "error")
            .map(|(_, _, code, _)| code.as_str())
            .collect();
        assert!(errors.contains(code), "{errors:?} for\n{content}");
        let arguments = json!({ "agent_name": name, "prompt": "FAKE result ran" });
        let refused = client.call_tool("run_subagent", arguments);
        assert!(result_text(&refused).starts_with("AGENT_INVALID: "), "{refused} for\n{content}");
    }
    assert!(!context.root().join("data/events.jsonl").exists(), "nothing was begun");
    let audit = context.audit_entries();
    let refused = audit.iter().map(|line| (line["tool"].as_str(), line["code"].as_str()));
    let expected = files.iter().map(|(name, ..)| (Some(*name), Some("AGENT_INVALID")));
    assert_eq!(refused.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

#[test]
fn an_agents_directory_outside_the_project_is_not_read() {
    let context = TestContext::new();
    let elsewhere = context.home().join("agents/one");
    fs::create_dir_all(&elsewhere).expect("a folder");
    fs::write(elsewhere.join("agent.md"), "---\ndescription: d\n---\nx\n").expect("an agent");
    symlink(context.home().join("agents"), context.root().join("agents")).expect("a symlink");
    let output = context.run(["check"]);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!(mask(&String::from_utf8_lossy(&output.stderr)), @r"
    error[symlink-leaves-project]: `agents` is a symlink that leaves the project, to `[HOME]/agents`
    --> agents
    ");
    let list = context.run(["list", "--json"]);
    assert_eq!(String::from_utf8_lossy(&list.stdout).trim(), "[]");
    assert_eq!(
        mask(&String::from_utf8_lossy(&list.stderr)),
        "agents:1:1: `agents` is a symlink that leaves the project, to `[HOME]/agents`\n"
    );
}

/// H3: control characters in a name or a value cannot start a new line.
#[test]
fn h3_control_characters_cannot_forge_a_line() {
    let context = TestContext::new();
    context.agent("a\nagents\u{1b}[2J", "x");
    context.agent(
        "b",
        "---\ndescription: d\nallowed_callers: [\"a\\nerror: forged\\e[2J\"]\n---\nx\n",
    );
    for arguments in [["check", "--json"].as_slice(), &["check"], &["list"], &["list", "--json"]] {
        let output = context.adjutant([]).args(arguments).output().expect("it runs");
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8(told).expect("UTF-8");
        assert!(!told.contains('\u{1b}') && !told.contains("\nerror: forged"), "{told}");
    }
}

#[test]
fn names_that_differ_only_in_case_are_duplicates() {
    let context = TestContext::new();
    context.agent("search", "---\ndescription: d\n---\nx\n");
    context.agent("Search", "---\ndescription: d\n---\nx\n");
    let codes: Vec<String> = findings(&context).into_iter().map(|(.., code, _)| code).collect();
    assert_eq!(codes, ["duplicate-name", "duplicate-name"]);
}

#[test]
fn invalid_defaults_block_every_agent_and_are_reported_once() {
    let context = TestContext::new();
    context.agent("search", "---\ndescription: d\n---\nx\n");
    context.write("agents/defaults.yaml", "timeout_ms: 1000\nmax_budget: 1\n");
    let found = findings(&context);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].1, found[0].2.as_str()), (2, "unknown-key"));
    let output = context.run(["show", "search"]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    insta::assert_snapshot!(told, @r"
    error[defaults-broken]: its limits are not known, because agents/defaults.yaml is broken: unknown key `max_budget`
     --> agents/search/agent.md:1:1
      |
    1 | ---
      | ^
      |
      = help: mend agents/defaults.yaml:2

    `search` is broken and cannot be run; nothing in its file counts
    ");
}

#[test]
fn check_covers_files_other_than_agents() {
    let context = TestContext::new();
    context
        .agent("search", "---\ndescription: d\n---\nx\n")
        .write(
            ".mcp.json",
            "{\n  \"mcpServers\": {\n    \"a b\": {\n      \"args\": \"-y\"\n    }\n  }\n}\n",
        )
        .write(".claude/settings.json", "{\n  \"mcpServers\": {}\n}\n")
        .write(
            ".mcp-gateway-rules.json",
            "{\n  \"agents\": {\n    \"x\": { \"alow\": {} }\n  }\n}\n",
        )
        .write("extensions/kit/extension.json", "{ \"agents\": [\n  { \"name\": \"a\" }\n] }\n")
        .write(
            "agents/main/system-prompt.md",
            "Hello\n<!-- adjutant:subagents:begin -->\nold\n<!-- adjutant:subagents:end -->\n",
        );
    let output = context.run(["check", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut lines: Vec<String> = report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|found| {
            let [file, code] = ["file", "code"].map(|key| found[key].as_str().expect("text"));
            format!("{file}:{} {code}", found["line"])
        })
        .collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            ".claude/settings.json:2 not-read",
            ".mcp-gateway-rules.json:3 gateway-rules",
            ".mcp.json:3 mcp-servers",
            "agents/main/system-prompt.md:2 stale-section",
            "extensions/kit/extension.json:1 missing-key",
            "extensions/kit/extension.json:2 missing-key",
        ]
    );
}

#[test]
fn check_fix_refreshes_the_list_of_subagents() {
    let context = TestContext::new();
    let prompt =
        "Hello\n<!-- adjutant:subagents:begin -->\nold\n<!-- adjutant:subagents:end -->\nBye\n";
    context
        .agent("search", "---\nname: search\ndescription: Finds things\n---\nYou find.\n")
        .write("agents/main/system-prompt.md", prompt);
    let stale = context.run(["check"]);
    assert_eq!(stale.status.code(), Some(0), "an out-of-date list is a warning: {stale:?}");
    assert_eq!(
        String::from_utf8_lossy(&stale.stdout),
        "1 agent, 2 files checked: 0 errors, 1 warning\n"
    );
    let fixed = context.run(["check", "--fix"]);
    assert_eq!(
        (String::from_utf8_lossy(&fixed.stdout), String::from_utf8_lossy(&fixed.stderr)),
        (
            "1 agent, 2 files checked: 0 errors, 0 warnings\n".into(),
            "the list in agents/main/system-prompt.md was renewed\n".into()
        )
    );
    let file = context.root().join("agents/main/system-prompt.md");
    assert_eq!(
        std::fs::read_to_string(file).unwrap(),
        "Hello\n<!-- adjutant:subagents:begin -->\nSubagents you can call with `run_subagent`:\n\n\
         - `search`: Finds things\n<!-- adjutant:subagents:end -->\nBye\n"
    );
}

/// Findings of `check` for `.mcp.json`: severity, line and message.
fn check_servers(servers: &str) -> Vec<(String, u64, String)> {
    let context = TestContext::new();
    context.agent("search", "---\ndescription: d\n---\nx\n").write(".mcp.json", servers);
    let output = context.run(["check", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let found = report["findings"].as_array().expect("a list").iter();
    found
        .map(|found| {
            assert_eq!(found["file"], ".mcp.json");
            let line = found["line"].as_u64().expect("a line");
            (text(&found["level"]), line, text(&found["message"]))
        })
        .collect()
}

#[test_case(r#""command": "sh", "type": "zzz""#, "`type` is `zzz`, not `stdio`, `http` or `sse`")]
#[test_case(r#""url": "ftp://x/""#, "its `url` begins with neither `http://` nor `https://`")]
#[test_case(
    r#""command": "sh", "isolation": "zz""#,
    "`isolation` is `zz`, not `shared` or `agent`"
)]
#[test_case(r#""command": "sh", "pin": "stirct""#, "`pin` is `stirct`, not `report` or `strict`")]
#[test_case(r#""command": """#, "its `command` is empty")]
#[test_case(
    r#""command": "sh", "timeout_ms": "5""#,
    "`timeout_ms` or `timeout` is no positive whole number"
)]
#[test_case(r#""command": "sh", "env": {"A": []}"#, "`env.A` is no text")]
#[test_case(r#""command": "sh", "auth": "zz""#, "`auth` is no JSON object")]
#[test_case(r#""command": "sh", "args": 1"#, "`args` is no list")]
#[test_case(r#""httpUrl": "https://x.example/""#, "it has neither `command` nor `url`")]
#[test_case(r#""command": "sh", "command": "bash""#, "`command` is written twice")]
#[test_case(r#""command": "sh", "env": {"A": "1", "A": "2"}"#, "`env.A` is written twice")]
fn a_server_that_the_gateway_rejects_is_an_error(entry: &str, reason: &str) {
    let written = format!(
        "{{\n\"mcpServers\": {{\n\"good\": {{\"command\": \"sh\"}},\n\"x\": {{{entry}}}}}}}\n"
    );
    let message = format!("server `x` cannot be used: {reason}");
    assert_eq!(check_servers(&written), [("error".to_owned(), 4, message)]);
}

#[test]
fn a_mistake_in_a_server_is_shown_at_its_line() {
    let written =
        "{\"mcpServers\": {\n \"x\": {\n  \"command\": \"sh\",\n  \"pin\": \"zz\"\n }\n}}\n";
    let found = check_servers(written);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].1, 4, "{found:?}");
}

#[test]
fn a_duplicate_server_is_an_error() {
    let written =
        "{\"mcpServers\": {\n\"x\": {\"command\": \"sh\"},\n\"x\": {\"command\": \"ls\"}}}\n";
    let message =
        "server `x` cannot be used: it is written twice, first on line 2; keep one of them";
    assert_eq!(check_servers(written), [("error".to_owned(), 3, message.to_owned())]);
    let written = "{\"mcpServers\": {},\n\"mcpServers\": {\"x\": {\"command\": \"sh\"}}}\n";
    let message = "`mcpServers` is written twice";
    assert_eq!(check_servers(written), [("error".to_owned(), 2, message.to_owned())]);
}

#[test_case("{\"mcpServers\": {\"my server\": {\"command\": \"sh\"}}}"; "a name with a space")]
#[test_case("{\"mcpServers\": {\"a__b\": {\"command\": \"sh\"}}}"; "a name with two underscores")]
#[test_case("{\"mcpServers\": {\"a\": {\"command\": \"sh\", \"env\": {\"A\": 3, \"B\": true}}}}"; "numbers and flags")]
#[test_case("{\"mcpServers\": {\"a\": {\"command\": \"sh\", \"env\": null}}}"; "no variables")]
#[test_case("\u{feff}{\"mcpServers\": {\"a\": {\"command\": \"sh\"}}}"; "a byte order mark")]
#[test_case("{\"mcpServers\": {\"a\": {\"command\": \"sh\", \"env\": {\"A\": \"${NOT_SET_ANYWHERE:-x}\"}}}}"; "a default")]
#[test_case("{\"mcpServers\": {\"a\": {\"command\": \"no-such-program\", \"disabled\": true}}}"; "disabled")]
fn a_server_that_the_gateway_accepts_is_not_reported(written: &str) {
    assert_eq!(check_servers(written), []);
}

#[test_case(
    r#""command": "sh", "args": ["${NOT_SET_ANYWHERE}"]"#,
    " cannot be started here: the variable `NOT_SET_ANYWHERE` is not set; set it, or write `${NOT_SET_ANYWHERE:-a default}`"
)]
#[test_case(
    r#""command": "no-such-program""#,
    " cannot be started here: there is no program `no-such-program`"
)]
#[test_case(r#""command": "sh", "pinn": "strict""#, ": unknown key `pinn`; is `pin` meant?")]
fn a_problem_of_this_machine_that_prevents_a_start_is_a_warning(entry: &str, expected: &str) {
    let found = check_servers(&format!("{{\"mcpServers\": {{\n\"x\": {{{entry}}}}}}}\n"));
    assert_eq!(found, [("warning".to_owned(), 2, format!("server `x`{expected}"))]);
}

#[test]
fn the_gateway_and_check_see_the_same_files() {
    let context = TestContext::new();
    let elsewhere = tempfile::tempdir().expect("a folder");
    fs::write(elsewhere.path().join("servers.json"), r#"{"mcpServers": {}}"#).expect("written");
    symlink(elsewhere.path().join("servers.json"), context.root().join(".mcp.json"))
        .expect("a link");
    context.agent("search", "---\ndescription: d\n---\nx\n");
    let output = context.run(["check"]);
    assert_eq!(output.status.code(), Some(0), "the gateway follows the link: {output:?}");
}
