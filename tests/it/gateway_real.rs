//! Real servers behind the gateway and real clients in front of it: results equal those without the gateway.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::{Map, Value, json};
use test_case::test_case;

use crate::support::TestContext;
use crate::support::mcp::{McpClient, result_text};
use crate::support::skip::or_skip;

const RULES: &str = r#"{"agents": {"dev": {"allow": {"servers": ["*"]}}}}"#;

/// The directory with the packages, installed once.
fn install_packages(
    kind: &'static str,
    list: &str,
    install: fn(&Path) -> Output,
) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/mcp-servers").join(kind);
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(folder.join(".lock")).unwrap();
    lock.lock().unwrap();
    let wanted = fs::read_to_string(test_source(list)).unwrap();
    let marker_file = folder.join(".installed");
    if fs::read_to_string(&marker_file).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    let output = install(&folder);
    if output.status.success() {
        fs::write(marker_file, wanted).unwrap();
        return Ok(folder);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{kind} packages cannot be installed: {said}"))
}

pub(crate) fn test_source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp-servers").join(name)
}

fn run_shell(script: &str, folder: &Path) -> Output {
    let sources = test_source("");
    Command::new("sh")
        .args(["-ec", script])
        .env("SOURCES", sources)
        .current_dir(folder)
        .output()
        .unwrap()
}

pub(crate) fn node_packages() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let install = |folder: &Path| {
        run_shell(
            // The inspector's CLI reads the `package.json` of the inspector package, which is not installed.
            "cp \"$SOURCES\"/package*.json . && npm ci --no-audit --no-fund --ignore-scripts >&2
             echo '{\"name\":\"@modelcontextprotocol/inspector\",\"version\":\"1.0.3\"}' > node_modules/@modelcontextprotocol/package.json",
            folder,
        )
    };
    or_skip(FOLDER.get_or_init(|| install_packages("node", "package-lock.json", install)).as_ref())
}

fn python_packages() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let install = |folder: &Path| {
        run_shell(
            "python3 -m venv --clear venv && venv/bin/pip -q install -r \"$SOURCES\"/requirements.txt >&2",
            folder,
        )
    };
    or_skip(FOLDER.get_or_init(|| install_packages("python", "requirements.txt", install)).as_ref())
}

pub(crate) fn node_program(name: &str) -> Option<String> {
    Some(node_packages()?.join("node_modules/.bin").join(name).display().to_string())
}

pub(crate) fn python_program(name: &str) -> Option<String> {
    Some(python_packages()?.join("venv/bin").join(name).display().to_string())
}

/// Two instances of one server: behind the gateway, and connected directly.
struct ServerPair {
    _context: TestContext,
    gateway: McpClient,
    direct: McpClient,
}

