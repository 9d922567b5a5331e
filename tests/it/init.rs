//! `adjutant init`: sets up a project for Claude Code and changes nothing else in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::TestContext;

#[test]
fn init_sets_up_an_empty_project_and_a_second_init_changes_nothing() {
    let context = TestContext::new();
    let first = context.run(["init"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let files = all_files(&context.root());
    let server: Value = serde_json::from_str(&files[".mcp.json"]).unwrap();
    let entry = &server["mcpServers"]["adjutant"];
    assert_eq!(entry["args"], json!(["serve"]));
    assert!(
        Path::new(entry["command"].as_str().unwrap()).is_absolute(),
        "it is not on the PATH here"
    );
    assert!(files["agents/main/system-prompt.md"].contains("- `project-guide`: Answers questions"));

    let second = context.run(["init"]);
    assert!(second.status.success());
    assert!(
        text(&second.stdout).lines().all(|line| line.starts_with("keep ")),
        "{}",
        text(&second.stdout)
    );
    assert_eq!(all_files(&context.root()), files);
}

#[test]
fn server_command_is_the_bare_name_if_it_is_on_the_path() {
    let context = TestContext::new();
    let folder = Path::new(env!("CARGO_BIN_EXE_adjutant")).parent().unwrap();
    let path = std::env::join_paths([folder]).unwrap();
    assert!(context.adjutant(["init"]).env("PATH", path).status().unwrap().success());
    let servers: Value = serde_json::from_str(&all_files(&context.root())[".mcp.json"]).unwrap();
    assert_eq!(servers["mcpServers"]["adjutant"]["command"], "adjutant");
}

#[test]
fn existing_content_stays_byte_for_byte() {
    let context = TestContext::new();
    let servers = "{\n\t\"mcpServers\" : {\n\t\t\"z\": { \"command\":\"x\" },\n\t\t\"a\": {\"url\": \"y\"}\n\t},\n\t\"last\": 1.50\n}";
    context.write(".mcp.json", servers);
    context.write("agents/main/system-prompt.md", "# Mine\n\nDo well.\n");
    context.write("notes.txt", "mine");
    context.agent("reader", "---\nname: reader\ndescription: Reads\n---\nRead.\n");
    assert!(context.run(["init"]).status.success());
    let files = all_files(&context.root());
    assert!(
        files[".mcp.json"]
            .starts_with(servers.strip_suffix("\n\t},\n\t\"last\": 1.50\n}").unwrap())
    );
    assert!(files[".mcp.json"].ends_with("\n\t},\n\t\"last\": 1.50\n}"));
    assert!(
        files["agents/main/system-prompt.md"].starts_with("# Mine\n\nDo well.\n\n<!-- adjutant")
    );
    assert!(!files.contains_key("agents/project-guide/agent.md"), "it has an agent already");
    let expected =
        [".mcp.json", "agents/main/system-prompt.md", "agents/reader/agent.md", "notes.txt"];
    let ours = |path: &&str| !path.starts_with(".claude/");
    assert_eq!(files.keys().map(String::as_str).filter(ours).collect::<Vec<_>>(), expected);
}

#[test]
fn a_dry_run_shows_the_diff_and_changes_nothing() {
    let context = TestContext::new();
    context.write(".mcp.json", "{\n  \"mcpServers\": {}\n}\n");
    let before = all_files(&context.root());
    let output = context.run(["init", "--dry-run"]);
    assert!(output.status.success());
    let diff = text(&output.stdout);
    assert!(diff.starts_with("--- a/.mcp.json\n+++ b/.mcp.json\n@@"), "{diff}");
    assert!(
        diff.contains("-  \"mcpServers\": {}\n+  \"mcpServers\": {\n+    \"adjutant\": {"),
        "{diff}"
    );
    assert!(diff.contains("--- /dev/null\n+++ b/agents/project-guide/agent.md\n"), "{diff}");
    assert!(diff.contains("+- `project-guide`: Answers"), "the list knows the agent to come");
    assert_eq!(all_files(&context.root()), before);

    context.run(["init"]);
    let again = context.run(["init", "--dry-run"]);
    assert_eq!((text(&again.stdout), again.status.code()), (String::new(), Some(0)));
}

#[test]
fn refresh_updates_only_the_subagents_section() {
    let context = TestContext::new();
    context.run(["init"]);
    context.agent("reader", "---\nname: reader\ndescription: Reads things\n---\nRead.\n");
    fs::remove_file(context.root().join(".mcp.json")).unwrap();
    let output = context.run(["init", "--refresh"]);
    assert_eq!(text(&output.stdout), "update   agents/main/system-prompt.md\n");
    let files = all_files(&context.root());
    assert!(files["agents/main/system-prompt.md"].contains("- `reader`: Reads things\n<!--"));
    assert!(!files.contains_key(".mcp.json"));
}

#[test]
fn refresh_without_a_subagents_section_reports_what_to_do() {
    let context = TestContext::new();
    let output = context.run(["init", "--refresh"]);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!(text(&output.stderr), @r"
    error: `agents/main/system-prompt.md` has no subagents section; run `adjutant init` without `--refresh`
    nothing was changed
    ");
}

#[test]
fn invalid_json_aborts_init_and_reports_the_line() {
    let context = TestContext::new();
    context.write(".mcp.json", "{\n  \"mcpServers\": {}, // servers\n}\n");
    let before = all_files(&context.root());
    let output = context.run(["init"]);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!(text(&output.stderr), @r"
    error: cannot add to `.mcp.json`: line 2, column 21: comments are not JSON; remove them
    nothing was changed
    ");
    assert_eq!(all_files(&context.root()), before);
}

#[test]
fn symlinks_out_of_the_project_are_not_followed() {
    let context = TestContext::new();
    let outside = context.home().join("servers.json");
    fs::write(&outside, "{}").unwrap();
    symlink(&outside, context.root().join(".mcp.json")).unwrap();
    let output = context.run(["init"]);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!(text(&output.stderr), @r"
    error: `.mcp.json` is a link, or lies behind one; put a file of the project in its place
    nothing was changed
    ");
    assert_eq!(fs::read_to_string(&outside).unwrap(), "{}");
    assert_eq!(all_files(&context.root()).len(), 1, "nothing else was written either");
}

#[test]
fn json_output_lists_the_changed_files() {
    let context = TestContext::new();
    context.write(".mcp.json", r#"{"mcpServers":{"adjutant":{"command":"mine"}}}"#);
    let report: Value = serde_json::from_slice(&context.run(["init", "--json"]).stdout).unwrap();
    assert_eq!(report["dry_run"], false);
    assert_eq!(report["files"][0]["path"], ".mcp.json");
    assert_eq!(report["files"][0]["action"], "keep");
    let note = "has a server `adjutant` that starts `mine`; it was left as it is";
    assert_eq!(report["files"][0]["note"], note);
    let last = report["files"].as_array().unwrap().last().unwrap();
    assert_eq!(*last, json!({"path": "agents/main/system-prompt.md", "action": "create"}));
    let dry: Value =
        serde_json::from_slice(&context.run(["init", "--json", "--dry-run"]).stdout).unwrap();
    assert!(dry["files"].as_array().unwrap().iter().all(|file| file["action"] == "keep"), "{dry}");
}

/// Every file of a project with its content; a symlink counts as its target.
fn all_files(root: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    files
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
