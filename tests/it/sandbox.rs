//! Sandboxes: what a process in one sees and can do, the relay, and the way to the model.

mod agents;
mod model_proxy;
mod real_claude;
mod system_calls;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Once};
use std::time::Duration;

use adjutant::catalog::SandboxSettings;
use adjutant::egress::{ModelLogin, ModelProxy, ModelUpstream};
use adjutant::plan::{ProtectedAccess, ProtectedPath, SandboxFacts, SandboxPlan, plan_sandbox};
use adjutant::process::sandbox::{PathState, Placeholder, find_bwrap, probe, sandboxed};
use adjutant::process::{
    ProcessEnd, ProcessHandle, ProcessSpec, StopMode, SymlinkPolicy, spawn_process,
};
use adjutant::scripted_model::ScriptedModel;
use adjutant::util::RunId;
use tokio::io::AsyncReadExt;

use crate::support::TestContext;
use crate::support::skip::or_skip;

/// bubblewrap, installed with `apt-get` where that is possible. `None`, with a message, if a sandbox cannot be made here.
pub fn bwrap() -> Option<PathBuf> {
    static INSTALLED: Once = Once::new();
    let find = || find_bwrap(None, std::env::var_os("PATH").as_deref());
    if find().is_err() && nix::unistd::Uid::effective().is_root() {
        INSTALLED.call_once(install_bubblewrap);
    }
    or_skip(find().map_err(|refusal| refusal.to_string()))
}

/// Errors are ignored: the caller sees whether the program is there.
fn install_bubblewrap() {
    for arguments in [&["update"][..], &["install", "-y", "--no-install-recommends", "bubblewrap"]]
    {
        let mut apt = Command::new("apt-get");
        let _ = apt
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output();
    }
}

/// A project with a sandbox and the proxy to a scripted model.
pub struct SandboxContext {
    pub context: TestContext,
    pub model: ScriptedModel,
    pub bwrap: PathBuf,
    pub proxy: ModelProxy,
    pub facts: SandboxFacts,
}

/// The key that only the proxy has.
pub const REAL_KEY: &str = "sk-ant-the-real-key-7d1f6a";

impl SandboxContext {
    /// Must be called in a runtime. `claude` is the program that can be run as `/opt/adjutant/claude`.
    pub fn new(claude: &Path) -> Option<Self> {
        let bwrap = bwrap()?;
        let context = TestContext::new();
        let model = ScriptedModel::start().unwrap();
        let base_url = model.base_url();
        let lookup = |name: &str| match name {
            "ANTHROPIC_BASE_URL" => Some(format!("{base_url}/")),
            "ANTHROPIC_API_KEY" => Some(REAL_KEY.to_owned()),
            "ANTHROPIC_CUSTOM_HEADERS" => Some("X-Team: secret-team".to_owned()),
            _ => None,
        };
        let login = ModelLogin::find(lookup, &context.home()).unwrap();
        let dummy_login = login.dummies();
        let upstream = Arc::new(ModelUpstream::from_environment(lookup, login).unwrap());
        let sockets = context.home().join("sockets");
        fs::create_dir(&sockets).unwrap();
        let proxy = ModelProxy::start(&sockets, upstream).unwrap();
        proxy.set_bound(true);
        context.write("agents/reader/agent.md", "rules").write("data/audit.jsonl", "log");
        let root = context.root();
        let transcripts = context.home().join("transcripts");
        fs::create_dir(&transcripts).unwrap();
        let control = |name: &str, placeholder| {
            let path = root.join(name);
            ProtectedPath {
                state: PathState::read(&path).unwrap(),
                path,
                access: ProtectedAccess::ReadOnly,
                reason: "a control file".to_owned(),
                placeholder,
            }
        };
        let facts = SandboxFacts {
            agent: "reader".into(),
            home: context.home().join("u"),
            working_dir: root.clone(),
            system: PathState::of_system().unwrap(),
            path: std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect(),
            claude: claude.canonicalize().unwrap(),
            adjutant: PathBuf::from(env!("CARGO_BIN_EXE_adjutant")).canonicalize().unwrap(),
            protected: vec![
                control("agents", None),
                control(".mcp.json", Some(Placeholder::File { content: "{}" })),
            ],
            data: Some((root.join("data"), vec![])),
            transcripts: Some(transcripts),
            sockets,
            dummy_login,
            root,
            ..SandboxFacts::default()
        };
        Some(Self { context, model, bwrap, proxy, facts })
    }

    /// Plans a workspace and makes its placeholders.
    pub fn plan(&self) -> SandboxPlan {
        let plan = plan_sandbox(&SandboxSettings::workspace(), &self.facts).unwrap();
        for (path, placeholder) in &plan.placeholders {
            match placeholder {
                Placeholder::File { content } => fs::write(path, content).unwrap(),
                Placeholder::Folder => fs::create_dir_all(path).unwrap(),
            }
        }
        plan
    }

    pub async fn spawn(&self, program: &str, arguments: &[&str]) -> ProcessHandle {
        let process = ProcessSpec {
            label: "reader".into(),
            run: RunId::new(),
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: Vec::new(),
            working_dir: "/".into(),
            symlinks: SymlinkPolicy::Follow,
        };
        let process = sandboxed(process, &self.bwrap, &self.plan().spec).unwrap();
        spawn_process(process).await.unwrap()
    }

    /// Runs a script of bash inside and returns its output and its end.
    pub async fn shell(&self, script: &str) -> (String, ProcessEnd) {
        let mut process = self.spawn("/bin/bash", &["-c", script]).await;
        process.stdin = None;
        let mut output = String::new();
        let mut stdout = process.stdout.take().unwrap();
        let reading = stdout.read_to_string(&mut output);
        tokio::time::timeout(Duration::from_mins(1), reading).await.unwrap().unwrap();
        let end = process.wait().await;
        output.push_str(&process.stderr_tail());
        (output, end)
    }
}

