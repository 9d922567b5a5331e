//! Sandbox of an agent's processes: what is on the disk, the plan, and what has to live as long as a process.
//!
//! Whatever cannot be determined is a failure: an agent with a sandbox is never started without it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io};

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::interval;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::file_access::{ControlFile, ControlFileKind, ControlFiles};
use super::launch::SandboxPart;
use super::process_spec::{resolve_environment, resolve_template, working_dir};
use super::processes::claude_config_dir;
use crate::catalog::{Agent, SandboxSettings, Snapshot, public_servers};
use crate::config::{GatewayFiles, PLACEHOLDER_TEXT, Settings, env_vars};
use crate::egress::{ModelLogin, ModelProxy, ModelUpstream};
use crate::outcome::{Code, Failure};
use crate::plan::{
    CLAUDE_INSIDE, LaunchPlan, OuterVariable, ProtectedAccess, ProtectedPath, SandboxFacts,
    SandboxPlan, SessionStart, VariableSource, named_paths, plan_sandbox,
};
use crate::process::sandbox::{
    Mount, MountKind, PathState, Placeholder, SandboxRefusal, SandboxSpec, SandboxVariable,
    find_bwrap, sandboxed,
};
use crate::process::{ProcessEnd, ProcessSpec, supervisor_program};
use crate::runs::{PlaceholderLease, Placeholders, RunDir};
use crate::sessions::{adopt_transcript, transcripts_dir};
use crate::store::{create_private_dir, normalize, read_bounded, real_path, remove_empty_dir};
use crate::util::{Pattern, RunId};

/// Interval at which protected paths are compared with what was mounted.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
const MAX_FILE_BYTES: u64 = 8 << 20;
/// Folder of the sockets, below that of the run's files.
const SOCKETS_DIR: &str = "sockets";
/// Home folders that a private home would make unusable.
const SYSTEM_HOMES: [&str; 8] =
    ["/proc", "/sys", "/dev", "/run", "/usr", "/etc", "/bin", "/opt/adjutant"];

/// The sandbox of an agent, as it would be for a process that is started now.
#[derive(Debug)]
pub(crate) struct AgentSandbox {
    settings: SandboxSettings,
    /// With symbolic paths in the place of those of one process.
    facts: SandboxFacts,
    bwrap: PathBuf,
    login: ModelLogin,
    environment: BTreeMap<String, String>,
    data_dir: PathBuf,
    placeholders: Placeholders,
}

impl AgentSandbox {
    /// Reads everything that the plan depends on. `None` for an agent without a sandbox.
    pub(crate) fn read(
        agent: &Agent,
        settings: &Settings,
        control_files: &ControlFiles,
        snapshot: &Snapshot,
        launch: &LaunchPlan,
    ) -> Result<Option<Self>, Failure> {
        let Some(wanted) = &agent.sandbox else { return Ok(None) };
        let environment: BTreeMap<String, String> = resolve_environment(agent, launch)?
            .into_iter()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let lookup = |name: &str| environment.get(name).cloned();
        let config_dir = lookup("CLAUDE_CONFIG_DIR").map_or_else(claude_config_dir, PathBuf::from);
        let login = ModelLogin::find(lookup, &config_dir).map_err(|why| {
            unavailable(agent, &why, "set a login that a proxy can use; see docs/how-to/sandbox.md")
        })?;
        let named = env::var_os(env_vars::ADJUTANT_BWRAP).filter(|path| !path.is_empty());
        let bwrap = find_bwrap(named.as_deref().map(Path::new), env::var_os("PATH").as_deref())
            .map_err(|refusal| unavailable(agent, &refusal.reason, &refusal.advice))?;
        let placeholders = Placeholders::at(&settings.data_dir());
        let working_dir = working_dir(agent, settings)?;
        let reader = FactsReader { agent, settings, control_files, snapshot, launch, wanted };
        let facts = reader
            .read(&placeholders, &bwrap, &working_dir, &environment, &config_dir)
            .map_err(|why| match why {
                Unreadable::Failed(failure) => failure,
                Unreadable::Refused(why) => unavailable(agent, &why, LOOK_HELP),
            })?;
        let facts = SandboxFacts { dummy_login: login.dummies(), ..facts };
        let data_dir = settings.data_dir();
        let wanted = wanted.clone();
        let sandbox =
            Self { settings: wanted, facts, bwrap, login, environment, data_dir, placeholders };
        // What cannot be planned is refused before anything is created.
        sandbox.plan(agent)?;
        Ok(Some(sandbox))
    }

