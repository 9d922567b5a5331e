//! Control files: the files that configure agents, and the files that Adjutant owns.
//!
//! One list for every use: the decision on file tools ([`super::file_access`]), the `permissions.deny` rules for
//! `claude`, and a sandbox, which can mount the same paths read-only. Only [`ControlFiles::current`] reads the disk for
//! its entries.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use super::super::process_spec::temporary_runs_dir;
use super::super::processes::{cache_dir, claude_config_dir, locate_program};
use crate::catalog::{Agent, EXTENSION_MANIFESTS};
use crate::config::{GatewayFiles, MCP_CONFIG_NAME, RULES_NAME, Settings, user_config_dirs};
use crate::gateway::CredentialStore;
use crate::identity::runtime_dir;
use crate::store::{head_path, real_path};

/// Depth to which a configuration directory is searched for symbolic links.
const MAX_LINK_DEPTH: u32 = 4;
/// Limit of directory entries in one search for symbolic links, about 20 ms.
///
/// Above it the list cannot be determined.
const MAX_SCANNED_ENTRIES: usize = 20_000;
/// Large directories of third-party files below a configuration directory; not searched for links.
const UNSEARCHED_DIRS: [&str; 2] = ["node_modules", "worktrees"];
/// Glob for the number in the name of a rotated log.
const LOG_NUMBER_GLOB: &str = "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]";

/// A control file, or a directory or glob pattern of control files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlFile {
    /// Absolute path as configured. It may be a symbolic link, and it need not exist.
    pub(crate) path: PathBuf,
    /// Glob below `path`, such as `costs-[0-9]*.journal` or `*/extension.json`; `None` means `path` itself.
    pub(crate) pattern: Option<String>,
    pub(crate) kind: ControlFileKind,
    /// Short description for messages.
    pub(crate) content: &'static str,
    /// True for a file that Adjutant owns: agents may not read it, whatever their rules.
    pub(crate) is_unreadable: bool,
}

/// Part of the disk that an entry covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlFileKind {
    File,
    /// A directory and everything below it.
    Dir,
    /// A directory with configuration and everything below it.
    ///
    /// The targets of symbolic links in its first 4 levels are control files too.
    ConfigDir,
    /// The hooks and the configuration in a git directory, and in those of its submodules and worktrees.
    GitDir,
    /// The same in every directory `.git` below a directory, and each file `.git`, which names a git directory.
    GitRepositories,
}

impl ControlFile {
    fn new(path: impl Into<PathBuf>, kind: ControlFileKind, content: &'static str) -> Self {
        Self { path: path.into(), pattern: None, kind, content, is_unreadable: false }
    }

    fn file(path: impl Into<PathBuf>, content: &'static str) -> Self {
        Self::new(path, ControlFileKind::File, content)
    }

    fn dir(path: impl Into<PathBuf>, content: &'static str) -> Self {
        Self::new(path, ControlFileKind::Dir, content)
    }

    fn config_dir(path: impl Into<PathBuf>, content: &'static str) -> Self {
        Self::new(path, ControlFileKind::ConfigDir, content)
    }

    fn matching(self, pattern: impl Into<String>) -> Self {
        Self { pattern: Some(pattern.into()), ..self }
    }

    fn unreadable(self) -> Self {
        Self { is_unreadable: true, ..self }
    }

    /// Formats the entry for people: relative to the project, or only its name if it is outside.
    pub(crate) fn display_name(&self, root: &Path) -> String {
        let path = match self.path.strip_prefix(root) {
            Ok(inside) => inside.display().to_string(),
            // Agents need not know directories outside of the project.
            Err(_) => self.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        };
        match (&self.pattern, self.kind) {
            (Some(pattern), _) => format!("{path}/{pattern}"),
            (None, ControlFileKind::File) => path,
            (None, ControlFileKind::GitRepositories) => "**/.git".to_owned(),
            (None, ControlFileKind::Dir | ControlFileKind::ConfigDir | ControlFileKind::GitDir) => {
                format!("{path}/")
            }
        }
    }

    /// The rules that make `claude` leave the entry out of `Read`, `Grep`, `Glob` and files attached with `@`, if it is at
    /// `path`.
    ///
    /// A path with wildcards has two rules. Claude Code matches files against the rule as a gitignore pattern, in which the
    /// path must be escaped. For a search, 2.1.197 first compares the text of the rule with that of the working directory,
    /// and passes the rest to ripgrep: that works only with the path as it is.
    fn read_denials(&self, path: &str) -> Vec<String> {
        let ends_in = self.pattern.as_ref().map_or(String::new(), |pattern| format!("/{pattern}"));
        let below = if self.kind == ControlFileKind::File { "" } else { "/**" };
        let mut paths = vec![escaped(path, &['\\', '*', '?', '[', ']']), path.to_owned()];
        paths.dedup();
        // `//` begins an absolute path in Claude Code's rules.
        let content =
            |path: &String| escaped(&format!("/{path}{ends_in}{below}"), &['\\', '(', ')']);
        paths.iter().map(|path| format!("Read({})", content(path))).collect()
    }
}

