//! Boundaries around private servers: discovery, policy and execution, each tested alone; and leaks of an API key.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use adjutant::catalog::Snapshot;
use adjutant::config::{GatewayOptions, Settings};
use adjutant::gateway::{Gateway, NotifyFn, SdkServers};
use adjutant::jsonrpc::LineJson;
use adjutant::util::RunId;
use serde_json::{Value, json};

use crate::gateway::faulty;
use crate::gateway_real::node_program;
use crate::support::TestContext;
use crate::support::claude_context::{ClaudeContext, NEW};
use crate::support::mcp::{McpClient, result_text};
use crate::support::wait::wait_until;

/// An agent with two private servers, `books` (with an API key) and `notes`.
fn write_librarian_agent(context: &TestContext, more: &str) -> Option<()> {
    let (files, memory) =
        (node_program("mcp-server-filesystem")?, node_program("mcp-server-memory")?);
    let root = context.root();
    context.write("shelf/book.txt", "call me Ishmael");
    let text = format!(
        "---\nname: librarian\ndescription: Reads books\n{more}\
         mcp_servers:\n  - name: books\n    command: {files}\n    args: [shelf]\n    env: {{ API_KEY: \"${{LIBRARY_KEY:-none}}\" }}\n  \
         - name: notes\n    command: {memory}\n    env: {{ MEMORY_FILE_PATH: \"{}/memory.jsonl\" }}\n---\nYou read books.\n",
        root.display()
    );
    context.agent("librarian", &text);
    Some(())
}

const TRUST_BOTH_SERVERS: &str =
    "policy:\n  mcp_servers: { books: { trust: true }, notes: { trust: true } }\n";

/// A script that calls both servers by their native tool names.
fn use_both_servers_script(context: &TestContext) -> String {
    let book = json!({ "path": context.root().join("shelf/book.txt") });
    let entity = json!({ "entities": [
        { "name": "Queequeg", "entityType": "harpooner", "observations": ["calm"] },
    ]});
    format!("CALL mcp__books__read_text_file {book}\nCALL mcp__notes__create_entities {entity}\n")
}

#[test]
fn discovery_other_agents_cannot_find_or_reach_a_private_server() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let Some(()) = write_librarian_agent(&fixture.context, TRUST_BOTH_SERVERS) else { return };
    let curious =
        "---\nname: curious\ndescription: Wants it too\nmcp_servers: [books]\n---\nYou look.\n";
    fixture.agent("curious", curious);
    fixture.write(".mcp.json", r#"{"mcpServers":{"other":{"command":"true"}}}"#);
    let all = json!({ "allow": { "servers": ["*"], "tools": { "*": ["*"] } } });
    let rules = json!({ "agents": { "main": all, "curious": all, "librarian": all } });
    fixture.write(".mcp-gateway-rules.json", rules.to_string());
    let mut client = fixture.serve();
    let used = client.call_tool(
        "run_subagent",
        json!({ "agent_name": "librarian", "prompt": use_both_servers_script(&fixture.context) }),
    );
    assert!(
        result_text(&used).contains("Ishmael") && result_text(&used).contains("Queequeg"),
        "{used}"
    );
    for agent in ["main", "curious", "librarian"] {
        let listed = client.call_tool("list_servers", json!({ "agent_id": agent })).to_string();
        assert_eq!(
            listed,
            "{\"content\":[{\"type\":\"text\",\"text\":\"[{\\\"name\\\":\\\"other\\\",\\\"description\\\":null}]\"}],\"structuredContent\":{\"result\":[{\"name\":\"other\",\"description\":null}]},\"isError\":false}"
        );
        assert!(!listed.contains("books") && !listed.contains("notes"), "{agent}: {listed}");
        for (server, tool) in name_variants() {
            let asked = json!({ "agent_id": agent, "server": server });
            let tools = client.call_tool("get_server_tools", asked).to_string();
            assert!(!tools.contains("inputSchema"), "{agent} {server}: {tools}");
            let args = json!({ "path": fixture.root().join("shelf/book.txt") });
            let call = json!({ "agent_id": agent, "server": server, "tool": tool, "args": args });
            let refused = client.call_tool("execute_tool", call);
            assert_eq!(refused["isError"], true, "{agent} {server} {tool}: {refused}");
            assert!(!refused.to_string().contains("Ishmael"), "{agent} {server}: {refused}");
        }
    }
    // Naming the private server as a shared one fails too, and the error does not name its owner.
    let report =
        client.call_tool("run_subagent", json!({ "agent_name": "curious", "prompt": "SAY hi" }));
    assert_eq!(
        report["_meta"]["adjutant/error"]["error"]["code"], "SERVER_UNAVAILABLE",
        "{report}"
    );
    assert!(!report.to_string().contains("librarian"), "{report}");
}

