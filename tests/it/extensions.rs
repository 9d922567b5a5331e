//! Extensions (bundles of agents and servers): contents, isolation and name conflicts.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::gateway_real::node_program;
use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW};
use crate::support::mcp::{McpClient, result_text};

const REVIEWER: &str = "---\nname: reviewer\ndescription: Reviews\n---\nYou review.\n";

/// Writes an extension with one agent into a directory of the project or outside of it.
fn write_extension(context: &TestContext, folder: &str, servers: Value) {
    let name = folder.rsplit('/').next().unwrap();
    let manifest = json!({
        "name": name, "mcpServers": servers,
        "agents": [{ "name": "reviewer", "path": "agents/reviewer" }],
    });
    context.write(format!("{folder}/extension.json"), format!("{manifest:#}"));
    context.write(format!("{folder}/agents/reviewer/agent.md"), REVIEWER);
}

fn json_of<const N: usize>(context: &TestContext, arguments: [&str; N]) -> Value {
    let output = context.run(arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

/// Findings of `check` as `file:line code`.
fn findings(context: &TestContext) -> Vec<String> {
    let report = json_of(context, ["check", "--json"]);
    let found = report["findings"].as_array().unwrap().iter();
    found
        .map(|d| {
            format!("{}:{} {}", d["file"].as_str().unwrap(), d["line"], d["code"].as_str().unwrap())
        })
        .collect()
}

#[test]
fn an_extension_adds_agents_and_servers_and_list_names_their_origin() {
    let context = TestContext::new();
    let servers = json!({
        "notes": { "command": "true", "visibility": "private", "env": { "KEY": "${NOTES_KEY}" } },
        "tickets": { "httpUrl": "https://tickets.example.com/mcp" },
    });
    write_extension(&context, "extensions/review-kit", servers);
    let listed = json_of(&context, ["list", "--json"]);
    assert_eq!(listed[0]["agent"], "reviewer");
    assert_eq!(listed[0]["extension"], "review-kit");
    assert_eq!(listed[0]["state"], "ok", "{listed}");
    let table = context.run(["list"]);
    insta::assert_snapshot!(String::from_utf8_lossy(&table.stdout), @r"
    AGENT            DESCRIPTION  CALLERS  SESSION  STATE
    reviewer         Reviews      main     no       ok
    from review-kit
    ");
    let extensions = json_of(&context, ["extensions", "list", "--json"]);
    let wanted = json!([
        { "server": "notes", "visibility": "private" }, { "server": "tickets", "visibility": "public" }
    ]);
    assert_eq!(extensions[0]["servers"], wanted, "{extensions}");
    let shown = json_of(&context, ["show", "reviewer", "--json"]).to_string();
    assert!(shown.contains("notes") && shown.contains("${NOTES_KEY}"), "{shown}");
    assert!(!shown.contains("tickets"), "a public server is nobody's before a rule grants it");
    assert!(context.run(["extensions", "check"]).status.success());
    // An extension does not grant permissions to any agent.
    let asked = ["explain", "--agent", "reviewer", "--server", "tickets"];
    assert_eq!(context.run(asked).status.code(), Some(1));
    let asked = ["explain", "--agent", "reviewer", "--server", "notes"];
    assert_eq!(context.run(asked).status.code(), Some(0));
}

#[test]
fn an_extension_cannot_reference_files_outside_its_directory() {
    let context = TestContext::new();
    context.write("secret/agent.md", REVIEWER);
    for (kit, path) in [
        ("up", "../../secret"),
        ("absolute", "/etc/passwd"),
        ("link", "agents/out"),
        ("file-link", "agents/in"),
    ] {
        let manifest =
            json!({ "name": kit, "agents": [{ "name": format!("r-{kit}"), "path": path }] });
        context.write(format!("extensions/{kit}/extension.json"), format!("{manifest:#}"));
        context.write(format!("extensions/{kit}/agents/in/README"), "");
    }
    let root = context.root();
    symlink(root.join("secret"), root.join("extensions/link/agents/out")).unwrap();
    symlink(root.join("secret/agent.md"), root.join("extensions/file-link/agents/in/agent.md"))
        .unwrap();
    symlink("/tmp", root.join("extensions/elsewhere")).unwrap();
    let found = findings(&context);
    for kit in ["up", "absolute", "link", "file-link"] {
        let wanted = format!("extensions/{kit}/extension.json:6 path-leaves-extension");
        let near = |found: &String| {
            found.starts_with(&format!("extensions/{kit}/"))
                && found.ends_with("path-leaves-extension")
        };
        assert!(found.iter().any(near), "{wanted}: {found:?}");
    }
    assert_eq!(json_of(&context, ["list", "--json"]), json!([]), "no such agent exists");
    assert!(!context.run(["extensions", "check"]).status.success());
}

#[test]
fn a_name_conflict_is_reported_with_both_files() {
    let context = TestContext::new();
    context.agent("reviewer", REVIEWER);
    context.write(".mcp.json", r#"{"mcpServers": {"tickets": {"command": "true"}}}"#);
    write_extension(
        &context,
        "extensions/one",
        json!({ "tickets": { "command": "true" }, "db": { "command": "true" } }),
    );
    write_extension(&context, "extensions/two", json!({ "db": { "command": "true" } }));
    let output = context.run(["extensions", "check"]);
    let said = String::from_utf8_lossy(&output.stderr).replace(['\n', '│'], " ");
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for (name, both) in [
        ("reviewer", ["agents/reviewer/agent.md", "extensions/one/agents/reviewer/agent.md"]),
        ("tickets", [".mcp.json", "extensions/one/extension.json"]),
        ("db", ["extensions/one/extension.json", "extensions/two/extension.json"]),
    ] {
        assert!(
            said.contains(name) && both.iter().all(|file| said.contains(file)),
            "{name}: {said}"
        );
    }
    let listed = json_of(&context, ["list", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed[0]["extension"], &listed[0]["state"]), (&Value::Null, &json!("ok")));
    let extensions = json_of(&context, ["extensions", "list", "--json"]);
    assert!(
        extensions.as_array().unwrap().iter().all(|each| each["servers"] == json!([])),
        "{extensions}"
    );
}

#[test]
fn adding_an_extension_is_all_or_nothing() {
    let context = TestContext::new();
    write_extension(&context, "elsewhere/review-kit", json!({}));
    let source = context.root().join("elsewhere/review-kit");
    let source = source.to_str().unwrap();
    let output = context.run(["extensions", "add", source]);
    assert!(output.status.success(), "{output:?}");
    let folder = context.root().join("extensions/review-kit");
    assert!(folder.join("agents/reviewer/agent.md").exists());
    assert!(!context.run(["extensions", "add", source]).status.success(), "it is there already");
    assert!(context.run(["extensions", "remove", "review-kit"]).status.success());
    assert!(!folder.exists());
    for wrong in ["review-kit", "../elsewhere", ".", ""] {
        assert!(!context.run(["extensions", "remove", wrong]).status.success(), "{wrong}");
    }
    assert!(fs::exists(source).unwrap());
    // A symlink could point anywhere after it is copied.
    symlink("/etc", context.root().join("elsewhere/review-kit/more")).unwrap();
    let output = context.run(["extensions", "add", source]);
    assert!(!output.status.success() && !folder.exists(), "{output:?}");
    fs::remove_file(context.root().join("elsewhere/review-kit/more")).unwrap();
    context.agent("reviewer", REVIEWER);
    let output = context.run(["extensions", "add", source]);
    assert!(!output.status.success() && !folder.exists(), "its agent's name is taken: {output:?}");
}

#[test]
fn private_servers_serve_only_the_extensions_agents_and_public_ones_follow_the_rules() {
    let (Some(fixture), Some(program)) =
        (ClaudeContext::new(NEW), node_program("mcp-server-filesystem"))
    else {
        return;
    };
    let context = &fixture.context;
    let server = |visibility: &str| {
        let args = ["${extensionPath}/shelf"];
        json!({ "command": program, "args": args, "visibility": visibility })
    };
    write_extension(
        context,
        "extensions/kit",
        json!({ "own": server("private"), "common": server("public") }),
    );
    let trusting =
        REVIEWER.replace("---\nYou", "policy: { mcp_servers: { own: { trust: true } } }\n---\nYou");
    context.write("extensions/kit/agents/reviewer/agent.md", trusting);
    context.write("extensions/kit/shelf/book.txt", "call me Ishmael");
    context.agent(
        "outsider",
        "---\nname: outsider\ndescription: Outside\nmcp_servers: [own]\n---\nYou wait.\n",
    );
    context.write(
        ".mcp-gateway-rules.json",
        r#"{"agents": {"main": {"allow": {"servers": ["*"]}}, "outsider": {"allow": {"servers": ["*"]}}, "poor": {}}}"#,
    );
    let book = json!({ "path": context.root().join("extensions/kit/shelf/book.txt") });
    let report = fixture.run("reviewer", &format!("CALL mcp__own__read_text_file {book}"));
    assert_eq!(report["result"], r#"{"content":"call me Ishmael"}"#);
    let report = fixture.run("outsider", "SAY hello");
    assert_eq!(
        report["error"]["code"], "SERVER_UNAVAILABLE",
        "an agent outside cannot have it: {report}"
    );
    let mut client = McpClient::connect(fixture.adjutant(["serve"]));
    let execute = |client: &mut McpClient, agent: &str, server: &str| {
        let call =
            json!({ "agent_id": agent, "server": server, "tool": "read_text_file", "args": book });
        client.call_tool("execute_tool", call)
    };
    let common = execute(&mut client, "main", "common");
    assert_eq!(result_text(&common), "call me Ishmael");
    let denied = execute(&mut client, "poor", "common");
    assert_eq!(
        result_text(&denied),
        "DENIED_BY_POLICY: agent `poor` may not use tool `read_text_file` of server `common`: \
         no rule allows the server (`agents.poor` in .mcp-gateway-rules.json line 1). Call \
         list_servers and get_server_tools to see what is allowed."
    );
    for name in ["own", "kit/own", "kit:own", "reviewer:own", "mcp__own", "OWN", "own "] {
        let hidden = execute(&mut client, "main", name);
        assert!(!result_text(&hidden).contains("Ishmael"), "{name}: {hidden}");
    }
    let servers = client.call_tool("list_servers", json!({ "agent_id": "main" }));
    assert_eq!(
        servers.to_string(),
        "{\"content\":[{\"type\":\"text\",\"text\":\"[{\\\"name\\\":\\\"common\\\",\\\"description\\\":null}]\"}],\"structuredContent\":{\"result\":[{\"name\":\"common\",\"description\":null}]},\"isError\":false}"
    );
}

#[test]
fn a_running_server_follows_the_extensions_directory() {
    let context = TestContext::new();
    context.agent("first", "---\nname: first\ndescription: First\n---\nYou are first.\n");
    let mut client = McpClient::connect(context.adjutant(["serve"]));
    let listed = |client: &mut McpClient| client.request("tools/list", json!({})).to_string();
    assert!(!listed(&mut client).contains("Reviews"));
    write_extension(&context, "extensions/kit", json!({ "common": { "command": "true" } }));
    while !(listed(&mut client).contains("Reviews") && listed(&mut client).contains("execute_tool"))
    {
        client.wait_for_notification(|message| {
            message["method"] == "notifications/tools/list_changed"
        });
    }
    fs::remove_dir_all(context.root().join("extensions/kit")).unwrap();
    while listed(&mut client).contains("Reviews") {
        client.wait_for_notification(|message| {
            message["method"] == "notifications/tools/list_changed"
        });
    }
}

#[test]
fn a_gemini_manifest_is_read_unless_there_is_an_own_manifest() {
    let context = TestContext::new();
    write_extension(&context, "extensions/other-kit", json!({}));
    let folder = context.root().join("extensions/other-kit");
    fs::remove_file(folder.join("extension.json")).unwrap();
    let manifest = json!({
        "name": "other-kit", "version": "1.0.0", "contextFileName": "GEMINI.md", "excludeTools": ["run_shell_command"],
        "mcpServers": {
            "wiki": { "httpUrl": "https://wiki.example.com/mcp", "trust": true },
            "notes": { "command": "node", "args": ["${extensionPath}/server.js"], "visibility": "private" },
        },
        "agents": [{ "name": "reviewer", "path": "agents/reviewer" }],
    });
    context.write("extensions/other-kit/gemini-extension.json", manifest.to_string());
    let listed = json_of(&context, ["list", "--json"]);
    assert_eq!(listed[0]["extension"], "other-kit", "{listed}");
    let extensions = json_of(&context, ["extensions", "list", "--json"]);
    let wanted = json!([
        { "server": "wiki", "visibility": "public" }, { "server": "notes", "visibility": "private" }
    ]);
    assert_eq!(extensions[0]["servers"], wanted, "{extensions}");
    let shown = json_of(&context, ["show", "reviewer", "--json"]).to_string();
    assert!(shown.contains("extensions/other-kit/server.js"), "{shown}");
    assert!(!findings(&context).iter().any(|found| found.contains("second-manifest")));
    let own = json!({ "name": "other-kit" }).to_string();
    context.write("extensions/other-kit/extension.json", own);
    let warned = "extensions/other-kit/gemini-extension.json:1 second-manifest".to_owned();
    assert!(findings(&context).contains(&warned), "{:?}", findings(&context));
    assert!(context.run(["extensions", "check"]).status.success(), "a warning, no error");
    assert_eq!(json_of(&context, ["list", "--json"]), json!([]), "our own form counts");
}
