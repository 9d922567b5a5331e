//! A throw-away project to test in, and the program to test.

#[path = "real_claude.rs"]
pub mod claude;
#[path = "fake_claude.rs"]
pub mod fake;
pub mod http;
pub mod mcp;
#[path = "claude_context.rs"]
pub mod stage;
pub mod terminal;
#[path = "idle_processes.rs"]
pub mod waiting;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A project in a folder of its own that is gone when the test ends.
pub struct TestContext {
    folder: tempfile::TempDir,
}

impl TestContext {
    /// An empty project.
    pub fn new() -> Self {
        // Processes that a test starts itself are held by keepers, and those are this program.
        adjutant::worker::use_keeper_program(env!("CARGO_BIN_EXE_adjutant"));
        let folder = tempfile::Builder::new()
            .prefix("adjutant-test-")
            .tempdir()
            .expect("a temporary folder");
        fs::create_dir_all(folder.path().join("home")).expect("a home");
        fs::create_dir_all(folder.path().join("project")).expect("a project");
        Self { folder }
    }

    /// The project's root.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("project").canonicalize().expect("the project is there")
    }

    /// A home folder that is nobody's.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home").canonicalize().expect("the home is there")
    }

    /// Writes a file of the project, with the folders above it.
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

    /// The lines of the audit log so far.
    pub fn audit(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.root().join("data/audit.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
    }

    /// The program, in this project, with an environment that holds nothing of the developer's.
    pub fn adjutant<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_adjutant"));
        command
            .args(arguments)
            .current_dir(self.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("NO_COLOR", "1");
        command
    }

    /// Runs the program to its end.
    pub fn run<const N: usize>(&self, arguments: [&str; N]) -> Output {
        self.adjutant(arguments).output().expect("the program starts")
    }
}