/// A text with a backslash before each of these characters.
fn escaped(text: &str, special: &[char]) -> String {
    let escape = |c: char| special.contains(&c).then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escape).collect()
}

/// The directories outside of the project that hold control files.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserDirs {
    /// Configuration of Adjutant and of the gateway.
    pub(crate) config: Vec<PathBuf>,
    /// Claude Code's configuration directory.
    pub(crate) claude: Option<PathBuf>,
    pub(crate) home: Option<PathBuf>,
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) cache: Option<PathBuf>,
    /// Directories with sockets, locks and spooled attestations.
    pub(crate) runtime: Vec<PathBuf>,
    /// Adjutant itself and `claude`.
    pub(crate) programs: Vec<PathBuf>,
}

impl UserDirs {
    fn from_environment(settings: &Settings) -> Self {
        Self {
            config: user_config_dirs(),
            claude: Some(claude_config_dir()),
            home: dirs::home_dir(),
            credentials: CredentialStore::of_user().ok().map(|drawers| drawers.dir().to_path_buf()),
            cache: cache_dir(),
            runtime: [runtime_dir(), temporary_runs_dir()]
                .into_iter()
                .chain(dirs::runtime_dir().map(|dir| dir.join("adjutant")))
                .collect(),
            programs: env::current_exe().into_iter().chain(locate_program(settings)).collect(),
        }
    }

