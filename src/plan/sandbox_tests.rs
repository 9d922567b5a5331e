use proptest::prelude::*;
use test_case::test_case;

use super::*;

fn folder(path: &str) -> PathState {
    PathState::Folder { real: path.into() }
}

fn protected(path: &str, state: PathState) -> ProtectedPath {
    let placeholder = Some(Placeholder::File { content: "{}" });
    let access = ProtectedAccess::ReadOnly;
    ProtectedPath { path: path.into(), state, access, reason: "rules".into(), placeholder }
}

fn facts() -> SandboxFacts {
    SandboxFacts {
        agent: "reader".into(),
        root: "/work/p".into(),
        home: "/home/u".into(),
        working_dir: "/work/p".into(),
        system: vec![
            ("/usr".into(), folder("/usr")),
            ("/bin".into(), PathState::Link { target: "usr/bin".into() }),
            ("/lib32".into(), PathState::Missing),
            ("/etc/localtime".into(), PathState::Link { target: "/usr/share/zoneinfo/UTC".into() }),
        ],
        path: ["/home/u/.cargo/bin", "/usr/bin", "/bin", "/work/p/tools"].map(PathBuf::from).into(),
        claude: "/opt/cli/claude.exe".into(),
        adjutant: "/usr/local/bin/adjutant".into(),
        sockets: "/run/user/1/s".into(),
        protected: vec![
            protected("/work/p/agents", folder("/work/p/agents")),
            protected("/work/p/.mcp.json", PathState::Missing),
            protected("/home/u/.claude/settings.json", folder("/home/u/.claude")),
        ],
        data: Some(("/work/p/data".into(), vec!["/work/p/data/set.csv".into()])),
        run_files: Some("/work/p/data/tmp/r".into()),
        transcripts: Some("/work/p/data/transcripts/s".into()),
        ..SandboxFacts::default()
    }
}

fn plan(settings: &SandboxSettings, facts: &SandboxFacts) -> SandboxPlan {
    plan_sandbox(settings, facts).unwrap()
}

/// The mounts at and below a path, in short.
fn below(plan: &SandboxPlan, path: &str) -> Vec<String> {
    let mounts = plan.spec.mounts.iter().filter(|mount| mount.path.starts_with(path));
    let short = |mount: &Mount| {
        let kind = match &mount.kind {
            MountKind::ReadOnly { source } if *source == mount.path => "ro".to_owned(),
            MountKind::Writable { source } if *source == mount.path => "rw".to_owned(),
            MountKind::ReadOnly { source } => format!("ro {}", source.display()),
            MountKind::Writable { source } => format!("rw {}", source.display()),
            MountKind::Private { .. } => "empty".to_owned(),
            MountKind::Text { .. } => "text".to_owned(),
            MountKind::Seal => "seal".to_owned(),
            other => format!("{other:?}"),
        };
        format!("{} {kind}", mount.path.display())
    };
    mounts.map(short).collect()
}

#[test]
fn the_workspace_is_writable_but_for_its_control_files() {
    let plan = plan(&SandboxSettings::workspace(), &facts());
    assert_eq!(
        below(&plan, "/work"),
        [
            "/work/p rw",
            "/work/p/.mcp.json ro",
            "/work/p/agents ro",
            "/work/p/data empty",
            "/work/p/data/set.csv rw",
            "/work/p/data/tmp/r ro",
            "/work/p/data seal",
        ]
    );
    let placeholder = Placeholder::File { content: "{}" };
    assert_eq!(plan.placeholders, [(PathBuf::from("/work/p/.mcp.json"), placeholder)]);
}

#[test]
fn a_read_only_project_needs_no_placeholders() {
    let plan = plan(&SandboxSettings::read_only(), &facts());
    assert_eq!(below(&plan, "/work/p/.mcp.json"), [""; 0]);
    assert_eq!(below(&plan, "/work").first().unwrap(), "/work/p ro");
    assert_eq!(below(&plan, "/work/p/data/set.csv"), ["/work/p/data/set.csv ro"]);
    assert_eq!(plan.placeholders, []);
}

