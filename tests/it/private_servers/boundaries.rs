//! Three boundaries around an agent's own servers, each tried on its own: discovery, policy, execution. And the
//! key of such a server, looked for everywhere.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use adjutant::base::RunId;
use adjutant::catalog::Snapshot;
use adjutant::config::{GatewayOptions, Settings};
use adjutant::gateway::{Gateway, Tell, Tunnel};
use serde_json::{Value, json};

use crate::gateway::until;
use crate::gateway_real::node_program;
use crate::support::TestContext;
use crate::support::mcp::{McpClient, text};
use crate::support::stage::{NEW, Stage};

/// An agent with a shelf of files and a memory, both its own. The key is the shelf's.
fn librarian(context: &TestContext, more: &str) -> Option<()> {
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

const TRUST: &str = "policy:\n  mcp_servers: { books: { trust: true }, notes: { trust: true } }\n";

/// Uses both servers by the names that their documentation has.
fn script(context: &TestContext) -> String {
    let book = json!({ "path": context.root().join("shelf/book.txt") });
    let entity = json!({ "entities": [
        { "name": "Queequeg", "entityType": "harpooner", "observations": ["calm"] },
    ]});
    format!("CALL mcp__books__read_text_file {book}\nCALL mcp__notes__create_entities {entity}\n")
}

#[test]
fn discovery_nobody_else_finds_or_reaches_a_private_server() {
    let Some(stage) = Stage::new(NEW) else { return };
    let Some(()) = librarian(&stage.context, TRUST) else { return };
    let curious =
        "---\nname: curious\ndescription: Wants it too\nmcp_servers: [books]\n---\nYou look.\n";
    stage.context.agent("curious", curious);
    stage.context.write(".mcp.json", r#"{"mcpServers":{"other":{"command":"true"}}}"#);
    let all = json!({ "allow": { "servers": ["*"], "tools": { "*": ["*"] } } });
    let rules = json!({ "agents": { "main": all, "curious": all, "librarian": all } });
    stage.context.write(".mcp-gateway-rules.json", rules.to_string());
    let mut client = stage.serve();
    let used = client.call(
        "run_subagent",
        json!({ "agent_name": "librarian", "prompt": script(&stage.context) }),
    );
    assert!(text(&used).contains("Ishmael") && text(&used).contains("Queequeg"), "{used}");
    for agent in ["main", "curious", "librarian"] {
        let listed = client.call("list_servers", json!({ "agent_id": agent })).to_string();
        assert!(listed.contains("other"), "the rules do grant: {listed}");
        assert!(!listed.contains("books") && !listed.contains("notes"), "{agent}: {listed}");
        for (server, tool) in spellings() {
            let asked = json!({ "agent_id": agent, "server": server });
            let tools = client.call("get_server_tools", asked).to_string();
            assert!(!tools.contains("inputSchema"), "{agent} {server}: {tools}");
            let args = json!({ "path": stage.context.root().join("shelf/book.txt") });
            let call = json!({ "agent_id": agent, "server": server, "tool": tool, "args": args });
            let refused = client.call("execute_tool", call);
            assert_eq!(refused["isError"], true, "{agent} {server} {tool}: {refused}");
            assert!(!refused.to_string().contains("Ishmael"), "{agent} {server}: {refused}");
        }
    }
    // To name it as a shared one does not help, and the answer does not say whose it is.
    let report =
        client.call("run_subagent", json!({ "agent_name": "curious", "prompt": "SAY hi" }));
    assert!(report.to_string().contains("SERVER_UNAVAILABLE"), "{report}");
    assert!(!report.to_string().contains("librarian"), "{report}");
}

fn spellings() -> impl Iterator<Item = (&'static str, &'static str)> {
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

/// The far end of the pipe, as `claude` speaks to it.
struct Pipe {
    tunnel: Arc<Tunnel>,
    audit: PathBuf,
}

impl Pipe {
    async fn open(context: &TestContext) -> Self {
        let settings = Settings::resolve(Some(&context.root())).unwrap();
        let gateway = Gateway::start(&settings, GatewayOptions::default());
        let snapshot = Snapshot::load(&settings);
        let agent = snapshot.get("librarian").and_then(|entry| entry.agent()).unwrap();
        let (tunnel, _) = Tunnel::open(&gateway, agent, RunId::new()).await.unwrap();
        Self { tunnel: Arc::new(tunnel), audit: settings.data_dir().join("audit.jsonl") }
    }

    async fn ask(&self, server: &str, method: &str, params: Value) -> Value {
        let tell: Tell = Arc::new(|_, _| {});
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.tunnel.message(server, &message, &tell).await.unwrap()
    }

    async fn tools(&self, server: &str) -> BTreeSet<String> {
        let listed = self.ask(server, "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.audit).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// `claude` would not call what it was not offered; here it does.
#[tokio::test(flavor = "multi_thread")]
async fn d2_policy_every_call_is_judged_and_what_is_listed_is_what_can_be_called() {
    let context = TestContext::new();
    let policy = "policy:\n  tools:\n    exclude: [\"mcp:books:write_file\", \"mcp:notes:delete_*\"]\n\
                  permissions: { allow: [mcp__books__write_file, mcp__notes], deny: [mcp__books__move_file] }\n";
    let Some(()) = librarian(&context, policy) else { return };
    let pipe = Pipe::open(&context).await;
    let listed = pipe.tools("books").await;
    assert!(listed.contains("read_text_file"), "{listed:?}");
    let target = context.root().join("shelf/new.txt");
    for tool in ["write_file", "move_file"] {
        assert!(!listed.contains(tool), "{listed:?}");
        let arguments = json!({ "path": target, "content": "x", "destination": target,
            "source": context.root().join("shelf/book.txt") });
        let call = json!({ "name": tool, "arguments": arguments });
        let refused = pipe.ask("books", "tools/call", call).await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("may not use tool"), "{refused}");
        let lines = pipe.audit();
        let line = lines.last().unwrap();
        assert_eq!((&line["tool"], &line["decision"]), (&json!(tool), &json!("deny")), "{line}");
    }
    assert!(!target.exists());
    let notes = pipe.tools("notes").await;
    assert!(notes.contains("read_graph") && !notes.contains("delete_entities"), "{notes:?}");
    // Whatever is listed is judged the same when it is called.
    for (server, tools) in [("books", listed), ("notes", notes)] {
        for tool in tools {
            assert!(pipe.tunnel.judge(server, &tool).is_allowed(), "{server} {tool}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_execution_a_call_that_was_never_listed_is_refused_before_anything_runs() {
    let context = TestContext::new();
    let Some(program) = node_program("mcp-server-filesystem") else { return };
    let Some(()) = librarian(&context, TRUST) else { return };
    // What goes to the server is written down on its way.
    let file = context.root().join("agents/librarian/agent.md");
    let spy = context.root().join("spy.sh");
    fs::write(&spy, format!("tee -a sent.jsonl | {program} \"$@\"\n")).unwrap();
    let spied = fs::read_to_string(&file)
        .unwrap()
        .replace(&program, "sh")
        .replace("args: [shelf]", "args: [spy.sh, shelf]");
    fs::write(&file, spied).unwrap();
    let pipe = Pipe::open(&context).await;
    let sent = || fs::read_to_string(context.root().join("sent.jsonl")).unwrap();
    for tool in ["read_text_fil", "READ_TEXT_FILE", "no_such_tool", "read_text_file ", ""] {
        let path = context.root().join("shelf/book.txt");
        let call = json!({ "name": tool, "arguments": { "path": path } });
        let refused = pipe.ask("books", "tools/call", call).await;
        assert!(refused["error"].is_object(), "{tool}: {refused}");
    }
    let other = json!({ "name": "read_text_file", "arguments": {} });
    for server in ["Books", "librarian/books", "shelf"] {
        let refused = pipe.ask(server, "tools/call", other.clone()).await;
        assert!(refused["error"].is_object(), "{server}: {refused}");
    }
    assert!(!sent().contains("tools/call"), "it reached the server: {}", sent());
    let path = context.root().join("shelf/book.txt");
    let call = json!({ "name": "read_text_file", "arguments": { "path": path } });
    let read = pipe.ask("books", "tools/call", call).await;
    assert!(read.to_string().contains("Ishmael"), "{read}");
    assert!(sent().contains("tools/call"), "a listed one does");
}

#[test]
fn the_key_of_a_server_is_in_that_servers_environment_and_nowhere_else() {
    let Some(stage) = Stage::new(NEW) else { return };
    let Some(()) = librarian(&stage.context, TRUST) else { return };
    let root = stage.context.root();
    // Another one for every run of this test: all processes of the machine are looked at.
    let key = format!("sk-{}", root.parent().unwrap().file_name().unwrap().display());
    let with_key = |mut command: Command| {
        command.env("LIBRARY_KEY", &key).env("RUST_LOG", "trace");
        command
    };
    let log = root.join("stderr.log");
    let command = with_key(stage.adjutant(["serve"]));
    let mut client = McpClient::connect_logging(command, File::create(&log).unwrap());
    // It waits so that it can be looked at, and is cancelled then.
    let prompt = format!("{}SLEEP 50\nSAY done", script(&stage.context));
    let arguments = json!({ "agent_name": "librarian", "prompt": prompt });
    let call = json!({ "name": "run_subagent", "arguments": arguments });
    let id = client.begin("tools/call", call);
    until("the end of both calls", || {
        let told = stage.told();
        (told.contains("Ishmael") && stage.model.requests().len() >= 3).then_some(())
    });

    let processes = processes_of(&root);
    let agent: Vec<&Process> = processes.iter().filter(|p| p.is(&stage.claude)).collect();
    assert!(!agent.is_empty(), "the agent is there: {processes:#?}");
    for process in &agent {
        assert!(!process.holds(&key), "the agent has the key: {process:#?}");
    }
    let holders: Vec<&Process> = processes.iter().filter(|p| p.holds(&key)).collect();
    let own = Path::new(env!("CARGO_BIN_EXE_adjutant"));
    let servers: Vec<&&Process> = holders.iter().filter(|p| !p.is(own)).collect();
    assert!(!servers.is_empty(), "the server has it: {processes:#?}");
    for server in servers {
        assert!(server.arguments.contains("mcp-server-filesystem"), "{server:#?}");
        assert!(!server.arguments.contains(&key), "{server:#?}");
    }
    assert!(root.join("data/tmp").read_dir().unwrap().count() > 0, "the run has a folder");
    no_file_holds(root.parent().unwrap(), &key);
    client.notify("notifications/cancelled", json!({ "requestId": id }));
    client.hang_up();
    client.ends();

    no_file_holds(root.parent().unwrap(), &key);
    assert!(fs::read_to_string(root.join("data/audit.jsonl")).unwrap().contains("read_text_file"));
    let requests = format!("{:?}", stage.model.all_requests());
    assert!(requests.contains("Ishmael") && !requests.contains(&key), "the model was told");
    for words in [
        ["plan", "librarian", "--json"],
        ["show", "librarian", "--json"],
        ["runs", "show", "last"],
        ["--version", "", ""],
    ] {
        let mut command = with_key(stage.adjutant([]));
        let output = command.args(words.iter().filter(|word| !word.is_empty())).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        assert!(!format!("{}", String::from_utf8_lossy(&output.stdout)).contains(&key));
        assert!(!format!("{}", String::from_utf8_lossy(&output.stderr)).contains(&key));
    }
}

/// A process that has something to do with a test.
#[derive(Debug)]
struct Process {
    program: PathBuf,
    arguments: String,
    environment: String,
}

impl Process {
    fn is(&self, program: &Path) -> bool {
        program.canonicalize().is_ok_and(|program| program == self.program)
    }

    fn holds(&self, key: &str) -> bool {
        self.environment.contains(key) || self.arguments.contains(key)
    }
}

/// The processes that work in the folder of a test, or know of it.
fn processes_of(root: &Path) -> Vec<Process> {
    let folder = root.parent().unwrap().display().to_string();
    let read = |path: PathBuf| {
        fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    };
    let found = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let place = entry.path();
        let process = Process {
            program: fs::read_link(place.join("exe")).ok()?,
            arguments: read(place.join("cmdline")),
            environment: read(place.join("environ")),
        };
        let cwd = fs::read_link(place.join("cwd")).ok()?;
        let ours = process.holds(&folder) || cwd.starts_with(root);
        ours.then_some(process)
    });
    found.collect()
}

/// Run folder, audit log, events, log, transcripts: everything that was written.
fn no_file_holds(folder: &Path, key: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            no_file_holds(&path, key);
        } else if kind.is_file() {
            let content = fs::read(&path).unwrap_or_default();
            let content = String::from_utf8_lossy(&content);
            assert!(!content.contains(key), "the key is in {}", path.display());
        }
    }
}