fn name_variants() -> impl Iterator<Item = (&'static str, &'static str)> {
    const SERVERS: [&str; 12] = [
        "books",
        "Books",
        " books",
        "books\u{0}",
        "librarian/books",
        "librarian:books",
        "mcp__books",
        "private:librarian:books",
        "notes",
        "../librarian/notes",
        "*",
        "",
    ];
    let tools = ["read_text_file", "mcp__books__read_text_file"];
    SERVERS.into_iter().flat_map(move |server| tools.map(|tool| (server, tool)))
}

/// The [`SdkServers`] of the agent `librarian`, called directly, as `claude` calls them.
struct SdkServersClient {
    sdk_servers: Arc<SdkServers>,
    audit_entries: PathBuf,
}

impl SdkServersClient {
    async fn open(context: &TestContext) -> Self {
        let settings = Settings::resolve(Some(&context.root())).unwrap();
        let gateway = Gateway::start(&settings, GatewayOptions::default());
        let snapshot = Snapshot::load(&settings);
        let agent = snapshot.get("librarian").and_then(|entry| entry.agent()).unwrap();
        let (sdk_servers, _) = SdkServers::connect(&gateway, agent, RunId::new()).await.unwrap();
        Self {
            sdk_servers: Arc::new(sdk_servers),
            audit_entries: settings.data_dir().join("audit.jsonl"),
        }
    }

    async fn request(&self, server: &str, method: &str, params: Value) -> Value {
        let tell: NotifyFn = Arc::new(|_, _| {});
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let message = LineJson::encode(&message).unwrap();
        let answer = self.sdk_servers.handle_message(server, &message, &tell).await.unwrap();
        serde_json::from_str(answer.as_str()).unwrap()
    }