#[test]
fn the_home_is_private_and_what_is_named_in_it_is_mounted_back() {
    let mut facts = facts();
    facts.named.insert("/home/u/.cargo/registry".into(), folder("/home/u/.cargo/registry"));
    let settings =
        SandboxSettings { read: vec!["~/.cargo/registry".into()], ..SandboxSettings::workspace() };
    facts.named.insert("/work/p".into(), folder("/work/p"));
    let plan = plan(&settings, &facts);
    assert_eq!(
        below(&plan, "/home"),
        [
            "/home/u empty",
            "/home/u/.claude Folder { mode: 448 }",
            "/home/u/.claude/projects rw /work/p/data/transcripts/s",
            "/home/u/.cargo/registry ro",
        ]
    );
}

#[test]
fn folders_above_protected_files_cannot_be_renamed() {
    let mut facts = facts();
    let file = PathState::File { real: "/work/p/tools/a/hook.sh".into() };
    facts.protected.push(protected("/work/p/tools/a/hook.sh", file));
    let workspace = plan(&SandboxSettings::workspace(), &facts);
    assert_eq!(
        below(&workspace, "/work/p/tools"),
        ["/work/p/tools rw", "/work/p/tools/a rw", "/work/p/tools/a/hook.sh ro"]
    );
    let read_only = plan(&SandboxSettings::read_only(), &facts);
    assert_eq!(below(&read_only, "/work/p/tools"), ["/work/p/tools/a/hook.sh ro"]);
}

#[test]
fn one_writable_folder_in_a_readable_project() {
    let mut facts = facts();
    facts.named.insert("/work/p/src".into(), folder("/work/p/src"));
    facts.named.insert("/work/p/src/secret".into(), folder("/work/p/src/secret"));
    let settings = SandboxSettings {
        write: vec!["src/".into()],
        hide: vec!["src/secret".into()],
        read: vec![],
        ..SandboxSettings::default()
    };
    let plan = plan(&settings, &facts);
    assert_eq!(
        below(&plan, "/work/p/src"),
        ["/work/p/src rw", "/work/p/src/secret empty", "/work/p/src/secret seal"]
    );
    assert_eq!(plan.placeholders, []);
}

