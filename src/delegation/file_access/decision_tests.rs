use std::os::unix::fs::symlink;

use serde_json::json;
use test_case::test_case;

use super::super::control_files::UserDirs;
use super::*;
use crate::catalog::Snapshot;
use crate::config::{GatewayFile, GatewayFiles, MCP_CONFIG_NAME, Settings};

/// A project beside a home directory, with an agent `dev` that has no rules of its own.
struct Project {
    dir: tempfile::TempDir,
    agent: Agent,
    files: ControlFiles,
}

impl Project {
    fn new() -> Self {
        Self::with("")
    }

    fn with(settings: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("project");
        let text = format!("---\ndescription: d\n{settings}\n---\nWork.\n");
        for (path, content) in [
            ("project/agents/dev/agent.md", text.as_str()),
            ("project/agents/dev/memory.md", "m"),
            ("project/.mcp.json", "{}"),
            ("project/.claude/settings.json", "{}"),
            ("project/.git/config", ""),
            ("project/.git/HEAD", "x"),
            ("project/extensions/shop/extension.json", "{}"),
            ("project/extensions/shop/server.py", ""),
            ("project/extensions/notes/todo.txt", ""),
            ("project/data/sessions.json", "s"),
            ("project/data/audit.jsonl", "a"),
            ("project/data/audit.000000000042.jsonl", "a"),
            ("project/data/results/0192.txt", "r"),
            ("project/data/metrics.csv", "u"),
            ("project/src/main.rs", "u"),
            ("home/.config/adjutant/.mcp.json", "{}"),
            ("home/rules.json", "{}"),
            ("home/notes", "u"),
        ] {
            let path = top.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let settings = Settings { root: root.clone(), claude: None };
        let snapshot = Snapshot::load(&settings);
        let agent = Agent::clone(snapshot.get("dev").unwrap().agent().unwrap());
        let file =
            |path: PathBuf| GatewayFile { path, found: true, named_by: None, candidates: vec![] };
        let gateway = GatewayFiles {
            mcp_config: file(root.join(MCP_CONFIG_NAME)),
            rules: file(top.join("home/rules.json")),
            audit_log: root.join("data/audit.jsonl"),
            root: root.clone(),
        };
        let user =
            UserDirs { config: vec![top.join("home/.config/adjutant")], ..UserDirs::default() };
        let files = ControlFiles::new(&root, &gateway, &user);
        Self { dir, agent, files }
    }

    fn root(&self) -> PathBuf {
        self.files.root().to_path_buf()
    }

    fn decide(&self, tool: &str, input: &Value, cwd: Option<&Path>) -> Option<String> {
        let request = FileRequest::new(tool, input, cwd.and_then(Path::to_str)).unwrap();
        self.files.denial(&self.agent, &request)
    }

    /// Returns `true` if `tool` may be used on a path relative to the root.
    fn may(&self, tool: &str, path: &str) -> bool {
        let key = if tool == "NotebookEdit" { "notebook_path" } else { "file_path" };
        let root = self.root();
        self.decide(tool, &json!({ key: path }), Some(&root)).is_none()
    }

    fn may_search(&self, tool: &str, input: &Value) -> bool {
        let root = self.root();
        self.decide(tool, input, Some(&root)).is_none()
    }
}

const WRITERS: [&str; 4] = ["Write", "Edit", "MultiEdit", "NotebookEdit"];

#[test_case("agents/dev/agent.md")]
#[test_case("agents/dev/memory.md"; "memory")]
#[test_case("agents/new/agent.md"; "new agent")]
#[test_case("agents/defaults.yaml")]
#[test_case(".mcp.json")]
#[test_case(".mcp-gateway-rules.json"; "rules that are not there yet")]
#[test_case("config/.mcp-gateway-rules.json")]
#[test_case("../home/rules.json"; "rules in force outside")]
#[test_case("../home/.config/adjutant/.mcp-gateway-rules.json"; "configuration of the user")]
#[test_case(".claude/settings.json")]
#[test_case(".claude/agents/main.md"; "native agent")]
#[test_case(".claude")]
#[test_case("data/sessions.json")]
#[test_case("data/tokens.json"; "not there yet")]
#[test_case("data/audit.jsonl")]
#[test_case("data/audit.jsonl.head")]
#[test_case("data/audit.000000000042.jsonl")]
#[test_case("data/events.000000000007.jsonl")]
#[test_case("data/costs-3.journal")]
#[test_case("data/results/0192.txt")]
#[test_case("data/leases/x/lock")]
#[test_case("extensions/shop/extension.json")]
#[test_case("extensions/shop/server.py"; "file of an extension")]
#[test_case("extensions/notes/extension.json"; "new manifest")]
#[test_case("extensions/other/gemini-extension.json"; "new extension")]
#[test_case(".git/hooks/pre-commit")]
#[test_case(".git/config")]
#[test_case(".git/commondir"; "link to another configuration")]
#[test_case(".git/worktrees/w/config.worktree")]
#[test_case(".git/modules/lib/config"; "submodule")]
#[test_case(".git/modules/deep/lib/hooks/post-checkout"; "hook of a submodule")]
#[test_case("src/lib/.git"; "link of a submodule")]
#[test_case("src/lib/.git/config"; "nested repository")]
#[test_case("src/lib/.Git/hooks/pre-commit"; "hook of a nested repository")]
#[test_case("src/lib/.git/modules/x/config"; "submodule of a nested repository")]
#[test_case("src/link"; "link into a nested repository")]
#[test_case("../home/other/.git/config"; "repository elsewhere")]
fn control_files_cannot_be_changed(path: &str) {
    let project = Project::new();
    symlink("lib/.git/hooks/pre-commit", project.root().join("src/link")).unwrap();
    for tool in WRITERS {
        assert!(!project.may(tool, path), "{tool}");
    }
    let permitted = Project::with("may_change_project_config: true");
    for tool in WRITERS {
        assert!(permitted.may(tool, path), "{tool} with the permission");
    }
}

#[test_case("src/main.rs")]
#[test_case("src/agents/x/agent.md"; "agents elsewhere")]
#[test_case("data/metrics.csv")]
#[test_case("data/sessions.csv")]
#[test_case("data/events.2026.jsonl"; "number of another length")]
#[test_case("data/deep/sessions.json")]
#[test_case("extensions/notes/todo.txt")]
#[test_case("extensions/new/readme.md")]
#[test_case("extensions/extension.json"; "no extension without a directory")]
#[test_case("extensions/notes/deep/extension.json")]
#[test_case(".git/info/exclude")]
#[test_case("src/lib/.git/info/exclude"; "nested repository")]
#[test_case("src/.github/hooks/config"; "no repository")]
#[test_case("src/hooks/pre-commit"; "hooks of another tool")]
#[test_case(".gitmodules")]
#[test_case("agents.md")]
#[test_case("sessions.json")]
#[test_case("../home/notes")]
fn other_files_may_be_changed(path: &str) {
    let project = Project::new();
    for tool in WRITERS.into_iter().chain(["Read"]) {
        assert!(project.may(tool, path), "{tool}");
    }
}

#[test_case("./agents/../agents//dev/agent.md"; "dots")]
#[test_case("src/../.mcp.json"; "parent")]
#[test_case("none/../.mcp.json"; "parent of nothing")]
#[test_case("../project/.mcp.json"; "from above")]
#[test_case(" .mcp.json"; "space before")]
#[test_case("\u{feff}.mcp.json\u{a0}"; "spaces of JavaScript")]
#[test_case(".mcp.json/"; "slash behind")]
#[test_case(".MCP.json"; "case of a file")]
#[test_case("Agents/dev/agent.md"; "case of a directory")]
#[test_case("agents./dev/agent.md"; "dot behind")]
#[test_case("file"; "link to a file")]
#[test_case("dir/dev/agent.md"; "link to a directory")]
#[test_case("dir/../.mcp.json"; "parent after a link")]
#[test_case("dangling"; "link to what is not there yet")]
#[test_case("chain"; "link to a link")]
#[test_case("hard"; "hard link to a file")]
#[test_case("hard-in-dir"; "hard link into a directory")]
#[test_case("hard-data"; "hard link to a rotated log")]
fn alternative_spellings_of_a_control_file_are_denied(path: &str) {
    let project = Project::new();
    let root = project.root();
    symlink(".mcp.json", root.join("file")).unwrap();
    symlink(root.join("agents"), root.join("dir")).unwrap();
    symlink("data/tokens.json", root.join("dangling")).unwrap();
    symlink("file", root.join("chain")).unwrap();
    fs::hard_link(root.join(".git/config"), root.join("hard")).unwrap();
    fs::hard_link(root.join("agents/dev/memory.md"), root.join("hard-in-dir")).unwrap();
    let log = root.join("data/audit.000000000042.jsonl");
    fs::hard_link(log, root.join("hard-data")).unwrap();
    assert!(!project.may("Write", path));
    let absolute = format!("{}/{path}", root.display());
    let decision = project.decide("Write", &json!({ "file_path": absolute }), None);
    assert!(path.starts_with([' ', '\u{feff}']) || decision.is_some(), "absolute");
}

#[test]
fn links_to_other_files_may_be_changed() {
    let project = Project::new();
    let root = project.root();
    symlink("src/main.rs", root.join("link")).unwrap();
    fs::hard_link(root.join("src/main.rs"), root.join("hard")).unwrap();
    for (tool, path) in [("Write", "link"), ("Write", "hard"), ("Read", "link"), ("Read", "hard")] {
        assert!(project.may(tool, path), "{tool} {path}");
    }
}

#[test]
fn a_tilde_is_expanded_to_the_home_directory() {
    let project = Project::new();
    let top = project.dir.path().canonicalize().unwrap();
    let mut agent = project.agent.clone();
    let home = top.join("home").display().to_string();
    agent.env.insert("HOME".to_owned(), crate::catalog::Template(home));
    let input = json!({ "file_path": "~/rules.json" });
    let request = FileRequest::new("Write", &input, None).unwrap();
    assert_ne!(project.files.denial(&agent, &request), None);
    let input = json!({ "file_path": "~/notes" });
    let request = FileRequest::new("Write", &input, None).unwrap();
    assert_eq!(project.files.denial(&agent, &request), None);
}

#[test]
fn targets_of_links_in_configuration_directories_are_control_files() {
    let project = Project::new();
    let (root, top) = (project.root(), project.dir.path().canonicalize().unwrap());
    for dir in ["shared/agent", "bundle", "plain"] {
        fs::create_dir_all(top.join(dir)).unwrap();
    }
    fs::write(top.join("shared/agent/agent.md"), "x").unwrap();
    fs::write(top.join("settings.json"), "{}").unwrap();
    fs::write(top.join("bundle/extension.json"), "{}").unwrap();
    symlink(top.join("shared/agent"), root.join("agents/shared")).unwrap();
    symlink(top.join("settings.json"), root.join(".claude/settings.local.json")).unwrap();
    symlink(top.join("bundle"), root.join("extensions/bundle")).unwrap();
    symlink(top.join("plain"), root.join("extensions/plain")).unwrap();
    for path in
        ["shared/agent/agent.md", "settings.json", "bundle/server.py", "plain/extension.json"]
    {
        assert!(!project.may("Write", &format!("../{path}")), "{path}");
    }
    assert!(project.may("Write", "../plain/todo"));
    assert!(project.may("Write", "../shared/other"));
}

#[test_case("repository/.git")]
#[test_case("store"; "with another name")]
fn git_hooks_of_a_linked_worktree_are_control_files(repository: &str) {
    let project = Project::new();
    let (root, top) = (project.root(), project.dir.path().canonicalize().unwrap());
    fs::remove_dir_all(root.join(".git")).unwrap();
    let linked = top.join(repository).join("worktrees/w");
    fs::create_dir_all(&linked).unwrap();
    fs::write(root.join(".git"), format!("gitdir: {}\n", linked.display())).unwrap();
    fs::write(linked.join("commondir"), "../..\n").unwrap();
    let gateway = GatewayFiles::locate(&Settings { root: root.clone(), claude: None });
    let files = ControlFiles::new(&root, &gateway, &UserDirs::default());
    let project = Project { files, ..project };
    assert!(!project.may("Write", ".git"));
    for path in ["hooks/pre-push", "config", "modules/lib/config", "modules/lib/hooks/pre-push"] {
        assert!(!project.may("Write", &format!("../{repository}/{path}")), "{path}");
    }
    assert!(project.may("Write", &format!("../{repository}/info/exclude")));
    assert!(project.may("Write", "../repository/README.md"));
}

#[test_case(&json!({}), "`file_path` is missing")]
#[test_case(&json!({ "file_path": "" }), "`file_path` is missing"; "empty")]
#[test_case(&json!({ "file_path": 7 }), "`file_path` is no text"; "number")]
#[test_case(&json!({ "file_path": ["x"] }), "`file_path` is no text"; "list")]
#[test_case(&json!({ "path": "x" }), "`file_path` is missing"; "other key")]
#[test_case(&json!({ "file_path": "x" }), "it is relative, and the working directory is unknown"; "relative")]
#[test_case(&json!({ "file_path": "/a\0b" }), "it has a NUL character"; "nul")]
#[test_case(&json!({ "file_path": "/proc/self/cwd/x" }), "it leads over a link in /proc"; "proc")]
fn what_cannot_be_determined_is_denied(input: &Value, why: &str) {
    let project = Project::new();
    for tool in ["Write", "Read"] {
        let reason = format!(
            "agent `dev` may not use `{tool}` here: the file it means cannot be determined: {why}"
        );
        assert_eq!(project.decide(tool, input, None), Some(reason));
    }
}

#[test]
fn too_many_directory_entries_are_denied() {
    let project = Project::new();
    let root = project.root();
    let crowd = root.join(".claude/crowd");
    fs::create_dir_all(&crowd).unwrap();
    assert!(project.may("Write", "src/main.rs"));
    for number in 0..=20_000 {
        fs::File::create(crowd.join(number.to_string())).unwrap();
    }
    assert!(!project.may("Write", "src/main.rs"));
}

#[test]
fn files_of_adjutant_cannot_be_read_and_others_can() {
    let project = Project::new();
    symlink("../data/sessions.json", project.root().join("src/link")).unwrap();
    fs::hard_link(project.root().join("data/results/0192.txt"), project.root().join("hard"))
        .unwrap();
    for path in [
        "data/sessions.json",
        "data/tokens.json",
        "data/results/0192.txt",
        "data/audit.000000000042.jsonl",
        "data/.tmp-x1",
        "src/link",
        "hard",
    ] {
        assert!(!project.may("Read", path), "{path}");
    }
    for path in ["agents/dev/memory.md", ".mcp.json", "data/metrics.csv", ".claude/settings.json"] {
        assert!(project.may("Read", path), "{path}");
    }
    let permitted = Project::with("may_change_project_config: true");
    assert!(permitted.may("Read", "data/sessions.json"), "with the permission");
}

#[test]
fn a_search_is_allowed_only_where_claude_applies_the_deny_rules() {
    let project = Project::new();
    let (root, top) = (project.root(), project.dir.path().canonicalize().unwrap());
    symlink("data", root.join("link")).unwrap();
    symlink(&root, top.join("alias")).unwrap();
    let allowed = [
        ("Grep", json!({ "pattern": "x" })),
        ("Grep", json!({ "pattern": "x", "path": root })),
        ("Grep", json!({ "pattern": "x", "path": "." })),
        ("Grep", json!({ "pattern": "x", "path": "data", "glob": "*.csv" })),
        ("Grep", json!({ "pattern": "x", "path": "src" })),
        ("Grep", json!({ "pattern": "x", "path": top.join("home") })),
        ("Glob", json!({ "pattern": "**/*.rs" })),
        ("Glob", json!({ "pattern": "data/*" })),
        ("Glob", json!({ "pattern": "*.rs", "path": "src" })),
        ("Glob", json!({ "pattern": root.join("src/**/*.rs") })),
        ("Glob", json!({ "pattern": root.join("*.rs") })),
    ];
    for (tool, input) in allowed {
        assert!(project.may_search(tool, &input), "{tool} {input}");
    }
    let denied = [
        ("Grep", json!({ "pattern": "x", "path": ".." })),
        ("Grep", json!({ "pattern": "x", "path": "/" })),
        ("Grep", json!({ "pattern": "x", "path": "link" })),
        ("Grep", json!({ "pattern": "x", "path": top.join("alias") })),
        ("Grep", json!({ "pattern": "x", "path": "data/results" })),
        ("Grep", json!({ "pattern": "x", "path": "data/audit.jsonl" })),
        ("Grep", json!({ "pattern": "x", "path": 7 })),
        ("Glob", json!({ "path": "src" })),
        ("Glob", json!({ "pattern": "*", "path": "data" })),
        ("Glob", json!({ "pattern": "../project/data/*" })),
        ("Glob", json!({ "pattern": "src/../data/*" })),
        ("Glob", json!({ "pattern": root.join("data/*") })),
        ("Glob", json!({ "pattern": "data/results/*" })),
        ("Glob", json!({ "pattern": "data/sessions.json" })),
        ("Glob", json!({ "pattern": "/**" })),
        ("LS", json!({ "path": root })),
    ];
    for (tool, input) in denied {
        assert!(!project.may_search(tool, &input), "{tool} {input}");
    }
}

/// Claude Code's globs are relative to its working directory: below it no path may have special
/// characters.
#[test]
fn a_search_above_a_path_with_wildcards_is_denied() {
    let project = Project::new();
    let top = project.dir.path().canonicalize().unwrap();
    let odd = top.join("a[b]");
    fs::rename(project.root(), &odd).unwrap();
    let gateway = GatewayFiles::locate(&Settings { root: odd.clone(), claude: None });
    let files = ControlFiles::new(&odd, &gateway, &UserDirs::default());
    let project = Project { files, ..project };
    let search = json!({ "pattern": "x" });
    assert_ne!(project.decide("Grep", &search, Some(&top)), None);
    assert_eq!(project.decide("Grep", &search, Some(&odd)), None);
}

/// The `permissions.deny` rules name the paths that the files had when Adjutant started.
#[test]
fn a_search_is_denied_after_an_unreadable_directory_was_moved() {
    let project = Project::new();
    let root = project.root();
    let search = json!({ "pattern": "x" });
    assert!(project.may_search("Grep", &search));
    fs::rename(root.join("data/results"), root.join("moved")).unwrap();
    symlink("../moved", root.join("data/results")).unwrap();
    assert!(!project.may_search("Grep", &search));
    assert!(!project.may("Read", "moved/0192.txt"));
}

#[test]
fn a_denial_names_the_file_and_the_setting_that_permits_it() {
    let project = Project::new();
    let root = project.root();
    symlink("../extensions/shop", root.join("src/shop")).unwrap();
    let reason = |tool: &str, input: Value| match project.decide(tool, &input, Some(&root)) {
        Some(reason) => reason,
        None => panic!("it is allowed"),
    };
    assert_eq!(
        reason("Write", json!({ "file_path": "src/shop/server.py" })),
        "agent `dev` may not change `src/shop/server.py`: it is a control file (`extensions/shop/`: an extension); \
         `may_change_project_config: true` in its agent.md permits this"
    );
    assert_eq!(
        reason("Read", json!({ "file_path": "data/sessions.json" })),
        "agent `dev` may not read `data/sessions.json`: the file belongs to Adjutant (`data/sessions.json`: sessions)"
    );
    assert_eq!(
        reason("Grep", json!({ "pattern": "x", "path": "/" })),
        "agent `dev` may not search `/` with this call: it holds files of Adjutant that `claude` would not leave out; \
         search the working directory without `path`, or directories that hold none of them"
    );
}