    /// Plans the sandbox with symbolic paths in the place of those of one process.
    pub(crate) fn plan(&self, agent: &Agent) -> Result<SandboxPlan, Failure> {
        plan_with(agent, &self.settings, &self.facts)
    }

    /// Returns every mount and variable for people, with symbolic paths for those of one process.
    pub(crate) fn describe(&self, agent: &Agent) -> Result<Vec<SandboxPart>, Failure> {
        let spec = self.plan(agent)?.spec;
        let part = |kind, text, reason| SandboxPart { kind, text, reason };
        let mounts = spec.mounts.iter().map(|m| part("mount", describe_mount(m), m.reason.clone()));
        let variables = spec.variables.into_iter();
        let variables = variables.map(|v| part("variable inside", v.name, v.reason));
        Ok(mounts.chain(variables).collect())
    }

    /// Creates what has to exist outside before the process is started. Needs a Tokio runtime.
    pub(crate) fn open(
        &self,
        agent: &Agent,
        session: &SessionStart,
        (id, run_dir): (RunId, &RunDir),
        open: &TaskTracker,
    ) -> Result<ProcessSandbox, Failure> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            unavailable(
                agent,
                &format!("{what}: {error}"),
                "look at the free space and the rights of `data/`",
            )
        };
        let sockets = run_dir.path().join(SOCKETS_DIR);
        create_private_dir(&sockets).map_err(|error| failed("no folder for its socket", &error))?;
        let transcripts = match session {
            SessionStart::Ephemeral(_) => None,
            SessionStart::Create(id) | SessionStart::Resume(id) => {
                let kept = self.transcripts(id);
                Some(kept.map_err(|error| failed("no folder for its transcripts", &error))?)
            }
        };
        let facts = SandboxFacts {
            run_files: Some(run_dir.path().to_path_buf()),
            sockets: sockets.clone(),
            transcripts: transcripts.clone(),
            ..self.facts.clone()
        };
        let plan = plan_with(agent, &self.settings, &facts)?;
        let placeholders = self.placeholders.acquire(id.to_string(), &plan.placeholders);
        let placeholders =
            placeholders.map_err(|error| failed("a placeholder cannot be made", &error))?;
        let lookup = |name: &str| self.environment.get(name).cloned();
        let upstream = ModelUpstream::from_environment(lookup, self.login.clone())
            .map_err(|why| unavailable(agent, &why, "mend the variable"))?;
        let proxy = ModelProxy::start(&sockets, Arc::new(upstream))
            .map_err(|error| failed("its socket cannot be made", &error))?;
        let replaced = ReplacementWatch::start(plan.watched)
            .map_err(|error| failed("a protected file cannot be watched", &error))?;
        let held = HeldBySandbox {
            proxy,
            replaced,
            transcripts,
            _placeholders: placeholders,
            _open: open.token(),
        };
        Ok(ProcessSandbox {
            bwrap: self.bwrap.clone(),
            spec: plan.spec,
            held: Some(held),
            ended: None,
        })
    }

    /// Returns the folder with the transcripts of a session; copies one that was begun without a sandbox.
    fn transcripts(&self, session_id: &str) -> io::Result<PathBuf> {
        let id = session_id.parse().map_err(io::Error::other)?;
        let dir = transcripts_dir(&self.data_dir, id);
        let projects = dir.join("projects");
        create_private_dir(&projects)?;
        adopt_transcript(&dir, &claude_config_dir(), &self.facts.working_dir, id)?;
        Ok(projects)
    }
}

fn describe_mount(mount: &Mount) -> String {
    let path = mount.path.display();
    let from = |source: &Path| match source == mount.path {
        true => String::new(),
        false => format!(" from {}", source.display()),
    };
    match &mount.kind {
        MountKind::ReadOnly { source } => format!("read-only {path}{}", from(source)),
        MountKind::Writable { source } => format!("writable {path}{}", from(source)),
        MountKind::Private { max_bytes, .. } => {
            format!("private {path}, at most {max_bytes} bytes")
        }
        MountKind::Folder { .. } => format!("folder {path}"),
        MountKind::Link { target } => format!("link {path} to {}", target.display()),
        MountKind::Text { .. } => format!("text {path}"),
        MountKind::Copy { .. } => format!("copy {path}"),
        MountKind::Seal => format!("read-only from here on {path}"),
        MountKind::Proc | MountKind::Devices => path.to_string(),
    }
}