#[test]
fn system_folders_are_as_on_the_host() {
    let plan = plan(&SandboxSettings::workspace(), &facts());
    assert_eq!(below(&plan, "/usr"), ["/usr ro"]);
    assert_eq!(below(&plan, "/bin"), [r#"/bin Link { target: "usr/bin" }"#]);
    assert_eq!(below(&plan, "/lib32"), [""; 0]);
    assert_eq!(below(&plan, "/proc"), ["/proc Proc", "/proc/sys ro"]);
    assert_eq!(below(&plan, "/dev"), ["/dev Devices", "/dev/shm empty", "/dev seal"]);
}

#[test]
fn only_what_exists_inside_stays_on_the_path() {
    let plan = plan(&SandboxSettings::workspace(), &facts());
    let path = plan.spec.variables.iter().find(|variable| variable.name == "PATH").unwrap();
    assert_eq!(path.value, "/usr/bin:/bin:/work/p/tools");
}

#[test]
fn no_login_proxy_or_cloud_account_is_inside() {
    let mut facts = facts();
    let outer = |name: &str, is_inherited| OuterVariable {
        name: name.into(),
        value: "real".into(),
        reason: "test".into(),
        is_inherited,
    };
    facts.environment = [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "ANTHROPIC_CUSTOM_HEADERS",
        "AWS_PROFILE",
        "HTTPS_PROXY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_CLIENT_ID",
        "SSL_CERT_FILE",
        "TMPDIR",
        "HOME",
        "ANTHROPIC_MODEL",
        "TZ",
    ]
    .map(|name| outer(name, true))
    .into();
    facts.environment.extend(["ANTHROPIC_AUTH_TOKEN", "AWS_REGION"].map(|name| outer(name, false)));
    facts.dummy_login = vec![("ANTHROPIC_API_KEY", "dummy")];
    let plan = plan(&SandboxSettings::workspace(), &facts);
    let real: Vec<_> =
        plan.spec.variables.iter().filter(|v| v.value == "real").map(|v| v.name.as_str()).collect();
    assert_eq!(
        real,
        ["ANTHROPIC_MODEL", "AWS_REGION", "TZ"],
        "what the author wrote stays, except the login"
    );
    let key = plan.spec.variables.iter().find(|v| v.name == "ANTHROPIC_API_KEY").unwrap();
    assert_eq!(key.value, "dummy");
}

#[test_case("~" => "is `/home/u`"; "the home")]
#[test_case("/" => "is `/`"; "everything")]
#[test_case("/home" => "is `/home`"; "above the home")]
#[test_case("/etc/x" => "is `/etc/x`"; "settings of the system")]
#[test_case("/run/docker" => "is `/run/docker`"; "sockets")]
#[test_case("/proc" => "is `/proc`"; "processes")]
#[test_case("../../home/u" => "is `/home/u`"; "the home by dots")]
#[test_case("/missing" => "does not e"; "missing")]
#[test_case("/file" => "is a file:"; "a file")]
fn folders_that_would_undo_the_sandbox_are_refused(text: &str) -> String {
    let mut facts = facts();
    let settings = SandboxSettings { write: vec![text.into()], ..SandboxSettings::default() };
    for path in named_paths(&settings, &facts.working_dir, &facts.home) {
        let state = match text {
            "/missing" => PathState::Missing,
            "/file" => PathState::File { real: path.clone() },
            _ => PathState::Folder { real: path.clone() },
        };
        facts.named.insert(path, state);
    }
    let why = plan_sandbox(&settings, &facts).unwrap_err().to_string();
    let at =
        why.find(" is `").or_else(|| why.find(" is a f")).or_else(|| why.find(" does")).unwrap();
    let rest = &why[at + 1..];
    rest.split_once(", ").map_or(&rest[..10], |(short, _)| short).to_owned()
}

#[test]
fn a_link_in_a_named_folder_leads_to_what_is_checked() {
    let mut facts = facts();
    facts.named.insert("/work/p/out".into(), PathState::Link { target: "/home/u".into() });
    let settings = SandboxSettings { write: vec!["out".into()], ..SandboxSettings::default() };
    plan_sandbox(&settings, &facts).unwrap_err();
}

#[test]
fn a_control_file_that_is_a_link_is_refused() {
    let mut facts = facts();
    facts.protected.push(protected("/work/p/.claude", PathState::Link { target: "/x".into() }));
    let why = plan_sandbox(&SandboxSettings::workspace(), &facts).unwrap_err();
    assert!(why.0.contains("`/work/p/.claude` is a symbolic link to `/x`"), "{why}");
}

#[test_case("/home" ; "contains the home")]
#[test_case("/home/u" ; "is the home")]
#[test_case("/usr/src/p" ; "is part of the system")]
fn a_project_in_the_wrong_place_is_refused(root: &str) {
    let facts = SandboxFacts { root: root.into(), working_dir: root.into(), ..facts() };
    plan_sandbox(&SandboxSettings::workspace(), &facts).unwrap_err();
}

proptest! {
    /// Whatever the settings name: control files are never writable, and nothing of the home is visible by accident.
    #[test]
    fn control_files_stay_read_only(
        write in prop::collection::vec("(\\.|src|agents|agents/x|data|\\.\\./q|/opt/z)", 0..4),
        read in prop::collection::vec("(\\.|src|~/x|/opt)", 0..3),
    ) {
        let mut facts = facts();
        let settings = SandboxSettings { write, read, ..SandboxSettings::default() };
        for path in named_paths(&settings, &facts.working_dir, &facts.home) {
            facts.named.insert(path.clone(), PathState::Folder { real: path });
        }
        let Ok(plan) = plan_sandbox(&settings, &facts) else { return Ok(()) };
        for path in ["/work/p/agents/main/agent.md", "/work/p/data/audit.jsonl", "/home/u/.ssh/id"] {
            let mounts = plan.spec.mounts.iter().filter(|mount| Path::new(path).starts_with(&mount.path));
            let last = mounts.rev().find(|mount| mount.kind != MountKind::Seal);
            let is_writable = matches!(last.map(|mount| &mount.kind), Some(MountKind::Writable { .. }));
            prop_assert!(!is_writable, "{path}: {last:?}");
        }
    }
}