fn shell_context() -> Option<SandboxContext> {
    SandboxContext::new(Path::new("/bin/bash"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_full_set_of_options_can_be_probed() {
    let Some(context) = shell_context() else { return };
    let spec = context.plan().spec;
    probe(&context.bwrap, &spec, Path::new("/bin/bash"), &["-c", "exit 0"]).await.unwrap();
    let mut broken = spec.clone();
    broken.mounts[0].kind =
        adjutant::process::sandbox::MountKind::ReadOnly { source: "/nowhere".into() };
    let refusal = probe(&context.bwrap, &broken, Path::new("/bin/bash"), &[]).await.unwrap_err();
    assert_eq!(refusal.reason, "bwrap: Can't find source path /nowhere: No such file or directory");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_workspace_is_writable_and_its_control_files_are_not() {
    let Some(context) = shell_context() else { return };
    let root = context.context.root();
    let script = "echo new > made.txt; id -un; pwd
        for file in agents/reader/agent.md .mcp.json data/x /usr/x /etc/passwd /x; do
            (echo x > $file) 2>&1 | grep -o 'Read-only file system'; done
        mv agents x 2>&1 | grep -o busy; rm -rf agents 2>&1 | grep -c Read-only
        ls -A data $HOME; ls /home /root 2>&1 | grep -c .; cat agents/reader/agent.md";
    let (output, end) = context.shell(script).await;
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines[..2], ["agent", root.to_str().unwrap()], "{output}");
    assert_eq!(output.matches("Read-only file system").count(), 6, "{output}");
    assert!(output.contains("busy") && output.ends_with("rules"), "{output}");
    assert!(!output.contains("audit.jsonl"), "{output}");
    assert_eq!(end, ProcessEnd::Exited(0));
    assert_eq!(fs::read_to_string(root.join("made.txt")).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(root.join("agents/reader/agent.md")).unwrap(), "rules");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_relay_cannot_be_read_and_the_kernel_cannot_be_configured() {
    let Some(context) = shell_context() else { return };
    let script = "cat /proc/1/environ /proc/1/mem; cat /proc/1/maps
        tr '\\0' ' ' < /proc/1/cmdline; echo; (echo x > /proc/sys/kernel/core_pattern)
        ulimit -Hc; kill -9 1; grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status
        unshare -Ur true; env";
    let (output, _) = context.shell(script).await;
    assert_eq!(output.matches("Permission denied").count(), 3, "{output}");
    assert!(
        output.contains("__relay --agent=reader 8080=/run/adjutant/model.sock -- /bin/bash"),
        "{output}"
    );
    assert!(output.contains("core_pattern: Read-only file system"), "{output}");
    assert!(
        output.contains("CapEff:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"),
        "{output}"
    );
    assert!(output.contains("unshare failed: Operation not permitted"), "{output}");
    assert!(output.contains("ADJUTANT_RUN=") && !output.contains(REAL_KEY), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_status_comes_from_the_program_and_orphans_are_reaped() {
    let Some(context) = shell_context() else { return };
    assert_eq!(context.shell("exit 7").await.1, ProcessEnd::Exited(7));
    assert_eq!(context.shell("kill -9 $$").await.1, ProcessEnd::Exited(137));
    let (output, end) =
        context.shell("(setsid sleep 0.1 &); sleep 0.4; ps -o stat= | grep -c Z; exit 3").await;
    assert_eq!((output.trim(), end), ("0", ProcessEnd::Exited(3)));
    let missing = context.spawn("/bin/nothing", &[]).await.wait().await;
    assert_eq!(missing, ProcessEnd::Exited(127));
}

/// Descendants of a sandbox that are left on the host.
fn processes_with(marker: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let command = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    let named = |line: &Vec<u8>| String::from_utf8_lossy(line).contains(marker);
    entries.map(command).filter(named).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kill_ends_the_whole_tree() {
    let Some(context) = shell_context() else { return };
    let modes = [StopMode::Kill, StopMode::Graceful { grace: Duration::from_millis(300) }];
    for (number, mode) in modes.into_iter().enumerate() {
        let marker = format!("31415{number}{}", std::process::id());
        let script = format!(
            "(setsid nohup sleep {marker} &); trap '' TERM; echo up; sleep {marker}; sleep {marker}"
        );
        let mut process = context.spawn("/bin/bash", &["-c", &script]).await;
        let mut line = [0; 3];
        process.stdout.as_mut().unwrap().read_exact(&mut line).await.unwrap();
        while processes_with(&format!("sleep\0{marker}")) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        process.stop(mode).await;
        assert_eq!(processes_with(&marker), 0, "{mode:?}");
    }
}

/// Detached from everything but the relay, and without its environment.
#[tokio::test(flavor = "multi_thread")]
async fn commands_of_adjutant_are_refused_below_the_relay() {
    let Some(context) = shell_context() else { return };
    let script = "(setsid env -i PATH=/usr/bin HOME=/tmp sh -c 'sleep 0.2; /opt/adjutant/adjutant run reader x > out.txt 2>&1; echo done >> out.txt' &)
        for i in $(seq 100); do grep -q done out.txt 2>/dev/null && break; sleep 0.1; done; cat out.txt";
    let (output, _) = context.shell(script).await;
    assert!(output.contains("reader") && output.contains("done"), "{output}");
    assert!(output.to_lowercase().contains("agent"), "{output}");
}