impl ServerPair {
    fn new(
        context: TestContext,
        program: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let env: Map<String, Value> =
            variables.iter().map(|&(k, v)| (k.to_owned(), json!(v))).collect();
        let entry = json!({ "command": program, "args": arguments, "env": env });
        context.write(".mcp.json", json!({ "mcpServers": { "real": entry } }).to_string());
        context.write(".mcp-gateway-rules.json", RULES);
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().copied()).current_dir(context.root());
        command.env_remove("NODE_OPTIONS");
        let gateway = McpClient::connect(context.adjutant(["gateway"]));
        Self { gateway, direct: McpClient::connect(command), _context: context }
    }

    /// Calls a tool through the gateway and directly; returns protocol errors like results.
    fn call_both(&mut self, tool: &str, arguments: &Value) -> (Value, Value) {
        let without_id = |mut answer: Value| {
            answer.as_object_mut().unwrap().shift_remove("id");
            answer
        };
        let request =
            json!({ "agent_id": "dev", "server": "real", "tool": tool, "args": arguments });
        let through = without_id(self.gateway.call_tool("execute_tool", request));
        (through, without_id(self.direct.call_tool(tool, arguments.clone())))
    }

    fn assert_same(&mut self, tool: &str, arguments: &Value) -> Value {
        let (through, direct) = self.call_both(tool, arguments);
        assert_eq!(through.to_string(), direct.to_string(), "{tool}");
        through
    }

    /// Names of all tools; asserts that the definitions through the gateway equal the direct ones.
    fn tools(&mut self) -> Vec<String> {
        let listed = self.direct.request("tools/list", json!({}))["tools"].clone();
        let answer = self
            .gateway
            .call_tool("get_server_tools", json!({ "agent_id": "dev", "server": "real" }));
        assert_eq!(answer["structuredContent"]["tools"].to_string(), listed.to_string());
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn server_everything() {
    let Some(program) = node_program("mcp-server-everything") else { return };
    let mut pair = ServerPair::new(TestContext::new(), &program, &["stdio"], &[]);
    for tool in pair.tools() {
        let arguments = match tool.as_str() {
            "echo" => json!({ "message": "grüße\u{1f600}\n" }),
            "get-sum" => json!({ "a": 0.1, "b": 0.2 }),
            "get-annotated-message" => json!({ "messageType": "error", "includeImage": true }),
            "get-resource-reference" => json!({ "resourceType": "Text", "resourceId": 1 }),
            "get-resource-links" => json!({ "count": 5 }),
            "get-structured-content" => json!({ "location": "Chicago" }),
            "trigger-long-running-operation" => json!({ "duration": 0.2, "steps": 2 }),
            "gzip-file-as-resource" => {
                json!({ "name": "x", "data": "data:text/plain,hello", "outputType": "resource" })
            }
            "simulate-research-query" => json!({ "topic": "tea", "ambiguous": false }),
            _ => json!({}),
        };
        match tool.as_str() {
            // The gateway gives servers a smaller environment, on purpose.
            "get-env" => {
                let (through, direct) = pair.call_both(&tool, &arguments);
                assert!(
                    result_text(&through).contains("PATH") && result_text(&direct).contains("PATH")
                );
            }
            // These tools answer with the time or with generated ids.
            "get-resource-reference" | "gzip-file-as-resource" | "simulate-research-query" => {
                let (through, direct) = pair.call_both(&tool, &arguments);
                let shape = |value: &Value| {
                    (value["isError"].clone(), value["content"].as_array().map(Vec::len))
                };
                assert_eq!(shape(&through), shape(&direct), "{tool}: {through} {direct}");
            }
            _ => drop(pair.assert_same(&tool, &arguments)),
        }
    }
    let image = pair.assert_same("get-tiny-image", &json!({}));
    assert_eq!(image["content"][1]["type"], "image");
    pair.assert_same("get-sum", &json!({ "a": "not a number" }));
}

#[test]
fn server_filesystem() {
    let Some(program) = node_program("mcp-server-filesystem") else { return };
    let context = TestContext::new();
    context.write("files/a.txt", "one\ntwo\nthree\n").write("files/sub/b.txt", "b");
    let root = context.root().join("files").display().to_string();
    let path = |name: &str| format!("{root}/{name}");
    let mut pair = ServerPair::new(context, &program, &[&root], &[]);
    for tool in pair.tools() {
        let arguments = match tool.as_str() {
            "read_file" | "read_text_file" | "read_media_file" | "get_file_info" => {
                json!({ "path": path("a.txt") })
            }
            "read_multiple_files" => json!({ "paths": [path("a.txt"), path("none")] }),
            "write_file" => json!({ "path": path("new.txt"), "content": "ü\n" }),
            "edit_file" => {
                json!({ "path": path("a.txt"), "edits": [{ "oldText": "two", "newText": "2" }], "dryRun": true })
            }
            "create_directory" => json!({ "path": path("made") }),
            "search_files" => json!({ "path": root, "pattern": "**/*.txt" }),
            "move_file" => json!({ "source": path("sub/b.txt"), "destination": path("a.txt") }),
            _ => json!({ "path": root }),
        };
        pair.assert_same(&tool, &arguments);
    }
    let outside = pair.assert_same("read_text_file", &json!({ "path": "/etc/passwd" }));
    assert_eq!(outside["isError"], true, "{outside}");
}

#[test]
fn server_memory() {
    let Some(program) = node_program("mcp-server-memory") else { return };
    let context = TestContext::new();
    let root = context.root().display().to_string();
    // Each instance has its own store: the calls change it.
    let file = format!("{root}/$SIDE.jsonl");
    let wrapper =
        format!("#!/bin/sh\nexport MEMORY_FILE_PATH=\"{root}/memory-$$.jsonl\"\nexec {program}\n");
    context.write("memory.sh", wrapper);
    let script = format!("{root}/memory.sh");
    let mut pair = ServerPair::new(context, "sh", &[&script], &[("UNUSED", &file)]);
    let entity = json!({ "name": "tea", "entityType": "drink", "observations": ["hot"] });
    let relation = json!({ "from": "tea", "to": "tea", "relationType": "is" });
    let order = [
        ("create_entities", json!({ "entities": [entity] })),
        ("create_relations", json!({ "relations": [relation] })),
        (
            "add_observations",
            json!({ "observations": [{ "entityName": "tea", "contents": ["green"] }] }),
        ),
        ("read_graph", json!({})),
        ("search_nodes", json!({ "query": "green" })),
        ("open_nodes", json!({ "names": ["tea"] })),
        (
            "delete_observations",
            json!({ "deletions": [{ "entityName": "tea", "observations": ["hot"] }] }),
        ),
        ("delete_relations", json!({ "relations": [relation] })),
        ("delete_entities", json!({ "entityNames": ["tea"] })),
    ];
    let mut names = pair.tools();
    for (tool, arguments) in order {
        pair.assert_same(tool, &arguments);
        names.retain(|name| name != tool);
    }
    assert!(names.is_empty(), "tools that were not called: {names:?}");
}

#[test]
fn mcp_server_time() {
    let Some(program) = python_program("mcp-server-time") else { return };
    let mut pair = ServerPair::new(TestContext::new(), &program, &["--local-timezone", "UTC"], &[]);
    assert_eq!(pair.tools().len(), 2);
    let (through, direct) =
        pair.call_both("get_current_time", &json!({ "timezone": "Asia/Tokyo" }));
    // The seconds may differ between the two calls.
    let day = |value: &Value| result_text(value).split('T').next().unwrap_or_default().to_owned();
    assert_eq!(day(&through), day(&direct));
    let times =
        json!({ "source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo" });
    pair.assert_same("convert_time", &times);
    pair.assert_same("convert_time", &json!({ "source_timezone": "Nowhere" }));
}

#[test]
fn mcp_server_git() {
    let Some(program) = python_program("mcp-server-git") else { return };
    let context = TestContext::new();
    context.write("repo/a.txt", "a\n");
    let repo = context.root().join("repo");
    let made = run_shell(
        "git init -q -b main . && git add . && git -c user.name=a -c user.email=a@example.com commit -qm one && echo b > b.txt",
        &repo,
    );
    assert!(made.status.success(), "{made:?}");
    let repo = repo.display().to_string();
    let mut pair = ServerPair::new(context, &program, &["--repository", &repo], &[]);
    for tool in pair.tools() {
        let mut arguments = json!({ "repo_path": repo });
        let more = match tool.as_str() {
            "git_diff" | "git_show" => json!({ "target": "HEAD", "revision": "HEAD" }),
            "git_add" => json!({ "files": ["none.txt"] }),
            "git_branch" => json!({ "branch_type": "local" }),
            "git_create_branch" | "git_checkout" => json!({ "branch_name": "main" }),
            // A commit hash depends on the time: the invalid message makes both calls fail with the same error.
            "git_commit" => json!({ "message": 5 }),
            _ => json!({}),
        };
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pair.assert_same(&tool, &arguments);
    }
}

/// A project with server-everything behind the gateway, and the path of the `adjutant` binary.
pub(crate) fn project_with_everything() -> Option<(TestContext, String)> {
    let program = node_program("mcp-server-everything")?;
    let context = TestContext::new();
    let entry = json!({ "command": program, "args": ["stdio"] });
    context.write(".mcp.json", json!({ "mcpServers": { "everything": entry } }).to_string());
    context.write(".mcp-gateway-rules.json", RULES);
    let gateway = context.adjutant(["gateway"]).get_program().to_string_lossy().into_owned();
    Some((context, gateway))
}

pub(crate) fn stdout_of(command: &mut Command, context: &TestContext) -> String {
    let output = command.current_dir(context.root()).env("HOME", context.home()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// `serve` lists `run_subagent` and `run_subagents` before the three tools of the gateway.
#[test_case("gateway", 3)]
#[test_case("serve", 5)]
fn the_typescript_sdk_works(command: &str, tools: usize) {
    let Some((context, adjutant)) = project_with_everything() else { return };
    // Next to the packages: Node.js resolves imports from there.
    let script = node_packages().unwrap().join(format!("client-{command}.mjs"));
    fs::copy(test_source("client.mjs"), &script).unwrap();
    let said = stdout_of(Command::new("node").arg(&script).args([&adjutant, command]), &context);
    assert_eq!(said, format!("2025-11-25 {tools} tools; Echo: hello; progress; image/png"));
}

#[test_case("gateway", 3)]
#[test_case("serve", 5)]
fn the_python_sdk_works(command: &str, tools: usize) {
    let Some((context, adjutant)) = project_with_everything() else { return };
    let Some(python) = python_program("python") else { return };
    let script = test_source("client.py");
    let said = stdout_of(Command::new(python).arg(&script).args([&adjutant, command]), &context);
    assert_eq!(said, format!("2026-07-28 {tools} tools; Echo: hello; image/png"));
}

#[test_case("gateway", 3)]
#[test_case("serve", 5)]
fn the_inspector_works(command: &str, tools: usize) {
    let Some((context, adjutant)) = project_with_everything() else { return };
    let inspector = node_program("mcp-inspector-cli").unwrap();
    let inspect = |method: &str, more: &[&str]| -> Value {
        let mut inspection = Command::new(&inspector);
        inspection.args(["--cli", &adjutant, command, "--method", method]).args(more);
        serde_json::from_str(&stdout_of(&mut inspection, &context)).unwrap()
    };
    let listed = inspect("tools/list", &[]);
    assert_eq!(listed["tools"].as_array().map(Vec::len), Some(tools), "{listed}");
    let wanted = ["agent_id=dev", "server=everything", "tool=get-sum", r#"args={"a":2,"b":3}"#];
    let mut arguments = vec!["--tool-name", "execute_tool"];
    arguments.extend(wanted.iter().flat_map(|argument| ["--tool-arg", argument]));
    let called = inspect("tools/call", &arguments);
    assert_eq!(result_text(&called), "The sum of 2 and 3 is 5.", "{called}");
}