fn plan_with(
    agent: &Agent,
    settings: &SandboxSettings,
    facts: &SandboxFacts,
) -> Result<SandboxPlan, Failure> {
    plan_sandbox(settings, facts).map_err(|error| unavailable(agent, &error.0, LOOK_HELP))
}

const LOOK_HELP: &str = "see `sandbox` in its agent.md and docs/how-to/sandbox.md";

pub(crate) fn unavailable(agent: &Agent, why: &str, help: &str) -> Failure {
    let message = format!("the sandbox of `{}` cannot be made: {why}", agent.name);
    Failure::new(Code::SandboxUnavailable, message, help)
}

/// Returns the failure of a process whose sandbox was refused by the system, by what was written to stderr.
pub(crate) fn refused_sandbox(agent: &Agent, stderr: &str) -> Option<Failure> {
    agent.sandbox.as_ref()?;
    let own =
        ["bwrap: ", "adjutant: the sandbox ", "adjutant: the relay ", "adjutant: the program in "];
    let line = stderr.lines().find(|line| own.iter().any(|start| line.starts_with(start)))?;
    let refusal = SandboxRefusal::of_system(line.trim().trim_end_matches('.'));
    Some(unavailable(agent, &refusal.reason, &refusal.advice))
}

/// What one process needs outside. Dropped with the process, it is kept until the process has ended: without the
/// placeholders the paths would become writable.
#[derive(Debug)]
pub(crate) struct ProcessSandbox {
    bwrap: PathBuf,
    spec: SandboxSpec,
    held: Option<HeldBySandbox>,
    ended: Option<EndFuture>,
}

struct EndFuture(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>);

impl std::fmt::Debug for EndFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EndFuture")
    }
}

#[derive(Debug)]
struct HeldBySandbox {
    proxy: ModelProxy,
    replaced: ReplacementWatch,
    transcripts: Option<PathBuf>,
    _placeholders: PlaceholderLease,
    /// Adjutant waits for it before it exits. Dropped last.
    _open: TaskTrackerToken,
}

impl ProcessSandbox {
    /// Returns the specification of the process inside the sandbox.
    pub(crate) fn wrap(&self, process: ProcessSpec) -> io::Result<ProcessSpec> {
        let mut spec = self.spec.clone();
        let trace = process.environment.iter().find(|(name, _)| *name == env_vars::TRACEPARENT);
        if let Some(value) = trace.and_then(|(_, value)| value.to_str()) {
            spec.variables.push(SandboxVariable::new(env_vars::TRACEPARENT, value, "its trace"));
        }
        sandboxed(ProcessSpec { program: CLAUDE_INSIDE.into(), ..process }, &self.bwrap, &spec)
    }

    /// Sets the future that resolves when the process has ended.
    pub(crate) fn set_ended(&mut self, ended: impl Future<Output = ()> + Send + 'static) {
        self.ended = Some(EndFuture(Box::pin(ended)));
    }

    /// Lets the process reach the model, or not.
    pub(crate) fn set_bound(&self, is_bound: bool) {
        if let Some(held) = &self.held {
            held.proxy.set_bound(is_bound);
        }
    }

    /// Removes what the process needed. To be called when it has ended.
    pub(crate) fn release(&mut self) {
        if let Some(held) = self.held.take() {
            held.release();
        }
    }

    /// Returns a future that resolves when a protected path was replaced on the host: its mount is gone.
    pub(crate) fn replaced(&self) -> impl Future<Output = PathBuf> + Send + use<> {
        let mut found = self.held.as_ref().map(|held| held.replaced.found.subscribe());
        async move {
            if let Some(found) = &mut found
                && let Ok(path) = found.wait_for(Option::is_some).await
                && let Some(path) = path.clone()
            {
                return path;
            }
            std::future::pending().await
        }
    }
}

impl HeldBySandbox {
    fn release(self) {
        if let Some(dir) = &self.transcripts {
            remove_empty_dir(dir);
            remove_empty_dir(dir.parent().unwrap_or(dir));
        }
    }
}