    fn control_files(&self) -> Vec<ControlFile> {
        let of_claude = "Claude Code settings of the user";
        let mut files = Vec::new();
        for dir in &self.config {
            files.push(ControlFile::config_dir(dir, "the user's configuration"));
        }
        if let Some(claude) = &self.claude {
            for name in ["settings.json", "settings.local.json", ".claude.json"] {
                files.push(ControlFile::file(claude.join(name), of_claude));
            }
            for name in ["agents", "plugins"] {
                files.push(ControlFile::dir(claude.join(name), of_claude));
            }
        }
        if let Some(home) = &self.home {
            files.push(ControlFile::file(home.join(".claude.json"), of_claude));
        }
        if let Some(dir) = &self.credentials {
            files.push(ControlFile::dir(dir, "sign-in credentials").unreadable());
        }
        if let Some(dir) = &self.cache {
            files.push(ControlFile::dir(dir, "capabilities of claude"));
        }
        for dir in &self.runtime {
            files.push(ControlFile::dir(dir, "sockets and locks of Adjutant"));
        }
        for path in &self.programs {
            files.push(ControlFile::file(path, "a program that runs agents"));
        }
        files
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ControlFiles {
    root: PathBuf,
    /// Entries that do not depend on the current state of the disk.
    static_files: Vec<ControlFile>,
    /// The `permissions.deny` rules for the files that agents may not read.
    ///
    /// Computed once: an agent with a shell could otherwise change the rules of the next run with a symbolic link in
    /// `data/`.
    read_denials: Vec<String>,
    /// The paths in those rules.
    denied_paths: BTreeSet<PathBuf>,
}

impl ControlFiles {
    /// Lists the control files of a project with the active gateway files and the user's directories.
    pub(crate) fn from_settings(settings: &Settings) -> Self {
        let (gateway, user) =
            (GatewayFiles::locate(settings), UserDirs::from_environment(settings));
        Self::new(&settings.root, &gateway, &user)
    }

    pub(crate) fn new(root: &Path, gateway: &GatewayFiles, user: &UserDirs) -> Self {
        let mut static_files = project_files(root);
        static_files.extend(gateway_files(root, gateway));
        static_files.extend(git_files(root));
        static_files.extend(data_files(&root.join("data")));
        static_files.extend(log_files(&gateway.audit_log, "the audit log"));
        static_files.extend(user.control_files());
        let (mut read_denials, mut denied_paths) = (Vec::new(), BTreeSet::new());
        // A path that is no text cannot stand in a rule.
        for file in static_files.iter().filter(|file| file.is_unreadable) {
            // A path over a symbolic link has a rule for both spellings.
            let real = real_path(&file.path).ok().filter(|real| *real != file.path);
            for path in [file.path.clone()].into_iter().chain(real) {
                if let Some(text) = path.to_str() {
                    read_denials.extend(file.read_denials(text));
                    denied_paths.insert(path);
                }
            }
        }
        Self { root: root.to_path_buf(), static_files, read_denials, denied_paths }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the `permissions.deny` rules for the files that the agent may not read.
    ///
    /// Empty for an agent that may change control files: Claude Code 2.1.325 does not write a file that may not be
    /// read.
    pub(crate) fn read_denials(&self, agent: &Agent) -> Vec<String> {
        match agent.may_change_project_config {
            true => Vec::new(),
            false => self.read_denials.clone(),
        }
    }

    /// Returns `true` if the `permissions.deny` rules name this path.
    pub(crate) fn deny_reads_at(&self, path: &Path) -> bool {
        self.denied_paths.contains(path)
    }

    /// Returns the files that agents may not read. None of them depends on the current state of the disk.
    pub(crate) fn unreadable_files(&self) -> impl Iterator<Item = &ControlFile> {
        self.static_files.iter().filter(|file| file.is_unreadable)
    }

    /// Returns all current control files: the listed ones, extensions with a manifest, and the targets of
    /// symbolic links in configuration directories.
    ///
    /// Blocks on file I/O.
    ///
    /// # Errors
    ///
    /// If a directory cannot be read, or after 20,000 directory entries.
    pub(crate) fn current(&self) -> io::Result<Vec<ControlFile>> {
        let mut files = self.static_files.clone();
        files.extend(extension_files(&self.root.join("extensions"))?);
        let mut scan = LinkScan::default();
        for file in files.iter().filter(|file| file.kind == ControlFileKind::ConfigDir) {
            scan.search(&file.path, MAX_LINK_DEPTH, file.content)?;
        }
        files.extend(scan.found);
        Ok(files)
    }
}

fn project_files(root: &Path) -> Vec<ControlFile> {
    let manifests = EXTENSION_MANIFESTS.map(|name| {
        ControlFile::file(root.join("extensions"), "an extension manifest")
            .matching(format!("*/{name}"))
    });
    let dirs = [
        ControlFile::config_dir(root.join("agents"), "agent files"),
        ControlFile::config_dir(root.join(".claude"), "Claude Code settings"),
    ];
    dirs.into_iter().chain(manifests).collect()
}

/// Lists both file names in every directory that the gateway searches, and the files that variables
/// name.
fn gateway_files(root: &Path, gateway: &GatewayFiles) -> Vec<ControlFile> {
    let mut files = Vec::new();
    for (name, file, content) in [
        (MCP_CONFIG_NAME, &gateway.mcp_config, "MCP servers"),
        (RULES_NAME, &gateway.rules, "gateway rules"),
    ] {
        let own = [root.join(name), root.join("config").join(name), file.path.clone()];
        let paths: BTreeSet<PathBuf> = file.candidates.iter().cloned().chain(own).collect();
        files.extend(paths.into_iter().map(|path| ControlFile::file(path, content)));
    }
    files
}

/// Git's hooks and configuration, which run commands, of the project's repository and of every other one: git reads those
/// of a nested repository when a command runs in it. In a linked worktree `.git` is a file that names another directory.
fn git_files(root: &Path) -> Vec<ControlFile> {
    let repository = root.ancestors().map(|dir| dir.join(".git")).find(|git| git.exists());
    let mut dirs = BTreeSet::from([root.join(".git")]);
    let mut files = Vec::new();
    if let Some(git) = repository {
        if git.is_file() {
            files.push(ControlFile::file(&git, "the link to the git repository"));
            dirs.extend(linked_git_dirs(&git));
        }
        dirs.insert(git);
    }
    let commands = "git hooks and configuration";
    files.extend(dirs.into_iter().flat_map(|git| {
        [
            ControlFile::config_dir(git.join("hooks"), "git hooks"),
            ControlFile::file(git.join("config"), "git configuration"),
            ControlFile::file(git.join("config.worktree"), "git configuration"),
            ControlFile::new(git, ControlFileKind::GitDir, commands),
        ]
    }));
    files.push(ControlFile::new("/", ControlFileKind::GitRepositories, commands));
    files
}

/// Returns the Git directory of a linked worktree, and that of its repository.
fn linked_git_dirs(link: &Path) -> Vec<PathBuf> {
    let line = |file: &Path, key: &str| {
        let text = fs::read_to_string(file).ok()?;
        Some(PathBuf::from(text.lines().next()?.strip_prefix(key)?.trim()))
    };
    let Some(dir) = line(link, "gitdir:") else { return Vec::new() };
    let dir = link.with_file_name("").join(dir);
    let common = line(&dir.join("commondir"), "").map(|common| dir.join(common));
    [dir].into_iter().chain(common).collect()
}

/// Lists the files that Adjutant owns in `data/`. Other files in the same directory belong to the user.
fn data_files(data: &Path) -> Vec<ControlFile> {
    const FILES: [(&str, &str); 16] = [
        ("sessions.json", "sessions"),
        ("sessions.json.damaged-*", "sessions"),
        ("sessions.journal", "sessions"),
        ("sessions.journal.damaged-*", "sessions"),
        ("sessions.lock", "sessions"),
        ("costs.json", "costs"),
        ("costs.json.damaged-*", "costs"),
        ("costs-[0-9]*.journal", "costs"),
        ("costs.lock", "costs"),
        ("tokens.json", "tokens"),
        ("tokens.lock", "tokens"),
        ("tool-pins.json", "tool pins"),
        ("tool-pins.lock", "tool pins"),
        ("hook.log", "the log of hooks"),
        // Staged files, before they get their names.
        (".tmp-*", "a file of Adjutant that is being written"),
        (".staged-*", "a file of Adjutant that is being written"),
    ];
    const DIRS: [(&str, &str); 7] = [
        ("leases", "the queues of sessions"),
        ("open-sessions", "open sessions"),
        ("placeholders", "placeholders of sandboxes"),
        ("results", "answers of agents"),
        ("runs", "runs"),
        ("tmp", "private files of runs"),
        ("transcripts", "transcripts of agents in sandboxes"),
    ];
    let files = FILES.map(|(name, content)| match name.contains(['*', '[']) {
        true => ControlFile::file(data, content).matching(name),
        false => ControlFile::file(data.join(name), content),
    });
    let dirs = DIRS.map(|(name, content)| ControlFile::dir(data.join(name), content));
    let logs = log_files(&data.join("events.jsonl"), "the event log");
    files.into_iter().chain(dirs).map(ControlFile::unreadable).chain(logs).collect()
}

/// Lists an append-only log with its head and its rotated files.
fn log_files(log: &Path, content: &'static str) -> Vec<ControlFile> {
    let plain = |text: &OsStr| text.to_string_lossy().replace(['*', '?', '['], "?");
    let stem = log.file_stem().map(plain).unwrap_or_default();
    let extension = log.extension().map_or_else(|| "log".to_owned(), plain);
    let rotated = format!("{stem}.{LOG_NUMBER_GLOB}.{extension}");
    let dir = log.parent().unwrap_or(log);
    vec![
        ControlFile::file(log, content).unreadable(),
        ControlFile::file(head_path(log), content).unreadable(),
        ControlFile::file(dir, content).matching(rotated).unreadable(),
    ]
}

/// Lists the extensions with a manifest.
///
/// Of other directories only the manifest paths are control files.
fn extension_files(dir: &Path) -> io::Result<Vec<ControlFile>> {
    let mut found = Vec::new();
    for entry in entries(dir)? {
        let path = entry?.path();
        let is_there = |name: &str| path.join(name).symlink_metadata().is_ok();
        if EXTENSION_MANIFESTS.into_iter().any(is_there) {
            found.push(ControlFile::config_dir(&path, "an extension"));
        } else {
            // If the directory is a symbolic link, its manifest would be created in the target.
            let manifest = |name| ControlFile::file(path.join(name), "an extension manifest");
            found.extend(EXTENSION_MANIFESTS.map(manifest));
        }
    }
    Ok(found)
}

/// Returns the entries of a directory; none if it does not exist.
fn entries(dir: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => None,
        entries => Some(entries?),
    };
    Ok(entries.into_iter().flatten())
}

/// Search for the targets of symbolic links, bounded over all directories.
#[derive(Debug, Default)]
struct LinkScan {
    found: Vec<ControlFile>,
    seen: usize,
}

impl LinkScan {
    fn search(&mut self, dir: &Path, levels: u32, content: &'static str) -> io::Result<()> {
        for entry in entries(dir)? {
            let entry = entry?;
            self.seen += 1;
            if self.seen > MAX_SCANNED_ENTRIES {
                return Err(io::Error::other("the configuration directories have too many files"));
            }
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_symlink() {
                let kind = if path.is_dir() { ControlFileKind::Dir } else { ControlFileKind::File };
                self.found.push(ControlFile::new(path, kind, content));
            } else if kind.is_dir()
                && levels > 1
                && !UNSEARCHED_DIRS.iter().any(|name| entry.file_name() == *name)
            {
                self.search(&path, levels - 1, content)?;
            }
        }
        Ok(())
    }
}