    async fn list_tools(&self, server: &str) -> BTreeSet<String> {
        let listed = self.request(server, "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.audit_entries).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_or_prompt_is_not_requested_if_it_cannot_be_audited() {
    let context = TestContext::new();
    let own = format!(
        "---\nname: librarian\ndescription: Reads books\nmcp_servers:\n  - name: own\n    command: {}\n    args: [records, own]\n---\nYou read books.\n",
        faulty()
    );
    context.agent("librarian", &own);
    // A directory in place of the audit log.
    fs::create_dir_all(context.root().join("data/audit.jsonl")).unwrap();
    let pipe = SdkServersClient::open(&context).await;
    for (method, params) in [
        ("resources/read", json!({ "uri": "faulty://one" })),
        ("prompts/get", json!({ "name": "greet" })),
    ] {
        let answer = pipe.request("own", method, params).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.starts_with("AUDIT_UNAVAILABLE"), "{answer}");
        let asked = fs::read_to_string(context.root().join("asked-own")).unwrap();
        insta::allow_duplicates! {
            insta::assert_snapshot!(asked, @r"
            initialize
            notifications/initialized
            tools/list
            ");
        }
    }
}

/// The frames of `claude` are values, so the whitespace and the number text of arguments are not kept on this way.
#[tokio::test(flavor = "multi_thread")]
async fn results_of_a_private_server_equal_those_of_a_direct_call() {
    let context = TestContext::new();
    let own = format!(
        "---\nname: librarian\ndescription: Reads books\nmcp_servers:\n  - name: own\n    command: {}\n    args: [good]\n---\nYou read books.\n",
        faulty()
    );
    context.agent("librarian", &own);
    let pipe = SdkServersClient::open(&context).await;
    let mut direct = McpClient::connect(Command::new(faulty()));
    for tool in ["odd", "fail", "verbatim", "protocol_error"] {
        let arguments = json!({ "z": 1.5, "a": [null, "\u{e9}\r\n", 12_345_678_901_234_567_u64] });
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = pipe.request("own", "tools/call", params.clone()).await;
        let expected = direct.request("tools/call", params);
        let (answer, expected) = match expected.get("error") {
            Some(error) => (&answer["error"], error),
            None => (&answer["result"], &expected),
        };
        assert_eq!(answer.to_string(), expected.to_string());
    }
}

/// `claude` never calls a tool that was not listed, so this test calls it directly.
#[tokio::test(flavor = "multi_thread")]
async fn d2_policy_every_call_is_checked_and_listed_tools_are_the_callable_ones() {
    let context = TestContext::new();
    let policy = "policy:\n  tools:\n    exclude: [\"mcp:books:write_file\", \"mcp:notes:delete_*\"]\n\
                  permissions: { allow: [mcp__books__write_file, mcp__notes], deny: [mcp__books__move_file] }\n";
    let Some(()) = write_librarian_agent(&context, policy) else { return };
    let pipe = SdkServersClient::open(&context).await;
    let listed = pipe.list_tools("books").await;
    assert!(listed.contains("read_text_file"), "{listed:?}");
    let target = context.root().join("shelf/new.txt");
    for (tool, rule) in [
        (
            "write_file",
            "`mcp:books:write_file` is excluded (`policy.tools.exclude[0]` in agent.md)",
        ),
        ("move_file", "`mcp__books__move_file` is denied (`permissions.deny[0]` in agent.md)"),
    ] {
        assert!(!listed.contains(tool), "{listed:?}");
        let arguments = json!({ "path": target, "content": "x", "destination": target,
            "source": context.root().join("shelf/book.txt") });
        let call = json!({ "name": tool, "arguments": arguments });
        let refused = pipe.request("books", "tools/call", call).await;
        let expected = format!(
            "DENIED_BY_POLICY: agent `librarian` may not use tool `{tool}` of server `books`: {rule}. \
             Call list_servers and get_server_tools to see what is allowed."
        );
        assert_eq!(refused["error"]["message"], expected);
        let lines = pipe.audit();
        let line = lines.last().unwrap();
        assert_eq!((&line["tool"], &line["decision"]), (&json!(tool), &json!("deny")), "{line}");
    }
    assert!(!target.exists());
    let notes = pipe.list_tools("notes").await;
    assert!(notes.contains("read_graph") && !notes.contains("delete_entities"), "{notes:?}");
    // Every listed tool is allowed when called.
    for (server, tools) in [("books", listed), ("notes", notes)] {
        for tool in tools {
            assert!(pipe.sdk_servers.evaluate_tool(server, &tool).is_allowed(), "{server} {tool}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_execution_a_call_of_an_unlisted_tool_never_reaches_the_server() {
    let context = TestContext::new();
    let Some(program) = node_program("mcp-server-filesystem") else { return };
    let Some(()) = write_librarian_agent(&context, TRUST_BOTH_SERVERS) else { return };
    // `tee` copies the server's input to `sent.jsonl`.
    let file = context.root().join("agents/librarian/agent.md");
    let spy = context.root().join("spy.sh");
    fs::write(&spy, format!("tee -a sent.jsonl | {program} \"$@\"\n")).unwrap();
    let spied = fs::read_to_string(&file)
        .unwrap()
        .replace(&program, "sh")
        .replace("args: [shelf]", "args: [spy.sh, shelf]");
    fs::write(&file, spied).unwrap();
    let pipe = SdkServersClient::open(&context).await;
    let sent = || fs::read_to_string(context.root().join("sent.jsonl")).unwrap();
    for tool in ["read_text_fil", "READ_TEXT_FILE", "no_such_tool", "read_text_file ", ""] {
        let path = context.root().join("shelf/book.txt");
        let call = json!({ "name": tool, "arguments": { "path": path } });
        let refused = pipe.request("books", "tools/call", call).await;
        assert!(refused["error"].is_object(), "{tool}: {refused}");
    }
    let other = json!({ "name": "read_text_file", "arguments": {} });
    for server in ["Books", "librarian/books", "shelf"] {
        let refused = pipe.request(server, "tools/call", other.clone()).await;
        assert!(refused["error"].is_object(), "{server}: {refused}");
    }
    assert!(!sent().contains("tools/call"), "it reached the server: {}", sent());
    let path = context.root().join("shelf/book.txt");
    let call = json!({ "name": "read_text_file", "arguments": { "path": path } });
    let read = pipe.request("books", "tools/call", call).await;
    assert_eq!(
        read.to_string(),
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"call \
         me Ishmael\"}],\"structuredContent\":{\"content\":\"call me Ishmael\"}}}"
    );
    assert!(sent().contains("tools/call"), "a listed one does");
}

#[test]
fn api_key_of_a_server_is_only_in_that_servers_environment() {
    let Some(fixture) = ClaudeContext::new(NEW) else { return };
    let Some(()) = write_librarian_agent(&fixture.context, TRUST_BOTH_SERVERS) else { return };
    let root = fixture.root();
    // A unique key per test run, because the processes of the whole machine are searched.
    let key = format!("sk-{}", root.parent().unwrap().file_name().unwrap().display());
    let with_key = |mut command: Command| {
        command.env("LIBRARY_KEY", &key).env("RUST_LOG", "trace");
        command
    };
    let log = root.join("stderr.log");
    let command = with_key(fixture.adjutant(["serve"]));
    let mut client = McpClient::connect_logging(command, File::create(&log).unwrap());
    // The run sleeps while its processes are inspected, and is cancelled afterwards.
    let prompt = format!("{}SLEEP 50\nSAY done", use_both_servers_script(&fixture.context));
    let arguments = json!({ "agent_name": "librarian", "prompt": prompt });
    let call = json!({ "name": "run_subagent", "arguments": arguments });
    let id = client.send_request("tools/call", call);
    wait_until("the end of both calls", || {
        let told = fixture.all_requests_text();
        (told.contains("Ishmael") && fixture.model.requests().len() >= 3).then_some(())
    });

    let processes = related_processes(&root);
    let agent: Vec<&RelatedProcess> =
        processes.iter().filter(|p| p.runs_program(&fixture.claude)).collect();
    assert!(!agent.is_empty(), "the agent is there: {processes:#?}");
    for process in &agent {
        assert!(!process.contains_key(&key), "the agent has the key: {process:#?}");
    }
    let holders: Vec<&RelatedProcess> = processes.iter().filter(|p| p.contains_key(&key)).collect();
    let own = Path::new(env!("CARGO_BIN_EXE_adjutant"));
    let servers: Vec<&&RelatedProcess> = holders.iter().filter(|p| !p.runs_program(own)).collect();
    assert!(!servers.is_empty(), "the server has it: {processes:#?}");
    for server in servers {
        assert!(server.arguments.contains("mcp-server-filesystem"), "{server:#?}");
        assert!(!server.arguments.contains(&key), "{server:#?}");
    }
    assert!(root.join("data/tmp").read_dir().unwrap().count() > 0, "the run has a folder");
    assert_no_file_contains(root.parent().unwrap(), &key);
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    client.disconnect();
    client.wait_for_exit();

    assert_no_file_contains(root.parent().unwrap(), &key);
    let entries = fixture.audit_entries();
    assert!(entries.iter().any(|entry| entry["tool"] == "read_text_file"), "{entries:#?}");
    let requests = format!("{:?}", fixture.model.all_requests());
    assert!(requests.contains("Ishmael") && !requests.contains(&key), "the model was told");
    for words in [
        ["plan", "librarian", "--json"],
        ["show", "librarian", "--json"],
        ["runs", "show", "last"],
        ["--version", "", ""],
    ] {
        let mut command = with_key(fixture.adjutant([]));
        let output = command.args(words.iter().filter(|word| !word.is_empty())).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert!(!format!("{}", String::from_utf8_lossy(&output.stdout)).contains(&key));
        assert!(!format!("{}", String::from_utf8_lossy(&output.stderr)).contains(&key));
    }
}

/// A process that belongs to the test.
#[derive(Debug)]
struct RelatedProcess {
    program: PathBuf,
    arguments: String,
    environment: String,
}

impl RelatedProcess {
    fn runs_program(&self, program: &Path) -> bool {
        program.canonicalize().is_ok_and(|program| program == self.program)
    }

    fn contains_key(&self, key: &str) -> bool {
        self.environment.contains(key) || self.arguments.contains(key)
    }
}

/// Processes that run in the test's directory or mention it in arguments or environment.
fn related_processes(root: &Path) -> Vec<RelatedProcess> {
    let folder = root.parent().unwrap().display().to_string();
    let read = |path: PathBuf| {
        fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    };
    let found = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let place = entry.path();
        let process = RelatedProcess {
            program: fs::read_link(place.join("exe")).ok()?,
            arguments: read(place.join("cmdline")),
            environment: read(place.join("environ")),
        };
        let cwd = fs::read_link(place.join("cwd")).ok()?;
        let ours = process.contains_key(&folder) || cwd.starts_with(root);
        ours.then_some(process)
    });
    found.collect()
}

/// Asserts that no file below `folder` contains the key: run directory, audit log, event log, stderr log, transcripts.
fn assert_no_file_contains(folder: &Path, key: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            assert_no_file_contains(&path, key);
        } else if kind.is_file() {
            let content = fs::read(&path).unwrap_or_default();
            let content = String::from_utf8_lossy(&content);
            assert!(!content.contains(key), "the key is in {}", path.display());
        }
    }
}