impl Drop for ProcessSandbox {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        held.proxy.set_bound(false);
        match (self.ended.take(), Handle::try_current()) {
            (Some(ended), Ok(runtime)) => {
                let release = async move {
                    ended.0.await;
                    held.release();
                };
                runtime.spawn(release);
            }
            _ => held.release(),
        }
    }
}

/// Converts the exit status of the relay into that of `claude`: 128 and the number of the signal.
pub(crate) fn inner_end(end: ProcessEnd) -> ProcessEnd {
    match end {
        ProcessEnd::Exited(code @ 129..=192) => ProcessEnd::Signaled(code - 128),
        end => end,
    }
}

/// Compares protected paths with what was mounted, every 50 ms.
///
/// A file that is replaced on the host loses its mount in every sandbox: the new one is writable there.
#[derive(Debug)]
struct ReplacementWatch {
    found: watch::Sender<Option<PathBuf>>,
    task: JoinHandle<()>,
}

impl ReplacementWatch {
    fn start(paths: Vec<PathBuf>) -> io::Result<Self> {
        let mounted = paths.into_iter().map(|path| Ok((identity(&path)?, path)));
        let mounted = mounted.collect::<io::Result<Vec<_>>>()?;
        let found = watch::channel(None).0;
        let sender = found.clone();
        let task = tokio::spawn(async move {
            let mut ticks = interval(WATCH_INTERVAL);
            loop {
                ticks.tick().await;
                let gone =
                    |(known, path): &&((u64, u64), PathBuf)| identity(path).ok() != Some(*known);
                if let Some((_, path)) = mounted.iter().find(gone) {
                    sender.send_replace(Some(path.clone()));
                    return;
                }
            }
        });
        Ok(Self { found, task })
    }
}

impl Drop for ReplacementWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Why the facts cannot be determined.
enum Unreadable {
    Failed(Failure),
    Refused(String),
}

impl From<Failure> for Unreadable {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Unreadable> {
    Err(Unreadable::Refused(why.into()))
}

struct FactsReader<'a> {
    agent: &'a Agent,
    settings: &'a Settings,
    control_files: &'a ControlFiles,
    snapshot: &'a Snapshot,
    launch: &'a LaunchPlan,
    wanted: &'a SandboxSettings,
}

