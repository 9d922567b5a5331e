//! Support code of all tests: a temporary project, clients, and the programs that tests start.

pub mod claude_context;
pub mod fake_claude;
pub mod http;
pub mod idle_processes;
pub mod mcp;
pub mod real_claude;
pub mod schemas;
pub mod skip;
pub mod terminal;
pub mod text;
pub mod wait;

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
    /// Creates a project that has nothing but `.git`.
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
        fs::create_dir_all(folder.path().join("project/.git")).expect("a project");
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

    /// The audit log as text; empty if there is none.
    pub fn audit_log(&self) -> String {
        fs::read_to_string(self.root().join("data/audit.jsonl")).unwrap_or_default()
    }

    /// The entries of the audit log so far. An entry is in the file before its call is answered.
    pub fn audit_entries(&self) -> Vec<Value> {
        let entries = complete_lines(&self.audit_log());
        for entry in &entries {
            schemas::assert_valid("audit_entry", entry);
        }
        entries
    }

    /// The events in the event log so far, in order. A running server writes them after it has answered: a test waits
    /// for the event that it expects, or for the server's exit.
    pub fn events(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.root().join("data/events.jsonl"));
        let events = complete_lines(&log.unwrap_or_default());
        for event in &events {
            schemas::assert_valid("event", event);
        }
        events
    }

    /// The events of this name in the event log so far.
    pub fn events_named(&self, name: &str) -> Vec<Value> {
        let mut events = self.events();
        events.retain(|event| event["hook_event_name"] == name);
        events
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

/// Parses JSON lines. A last line without its LF is still being written, and left out.
fn complete_lines(text: &str) -> Vec<Value> {
    let complete = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    complete.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}
