//! Plan of a sandbox: an author's settings and facts about the disk to the complete description of what is inside.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::environment::{NETWORK_VARIABLES, matches};
use crate::catalog::SandboxSettings;
use crate::process::sandbox::{
    Mount, MountKind, PathState, Placeholder, PortForward, SandboxLimits, SandboxSpec,
    SandboxVariable,
};

/// Folder of our own programs inside.
const PROGRAMS: &str = "/opt/adjutant";
/// Path of `claude` inside.
pub const CLAUDE_INSIDE: &str = "/opt/adjutant/claude";
const ADJUTANT_INSIDE: &str = "/opt/adjutant/adjutant";
/// Folder of the sockets inside.
const SOCKETS_INSIDE: &str = "/run/adjutant";
const MODEL_SOCKET: &str = "model.sock";
const MODEL_PORT: u16 = 8080;

const MIB: u64 = 1 << 20;
const TMP_BYTES: u64 = 512 * MIB;
const HOME_BYTES: u64 = 512 * MIB;
const SHM_BYTES: u64 = 8 * MIB;
/// Size of an empty folder that hides something: nothing can be stored in it.
const HIDDEN_BYTES: u64 = 4096;

/// Programs inside that no entry of `PATH` leads to.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns the absolute paths that the settings name, for [`SandboxFacts::named`].
pub fn named_paths(settings: &SandboxSettings, working_dir: &Path, home: &Path) -> Vec<PathBuf> {
    let texts = settings.write.iter().chain(&settings.read).chain(&settings.hide);
    texts.map(|text| absolute(text, working_dir, home)).collect()
}

/// Something that the agent may not change, or not even see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedPath {
    pub path: PathBuf,
    pub state: PathState,
    pub access: ProtectedAccess,
    pub reason: String,
    /// What to create before the start if it does not exist and could be created inside.
    pub placeholder: Option<Placeholder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectedAccess {
    ReadOnly,
    Hidden,
}

/// A variable of the process as it would be without a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OuterVariable {
    pub name: String,
    pub value: String,
    pub reason: String,
    /// From Adjutant's environment, not from the agent file.
    pub is_inherited: bool,
}

/// Everything that the plan has to know about the disk and the run. Paths are absolute, and real unless noted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxFacts {
    pub agent: String,
    /// Root of the project.
    pub root: PathBuf,
    /// As in `HOME`.
    pub home: PathBuf,
    pub working_dir: PathBuf,
    /// `add_dirs` of the agent.
    pub add_dirs: Vec<PathBuf>,
    /// Directories of the repository of a linked worktree.
    pub git_dirs: Vec<PathBuf>,
    /// System folders and files of `/etc`: what is there is mounted or linked in the same way.
    pub system: Vec<(PathBuf, PathState)>,
    /// Entries of `PATH`, as written.
    pub path: Vec<PathBuf>,
    pub claude: PathBuf,
    pub adjutant: PathBuf,
    /// The paths that the settings name.
    pub named: BTreeMap<PathBuf, PathState>,
    pub protected: Vec<ProtectedPath>,
    /// `data/` of the project, and the entries in it that are not Adjutant's.
    pub data: Option<(PathBuf, Vec<PathBuf>)>,
    /// Folder with the system prompt and the settings of the run.
    pub run_files: Option<PathBuf>,
    /// Folder with the transcripts of this conversation; `None` if none are kept.
    pub transcripts: Option<PathBuf>,
    /// Folder with the proxy's socket.
    pub sockets: PathBuf,
    /// A `.claude.json` of an earlier run: without one `claude` starts 18 ms later.
    pub claude_state: Option<String>,
    pub environment: Vec<OuterVariable>,
    /// Variables of the login, with values that are worth nothing outside.
    pub dummy_login: Vec<(&'static str, &'static str)>,
}

/// A sandbox, and what has to exist on the host before it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPlan {
    pub spec: SandboxSpec,
    pub placeholders: Vec<(PathBuf, Placeholder)>,
    /// Paths that must stay what they are on the host while the sandbox is open.
    pub watched: Vec<PathBuf>,
}