impl FactsReader<'_> {
    fn read(
        &self,
        placeholders: &Placeholders,
        bwrap: &Path,
        working_dir: &Path,
        environment: &BTreeMap<String, String>,
        config_dir: &Path,
    ) -> Result<SandboxFacts, Unreadable> {
        let Self { agent, settings, launch, .. } = self;
        let (root, data) = (settings.root.clone(), settings.data_dir());
        let home = home()?;
        let working_dir = working_dir.canonicalize()?;
        let real = |path: &Path, what: &str| {
            let error =
                |error| Unreadable::Refused(format!("{what} `{}`: {error}", path.display()));
            path.canonicalize().map_err(error)
        };
        let mut add_dirs = Vec::new();
        for template in &agent.add_dirs {
            let dir = working_dir.join(resolve_template(agent, "add_dirs", template)?);
            add_dirs.push(real(&dir, "`add_dirs`")?);
        }
        let known_placeholders = placeholders.paths()?;
        let named = named_paths(self.wanted, &working_dir, &home).into_iter();
        let named = named.map(|path| Ok((path.clone(), PathState::read(&path)?)));
        let variables = launch.environment.iter().filter_map(|variable| {
            Some(OuterVariable {
                value: environment.get(&variable.name)?.clone(),
                name: variable.name.clone(),
                reason: variable.reason.to_owned(),
                is_inherited: matches!(variable.source, VariableSource::Inherited),
            })
        });
        let path = environment.get("PATH").map(String::as_str).unwrap_or_default();
        let run_files = data.join("tmp/<run>");
        Ok(SandboxFacts {
            agent: agent.name.to_string(),
            system: PathState::of_system()?,
            path: env::split_paths(path).filter(|entry| entry.is_absolute()).collect(),
            claude: real(&launch.program, "claude")?,
            adjutant: real(&supervisor_program(), "the program of Adjutant")?,
            named: named.collect::<io::Result<_>>()?,
            protected: self.protected(&known_placeholders, bwrap, &home, config_dir)?,
            git_dirs: self.git_dirs()?,
            data: Some((data.clone(), self.data_of_others(&data)?)),
            sockets: run_files.join(SOCKETS_DIR),
            run_files: Some(run_files),
            transcripts: agent.session.then(|| data.join("transcripts/<session>/projects")),
            claude_state: None,
            environment: variables.collect(),
            dummy_login: Vec::new(),
            root,
            home,
            working_dir,
            add_dirs,
        })
    }

    /// Returns the directories of the repository if `.git` is the file of a linked worktree.
    fn git_dirs(&self) -> Result<Vec<PathBuf>, Unreadable> {
        let root = &self.settings.root;
        if !root.join(".git").is_file() {
            return Ok(Vec::new());
        }
        let files = self.control_files.current()?;
        let dirs = files.into_iter().filter(|file| file.kind == ControlFileKind::GitDir);
        let real = dirs.filter_map(|file| file.path.canonicalize().ok());
        Ok(real.filter(|dir| dir.is_dir() && !dir.starts_with(root)).collect())
    }

    /// Returns the entries of `data/` that are not Adjutant's.
    fn data_of_others(&self, data: &Path) -> Result<Vec<PathBuf>, Unreadable> {
        match PathState::read(data)? {
            PathState::Missing => return Ok(Vec::new()),
            PathState::Folder { .. } => {}
            PathState::Link { .. } | PathState::File { .. } => {
                return refuse(format!("`{}` is not a folder", data.display()));
            }
        }
        let own: Vec<&ControlFile> = self.control_files.unreadable_files().collect();
        let is_own = |name: &str, path: &Path| {
            own.iter().any(|file| match &file.pattern {
                None => file.path == path,
                Some(pattern) => file.path == data && Pattern::new(pattern).matches(name),
            })
        };
        let mut others = Vec::new();
        for entry in fs::read_dir(data)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let Ok(name) = entry.file_name().into_string() else { continue };
            // A link is not mounted: it could lead back to a file of Adjutant.
            if (kind.is_file() || kind.is_dir()) && !name.starts_with('.') && !is_own(&name, &path)
            {
                others.push(path);
            }
        }
        others.sort();
        Ok(others)
    }

    /// Returns the control files and everything of the project that Adjutant executes outside.
    fn protected(
        &self,
        placeholders: &[PathBuf],
        bwrap: &Path,
        home: &Path,
        config_dir: &Path,
    ) -> Result<Vec<ProtectedPath>, Unreadable> {
        let (root, data) = (&self.settings.root, self.settings.data_dir());
        let mut wanted: BTreeMap<PathBuf, ProtectionRequest> = BTreeMap::new();
        let mut want = |path: PathBuf, is_folder: bool, access, reason: &str| {
            let found = ProtectionRequest { is_folder, access, reason: reason.to_owned() };
            wanted.entry(path).or_insert(found);
        };
        let read_only = ProtectedAccess::ReadOnly;
        for (name, reason) in [("extensions", "extensions"), (".git", "the git repository")] {
            want(root.join(name), true, read_only, reason);
        }
        for file in self.control_files.current()? {
            let path = with_real_parent(&file.path);
            if path.starts_with(&data) || file.kind == ControlFileKind::GitRepositories {
                continue;
            }
            if file.pattern.is_some() && path == *root {
                return refuse("the audit log is in the project: keep it in `data/`");
            }
            let is_folder = file.kind != ControlFileKind::File || file.pattern.is_some();
            let access = match file.is_unreadable && file.pattern.is_none() {
                true => ProtectedAccess::Hidden,
                false => read_only,
            };
            want(path, is_folder, access, file.content);
        }
        if root.join(".git").is_file() {
            wanted.insert(
                root.join(".git"),
                ProtectionRequest::file("the link to the git repository"),
            );
        }
        wanted.insert(bwrap.to_path_buf(), ProtectionRequest::file("a program that runs agents"));
        for path in self.executed_outside(home, config_dir) {
            let is_folder = path.is_dir();
            let reason = "named by a hook or a server that runs outside";
            let found =
                ProtectionRequest { is_folder, access: read_only, reason: reason.to_owned() };
            wanted.entry(path).or_insert(found);
        }
        protected_paths(wanted, placeholders)
    }

    /// Returns the paths of the project that commands of hooks, servers and `apiKeyHelper` name.
    fn executed_outside(&self, home: &Path, config_dir: &Path) -> Vec<PathBuf> {
        let mut texts = Vec::new();
        for agent in self.snapshot.entries().iter().filter_map(|entry| entry.agent()) {
            texts.extend(agent.hooks.iter().map(|hook| hook.command.clone()));
            let servers = serde_json::to_value(&agent.servers).unwrap_or_default();
            strings_in(&servers, &mut texts);
        }
        let root = &self.settings.root;
        for (_, server) in public_servers(root, &std::collections::BTreeSet::new()) {
            strings_in(&server, &mut texts);
        }
        let servers = GatewayFiles::locate(self.settings).mcp_config.path;
        let claude = [root.join(".claude"), config_dir.to_path_buf()];
        let claude = claude
            .iter()
            .flat_map(|dir| ["settings.json", "settings.local.json"].map(|name| dir.join(name)));
        for file in claude.chain([servers]) {
            let bytes = read_bounded(&file, MAX_FILE_BYTES).unwrap_or_default();
            strings_in(&serde_json::from_slice(&bytes).unwrap_or_default(), &mut texts);
        }
        let data = self.settings.data_dir();
        let paths = texts
            .iter()
            .flat_map(|text| words(text, root, home))
            .map(|word| normalize(&root.join(word)));
        let of_project = |path: &PathBuf| {
            path.starts_with(root)
                && path != root
                && !path.starts_with(&data)
                && fs::symlink_metadata(path).is_ok()
        };
        paths.filter(of_project).collect()
    }
}

