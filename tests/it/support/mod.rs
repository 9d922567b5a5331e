//! Support code of all tests: a temporary project, clients, and the programs that tests start.

pub mod claude_context;
pub mod fake_claude;
pub mod http;
pub mod idle_processes;
pub mod mcp;
pub mod real_claude;
pub mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A project in a temporary directory, removed when dropped.
pub struct TestContext {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl TestContext {
    /// Creates an empty project.
    pub fn new() -> Self {
        Self::with_program(env!("CARGO_BIN_EXE_adjutant").as_ref())
    }

    /// Like [`new`](Self::new), for another build of the program.
    pub fn with_program(program: &Path) -> Self {
        // Supervisors of processes that a test starts itself: its own executable has no `__keep`.
        adjutant::process::set_supervisor_program(env!("CARGO_BIN_EXE_adjutant"));
        let folder = tempfile::Builder::new()
            .prefix("adjutant-test-")
            .tempdir()
            .expect("a temporary folder");
        fs::create_dir_all(folder.path().join("home")).expect("a home");
        fs::create_dir_all(folder.path().join("project")).expect("a project");
        Self { folder, program: program.to_owned() }
    }

    /// The project's root directory.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("project").canonicalize().expect("the project is there")
    }

    /// The home directory of commands, empty at first.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home").canonicalize().expect("the home is there")
    }

    /// Writes a file of the project and creates the directories above it.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> &Self {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("its folder");
        fs::write(path, content).expect("the file");
        self
    }

    /// Writes `agents/<name>/agent.md`.
    pub fn agent(&self, name: &str, content: &str) -> &Self {
        self.write(format!("agents/{name}/agent.md"), content)
    }

    /// The entries of the audit log so far.
    pub fn audit_entries(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.root().join("data/audit.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
    }

    /// A command of the program in this project. Of the environment of the tests it has only `PATH`.
    pub fn adjutant<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(self.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("NO_COLOR", "1");
        command
    }

    /// Runs a command of the program until it exits.
    pub fn run<const N: usize>(&self, arguments: [&str; N]) -> Output {
        self.adjutant(arguments).output().expect("the program starts")
    }
}