/// Why no sandbox can be made with these settings on this disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SandboxImpossible(pub String);

/// Plans a sandbox.
pub fn plan_sandbox(
    settings: &SandboxSettings,
    facts: &SandboxFacts,
) -> Result<SandboxPlan, SandboxImpossible> {
    check_project(facts)?;
    let folders = exposed_folders(settings, facts)?;
    let mut mounts = system_mounts(facts);
    mounts.extend(private_mounts(facts));
    mounts.extend(program_mounts(facts));
    mounts.extend(folders.iter().map(ExposedFolder::mount));
    let (protected, placeholders) = protected_mounts(facts, &folders)?;
    let mut watched: Vec<PathBuf> = protected.iter().map(|mount| mount.path.clone()).collect();
    watched.dedup();
    mounts.extend(protected);
    mounts.extend(data_mounts(facts, &folders));
    mounts.extend(hidden_mounts(settings, facts)?);
    mounts.push(Mount::new("/dev", MountKind::Seal, "nothing is stored in /dev"));
    let spec = SandboxSpec {
        variables: variables(facts, &folders),
        mounts,
        working_dir: facts.working_dir.clone(),
        relay: ADJUTANT_INSIDE.into(),
        forwards: vec![PortForward {
            port: MODEL_PORT,
            socket: Path::new(SOCKETS_INSIDE).join(MODEL_SOCKET),
        }],
        agent: facts.agent.clone(),
        limits: SandboxLimits {},
    };
    Ok(SandboxPlan { spec, placeholders, watched })
}

fn impossible<T>(reason: String) -> Result<T, SandboxImpossible> {
    Err(SandboxImpossible(reason))
}