struct ProtectionRequest {
    is_folder: bool,
    access: ProtectedAccess,
    reason: String,
}

impl ProtectionRequest {
    fn file(reason: &str) -> Self {
        Self { is_folder: false, access: ProtectedAccess::ReadOnly, reason: reason.to_owned() }
    }
}

/// Finds the state of each path, drops what is below a protected folder, and adds the targets of links there.
fn protected_paths(
    mut wanted: BTreeMap<PathBuf, ProtectionRequest>,
    placeholders: &[PathBuf],
) -> Result<Vec<ProtectedPath>, Unreadable> {
    let mut protected: Vec<ProtectedPath> = Vec::new();
    while let Some((path, ProtectionRequest { mut is_folder, access, reason })) = wanted.pop_first()
    {
        let state = match placeholders.contains(&path) {
            true => PathState::Missing,
            false => PathState::read(&path)?,
        };
        let above =
            protected.iter().find(|above| path != above.path && path.starts_with(&above.path));
        if above.is_some_and(|above| above.access == access || above.state == PathState::Missing) {
            // A link in a protected folder cannot be changed, but its target may be elsewhere.
            if let PathState::Link { .. } = state {
                let target = real_path(&path)?;
                if target.symlink_metadata().is_err() {
                    return refuse(format!("`{}` is a link to nothing ({reason})", path.display()));
                }
                let is_covered = protected.iter().any(|above| target.starts_with(&above.path));
                if !is_covered {
                    let state = PathState::read(&target)?;
                    protected.push(ProtectedPath {
                        path: target,
                        state,
                        access,
                        reason,
                        placeholder: None,
                    });
                }
            }
            continue;
        }
        // A file in a folder that does not exist: the folder must not be created.
        let mut path = path;
        if state == PathState::Missing && !placeholders.contains(&path) {
            while let Some(parent) = path.parent().filter(|parent| {
                placeholders.iter().any(|known| known == parent)
                    || parent.symlink_metadata().is_err()
            }) {
                path = parent.to_path_buf();
                is_folder = true;
            }
            if protected.iter().any(|known| known.path == path) {
                continue;
            }
        }
        let placeholder = match is_folder {
            true => Placeholder::Folder,
            false => Placeholder::File { content: PLACEHOLDER_TEXT },
        };
        protected.push(ProtectedPath {
            path,
            state,
            access,
            reason,
            placeholder: Some(placeholder),
        });
    }
    Ok(protected)
}

/// Resolves the links above a path, but not the path itself.
fn with_real_parent(path: &Path) -> PathBuf {
    match (path.parent().and_then(|parent| real_path(parent).ok()), path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_path_buf(),
    }
}

/// Returns the home folder; a private one must be possible at its path.
fn home() -> Result<PathBuf, Unreadable> {
    let Some(home) = dirs::home_dir() else { return refuse("HOME is not set") };
    let shown = home.display();
    if home.canonicalize().ok().as_deref() != Some(&home) {
        return refuse(format!("HOME is `{shown}`, which is not the real path of a folder"));
    }
    if home.parent().is_none() || SYSTEM_HOMES.iter().any(|dir| home.starts_with(dir)) {
        return refuse(format!("HOME is `{shown}`, which cannot be a private folder"));
    }
    Ok(home)
}

fn strings_in(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings_in(item, texts)),
        Value::Object(members) => members.values().for_each(|member| strings_in(member, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns everything in a command that may be a path: the whole text, quoted parts, and words.
fn words(text: &str, root: &Path, home: &Path) -> Vec<String> {
    let (root, home) = (root.to_string_lossy(), home.to_string_lossy());
    let text = text
        .replace("${CLAUDE_PROJECT_DIR}", &root)
        .replace("$CLAUDE_PROJECT_DIR", &root)
        .replace("${HOME}", &home)
        .replace("$HOME", &home);
    let quoted = ['"', '\''].into_iter().flat_map(|quote| text.split(quote));
    let is_between = |c: char| c.is_whitespace() || "\"'`;|&()<>=,:".contains(c);
    let parts = text.split(is_between).chain(quoted).chain([text.as_str()]);
    let known = parts.map(str::trim).filter(|part| !part.is_empty() && part.len() < 4096);
    known
        .map(|part| match part.strip_prefix("~/") {
            Some(rest) => format!("{home}/{rest}"),
            None => part.to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_command_that_may_be_a_path_is_found() {
        let found = |text: &str| words(text, Path::new("/p"), Path::new("/h"));
        for (text, path) in [
            ("bash ./hooks/check.sh --strict", "./hooks/check.sh"),
            ("FOO=1 \"$CLAUDE_PROJECT_DIR/my hooks/x.sh\" a", "/p/my hooks/x.sh"),
            ("cd ${CLAUDE_PROJECT_DIR}&&node a.js;true", "a.js"),
            ("~/bin/x|cat", "/h/bin/x"),
            ("--config=tools/c.json", "tools/c.json"),
        ] {
            assert!(found(text).iter().any(|word| word == path), "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn a_status_of_the_relay_is_the_signal_of_the_program() {
        assert_eq!(inner_end(ProcessEnd::Exited(137)), ProcessEnd::Signaled(9));
        assert_eq!(inner_end(ProcessEnd::Exited(125)), ProcessEnd::Exited(125));
        assert_eq!(inner_end(ProcessEnd::Lost), ProcessEnd::Lost);
    }

    #[test]
    fn targets_of_links_in_protected_folders_are_protected() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("agents")).unwrap();
        fs::create_dir_all(root.join("shared")).unwrap();
        std::os::unix::fs::symlink("../shared", root.join("agents/link")).unwrap();
        let folder = || ProtectionRequest { is_folder: true, ..ProtectionRequest::file("agents") };
        let wanted =
            |names: &[&str]| names.iter().map(|name| (root.join(name), folder())).collect();
        let found = protected_paths(wanted(&["agents", "agents/link"]), &[]);
        let Ok(found) = found else { panic!() };
        let paths: Vec<_> = found.iter().map(|p| p.path.strip_prefix(&root).unwrap()).collect();
        assert_eq!(paths, [Path::new("agents"), Path::new("shared")]);
        std::os::unix::fs::symlink("nowhere", root.join("agents/dangling")).unwrap();
        assert!(protected_paths(wanted(&["agents", "agents/dangling"]), &[]).is_err());
    }

    #[test]
    fn a_file_in_a_missing_folder_is_protected_by_a_placeholder_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let wanted = || {
            BTreeMap::from([(root.join("config/.mcp.json"), ProtectionRequest::file("servers"))])
        };
        for placeholders in [vec![], vec![root.join("config")]] {
            if !placeholders.is_empty() {
                fs::create_dir(root.join("config")).unwrap();
            }
            let Ok(found) = protected_paths(wanted(), &placeholders) else { panic!() };
            assert_eq!(
                (&found[0].path, &found[0].placeholder),
                (&root.join("config"), &Some(Placeholder::Folder))
            );
            assert_eq!(found[0].state, PathState::Missing);
        }
    }
}