/// A private home must not hide the project, and the project must not be a part of the system.
fn check_project(facts: &SandboxFacts) -> Result<(), SandboxImpossible> {
    let (root, home) = (&facts.root, &facts.home);
    if home.starts_with(root) {
        return impossible(format!(
            "the project `{}` contains the home folder, which a sandbox does not have: move the project to a folder of its own",
            root.display()
        ));
    }
    check_folder(root, facts, Access::Write, "the project")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// A folder of the host that is visible inside at its own path.
struct ExposedFolder {
    path: PathBuf,
    source: PathBuf,
    access: Access,
    reason: String,
}

impl ExposedFolder {
    fn mount(&self) -> Mount {
        let source = self.source.clone();
        let kind = match self.access {
            Access::Read => MountKind::ReadOnly { source },
            Access::Write => MountKind::Writable { source },
        };
        Mount::new(&self.path, kind, &self.reason)
    }
}

/// Returns the project and the folders that the settings name, outer ones first.
fn exposed_folders(
    settings: &SandboxSettings,
    facts: &SandboxFacts,
) -> Result<Vec<ExposedFolder>, SandboxImpossible> {
    let mut folders = vec![
        readable(&facts.root, "the project"),
        readable(&facts.working_dir, "its working folder"),
    ];
    folders.extend(facts.add_dirs.iter().map(|dir| readable(dir, "`add_dirs` in its agent.md")));
    folders
        .extend(facts.git_dirs.iter().map(|dir| readable(dir, "the repository of the worktree")));
    for (texts, access, key) in
        [(&settings.read, Access::Read, "read"), (&settings.write, Access::Write, "write")]
    {
        for text in texts {
            folders.extend(named_folder(text, facts, access, key)?);
        }
    }
    for folder in &folders {
        check_folder(&folder.source, facts, folder.access, &folder.reason)?;
    }
    // The last of several entries for one path decides: `write` comes after `read`.
    let last: BTreeMap<PathBuf, ExposedFolder> =
        folders.into_iter().map(|folder| (folder.path.clone(), folder)).collect();
    let mut visible: Vec<ExposedFolder> = Vec::new();
    for folder in last.into_values() {
        let above = visible.iter().rev().find(|above| folder.path.starts_with(&above.path));
        if above.is_none_or(|above| above.access != folder.access) {
            visible.push(folder);
        }
    }
    Ok(visible)
}

fn readable(path: &Path, reason: &str) -> ExposedFolder {
    let (path, source) = (path.to_path_buf(), path.to_path_buf());
    ExposedFolder { path, source, access: Access::Read, reason: reason.to_owned() }
}

/// Returns a folder of `filesystem`, at its real path and, if it was written with a link, at the written one.
fn named_folder(
    text: &str,
    facts: &SandboxFacts,
    access: Access,
    key: &str,
) -> Result<Vec<ExposedFolder>, SandboxImpossible> {
    let path = absolute(text, &facts.working_dir, &facts.home);
    let working_dir = PathState::Folder { real: facts.working_dir.clone() };
    let known = facts.named.get(&path).or((path == facts.working_dir).then_some(&working_dir));
    let real = match (known, access) {
        (Some(PathState::Folder { real }), _) | (Some(PathState::File { real }), Access::Read) => {
            real
        }
        // `claude` writes a new file beside the old one.
        (Some(PathState::File { .. }), Access::Write) => {
            return impossible(format!(
                "`{text}` in `{key}` is a file: only folders can be writable"
            ));
        }
        (Some(PathState::Link { target }), _) => target,
        (Some(PathState::Missing) | None, _) => {
            return impossible(format!("`{text}` in `{key}` does not exist"));
        }
    };
    let reason = format!("`{key}: {text}` in its sandbox");
    let at = |path: &Path| ExposedFolder {
        path: path.to_path_buf(),
        source: real.clone(),
        access,
        reason: reason.clone(),
    };
    let written = (path != *real && !real.starts_with(&facts.root)).then(|| at(&path));
    Ok([at(real)].into_iter().chain(written).collect())
}

/// Refuses folders whose content would undo the sandbox.
fn check_folder(
    path: &Path,
    facts: &SandboxFacts,
    access: Access,
    what: &str,
) -> Result<(), SandboxImpossible> {
    const NEVER: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/var/run"];
    const NOT_WRITABLE: [&str; 8] =
        ["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/opt/adjutant"];
    let below = |roots: &[&str]| roots.iter().any(|root| path.starts_with(root));
    let too_wide = facts.home.starts_with(path) || path == Path::new("/tmp");
    if too_wide || below(&NEVER) || (access == Access::Write && below(&NOT_WRITABLE)) {
        return impossible(format!(
            "{what} is `{}`, which cannot be part of a sandbox: name a folder of your own in it",
            path.display()
        ));
    }
    Ok(())
}

/// System folders, the files that programs need to name users, hosts and times, `/proc`, `/dev` and `/tmp`.
fn system_mounts(facts: &SandboxFacts) -> Vec<Mount> {
    let read_only = |path: &str| MountKind::ReadOnly { source: path.into() };
    let empty = |mode, max_bytes| MountKind::Private { mode, max_bytes };
    let (etc, system): (Vec<_>, Vec<_>) =
        facts.system.iter().partition(|(path, _)| path.starts_with("/etc"));
    let mount = |(path, state): &(PathBuf, PathState)| {
        let kind = match state {
            PathState::Missing => return None,
            PathState::Link { target } => MountKind::Link { target: target.clone() },
            PathState::File { real } | PathState::Folder { real } => {
                MountKind::ReadOnly { source: real.clone() }
            }
        };
        Some(Mount::new(path, kind, "programs and their libraries"))
    };
    let mut mounts: Vec<Mount> = system.into_iter().filter_map(mount).collect();
    mounts.push(Mount::new("/etc", MountKind::Folder { mode: 0o755 }, "settings of the system"));
    mounts.extend(etc.into_iter().filter_map(mount));
    let user = format!("agent:x:1000:1000::{}:/bin/bash\n", facts.home.display());
    for (path, content, reason) in [
        ("/etc/passwd", user.as_str(), "the user inside"),
        ("/etc/group", "agent:x:1000:\n", "the user inside"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n", "no name service"),
        ("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n", "no names but its own"),
        ("/etc/resolv.conf", "", "no name server"),
    ] {
        mounts.push(Mount::new(path, MountKind::Text { content: content.to_owned() }, reason));
    }
    mounts.extend([
        Mount::new("/proc", MountKind::Proc, "its own processes"),
        Mount::new("/proc/sys", read_only("/proc/sys"), "no setting of the kernel can be changed"),
        Mount::new("/dev", MountKind::Devices, "null, zero, random, tty"),
        Mount::new("/dev/shm", empty(0o1777, SHM_BYTES), "shared memory"),
        Mount::new("/tmp", empty(0o1777, TMP_BYTES), "a private folder for temporary files"),
        Mount::new("/var", MountKind::Folder { mode: 0o755 }, "holds /var/tmp"),
        Mount::new(
            "/var/tmp",
            MountKind::Link { target: "/tmp".into() },
            "a private folder for temporary files",
        ),
    ]);
    mounts
}

/// The home and Claude Code's folder in it.
fn private_mounts(facts: &SandboxFacts) -> Vec<Mount> {
    let home = MountKind::Private { mode: 0o700, max_bytes: HOME_BYTES };
    let claude = claude_dir(facts);
    let mut mounts = vec![
        Mount::new(&facts.home, home, "a private, empty home"),
        Mount::new(&claude, MountKind::Folder { mode: 0o700 }, "files of Claude Code"),
    ];
    if let Some(state) = &facts.claude_state {
        let kind = MountKind::Copy { content: state.clone() };
        mounts.push(Mount::new(
            claude.join(".claude.json"),
            kind,
            "Claude Code starts faster with it",
        ));
    }
    if let Some(source) = &facts.transcripts {
        let kind = MountKind::Writable { source: source.clone() };
        mounts.push(Mount::new(claude.join("projects"), kind, "transcripts of this conversation"));
    }
    mounts
}

fn claude_dir(facts: &SandboxFacts) -> PathBuf {
    facts.home.join(".claude")
}

/// `claude`, Adjutant, and the folder with the sockets.
fn program_mounts(facts: &SandboxFacts) -> Vec<Mount> {
    let read_only = |source: &Path| MountKind::ReadOnly { source: source.to_path_buf() };
    vec![
        Mount::new(PROGRAMS, MountKind::Folder { mode: 0o755 }, "holds the two programs"),
        Mount::new(CLAUDE_INSIDE, read_only(&facts.claude), "the agent's program"),
        Mount::new(ADJUTANT_INSIDE, read_only(&facts.adjutant), "the relay: process 1 inside"),
        // The folder, not the socket: a socket that is made anew must be visible.
        Mount::new(SOCKETS_INSIDE, read_only(&facts.sockets), "the way to the model"),
    ]
}

type Protection = (Vec<Mount>, Vec<(PathBuf, Placeholder)>);

/// Makes control files read-only where they are visible, and finds the placeholders that this needs.
fn protected_mounts(
    facts: &SandboxFacts,
    folders: &[ExposedFolder],
) -> Result<Protection, SandboxImpossible> {
    let (mut mounts, mut placeholders) = (Vec::new(), Vec::new());
    for protected in &facts.protected {
        let path = &protected.path;
        let Some(access) = access_to(path, folders) else { continue };
        let is_folder = match &protected.state {
            PathState::Link { target } => {
                return impossible(format!(
                    "`{}` is a symbolic link to `{}`: an agent could replace it ({}). Put the file itself there",
                    path.display(),
                    target.display(),
                    protected.reason
                ));
            }
            PathState::Missing if access == Access::Read => continue,
            PathState::Missing => match &protected.placeholder {
                Some(placeholder) => {
                    placeholders.push((path.clone(), placeholder.clone()));
                    *placeholder == Placeholder::Folder
                }
                None => continue,
            },
            PathState::Folder { .. } => true,
            PathState::File { .. } => false,
        };
        match protected.access {
            ProtectedAccess::Hidden => mounts.extend(hide(path, is_folder, &protected.reason)),
            ProtectedAccess::ReadOnly => {
                let kind = MountKind::ReadOnly { source: path.clone() };
                mounts.push(Mount::new(path, kind, &protected.reason));
            }
        }
    }
    mounts.extend(pinned_parents(&mounts, folders));
    mounts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((mounts, placeholders))
}

/// Mounts the writable folders above protected paths on themselves: a mount point cannot be renamed, and a folder that only
/// contains one could be.
fn pinned_parents(protected: &[Mount], folders: &[ExposedFolder]) -> Vec<Mount> {
    let is_covered = |path: &Path| protected.iter().any(|mount| path.starts_with(&mount.path));
    let is_exposed = |path: &Path| folders.iter().any(|folder| folder.path == path);
    let above = |mount: &Mount| {
        let parents = mount.path.ancestors().skip(1).map(Path::to_path_buf);
        parents
            .take_while(|path| access_to(path, folders) == Some(Access::Write))
            .collect::<Vec<_>>()
    };
    let parents: BTreeSet<PathBuf> = protected.iter().flat_map(above).collect();
    let pinned = parents.into_iter().filter(|path| !is_covered(path) && !is_exposed(path));
    let pin = |path: PathBuf| {
        let kind = MountKind::Writable { source: path.clone() };
        Mount::new(path, kind, "cannot be renamed: something protected is in it")
    };
    pinned.map(pin).collect()
}

/// Returns the access to a path by the innermost visible folder above it.
fn access_to(path: &Path, folders: &[ExposedFolder]) -> Option<Access> {
    let above = folders.iter().filter(|folder| path.starts_with(&folder.path));
    above.max_by_key(|folder| folder.path.components().count()).map(|folder| folder.access)
}

/// Replaces `data/` by an empty folder, in which the entries of others and the files of the run are.
fn data_mounts(facts: &SandboxFacts, folders: &[ExposedFolder]) -> Vec<Mount> {
    let mut mounts = Vec::new();
    let hidden = facts.data.iter().filter(|(data, _)| access_to(data, folders).is_some());
    for (data, others) in hidden {
        mounts.push(empty_folder(data, "files of Adjutant"));
        for path in others {
            let source = path.clone();
            let kind = match access_to(path, folders) {
                Some(Access::Write) => MountKind::Writable { source },
                _ => MountKind::ReadOnly { source },
            };
            mounts.push(Mount::new(path, kind, "a file in `data/` that is not Adjutant's"));
        }
    }
    if let Some(files) = &facts.run_files {
        let kind = MountKind::ReadOnly { source: files.clone() };
        mounts.push(Mount::new(files, kind, "system prompt and settings of the run"));
    }
    let sealed = facts.data.iter().filter(|(data, _)| access_to(data, folders).is_some());
    mounts.extend(sealed.map(|(data, _)| Mount::new(data, MountKind::Seal, "files of Adjutant")));
    mounts
}

fn hidden_mounts(
    settings: &SandboxSettings,
    facts: &SandboxFacts,
) -> Result<Vec<Mount>, SandboxImpossible> {
    let mut mounts = Vec::new();
    for text in &settings.hide {
        let path = absolute(text, &facts.working_dir, &facts.home);
        let reason = format!("`hide: {text}` in its sandbox");
        match facts.named.get(&path) {
            Some(PathState::Folder { real }) => mounts.extend(hide(real, true, &reason)),
            Some(PathState::File { real }) => mounts.extend(hide(real, false, &reason)),
            Some(PathState::Link { target }) => {
                return impossible(format!(
                    "`{text}` in `hide` is a symbolic link: name `{}`",
                    target.display()
                ));
            }
            Some(PathState::Missing) | None => {
                return impossible(format!("`{text}` in `hide` does not exist"));
            }
        }
    }
    Ok(mounts)
}

fn hide(path: &Path, is_folder: bool, reason: &str) -> Vec<Mount> {
    match is_folder {
        true => vec![empty_folder(path, reason), Mount::new(path, MountKind::Seal, reason)],
        false => vec![Mount::new(path, MountKind::Text { content: String::new() }, reason)],
    }
}

fn empty_folder(path: &Path, reason: &str) -> Mount {
    let kind = MountKind::Private { mode: 0o500, max_bytes: HIDDEN_BYTES };
    Mount::new(path, kind, reason)
}

/// Variables of the model's login and address: the proxy outside uses them.
const MODEL_VARIABLES: [&str; 6] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
];

/// Inherited variables that have no meaning inside, besides those of the network: other accounts, and folders that are
/// not there.
const OUTSIDE_ONLY: [&str; 13] = [
    "AWS_*",
    "GOOGLE_*",
    "AZURE_*",
    "ANTHROPIC_BEDROCK_*",
    "ANTHROPIC_VERTEX_*",
    "ANTHROPIC_FOUNDRY_*",
    "CLOUD_ML_REGION",
    "GCLOUD_PROJECT",
    "VERTEX_REGION_*",
    "CLAUDE_CODE_USE_*",
    "CLAUDE_CODE_SKIP_*",
    "TMPDIR",
    "XDG_*",
];

fn variables(facts: &SandboxFacts, folders: &[ExposedFolder]) -> Vec<SandboxVariable> {
    let is_kept = |variable: &&OuterVariable| {
        let named = |pattern: &&str| matches(pattern, &variable.name);
        let own = ["PATH", "HOME", "USER", "LOGNAME", "SHELL"];
        let is_dropped = variable.is_inherited
            && (OUTSIDE_ONLY.iter().chain(NETWORK_VARIABLES).any(named)
                || own.contains(&variable.name.as_str()));
        !is_dropped && !MODEL_VARIABLES.iter().any(named)
    };
    let mut variables: BTreeMap<&str, SandboxVariable> = BTreeMap::new();
    let path = inner_path(facts, folders);
    let (home, claude) = (text(&facts.home), text(&claude_dir(facts)));
    let proxy = format!("http://127.0.0.1:{MODEL_PORT}");
    let mut add = |name, value: &str, reason: &str| {
        variables.insert(name, SandboxVariable::new(name, value, reason));
    };
    add("PATH", &path, "the entries of PATH that exist inside");
    add("HOME", &home, "a private home at the same path");
    add("USER", "agent", "the user inside");
    add("LOGNAME", "agent", "the user inside");
    add("SHELL", "/bin/bash", "the shell of the agent");
    add("LANG", "C.UTF-8", "texts in UTF-8");
    for variable in facts.environment.iter().filter(is_kept) {
        add(&variable.name, &variable.value, &variable.reason);
    }
    add("CLAUDE_CONFIG_DIR", &claude, "Claude Code's files are in the private home");
    add("ANTHROPIC_BASE_URL", &proxy, "the proxy to the model, the only way out");
    // Without this, `claude` would send requests to a proxy that the agent file sets.
    add("NO_PROXY", "127.0.0.1,localhost,::1", "the proxy to the model is reached directly");
    for (name, value) in &facts.dummy_login {
        add(name, value, "stands for the login, which is outside");
    }
    variables.into_values().collect()
}

/// Returns the entries of `PATH` that are visible inside.
fn inner_path(facts: &SandboxFacts, folders: &[ExposedFolder]) -> String {
    let is_system = |entry: &Path| {
        let there = |(path, state): &(PathBuf, PathState)| {
            *state != PathState::Missing && entry.starts_with(path)
        };
        facts.system.iter().any(there)
    };
    let visible = |entry: &&PathBuf| is_system(entry) || access_to(entry, folders).is_some();
    let entries: Vec<String> = facts.path.iter().filter(visible).map(|entry| text(entry)).collect();
    if entries.is_empty() { DEFAULT_PATH.to_owned() } else { entries.join(":") }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Makes a path absolute and resolves `.` and `..` in its text.
fn absolute(text: &str, working_dir: &Path, home: &Path) -> PathBuf {
    let path = match text.strip_prefix('~') {
        Some("") => home.to_path_buf(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        _ => working_dir.join(text),
    };
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
#[path = "sandbox_tests.rs"]
mod tests;
