//! A temporary project with the real `claude` and a scripted model.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use adjutant::scripted_model::ScriptedModel;
use tokio::runtime::Runtime;

use super::TestContext;
use super::mcp::McpClient;
use super::real_claude::{real_claude, scripted_environment};

/// The supported versions of `claude`, newest and oldest.
pub const NEW: &str = "2.1.325";
pub const OLD: &str = "2.1.197";

/// First lines of a script for a main `claude`: 2.1.197 starts its first turn before its servers are connected, and has a
/// tool that waits for them.
pub fn wait_for_servers_script(version: &str) -> &'static str {
    if version == OLD { "SLEEP 2\nCALL WaitForMcpServers {}\n" } else { "" }
}

/// A project, a scripted model and a version of `claude` that uses it.
pub struct ClaudeContext {
    pub context: TestContext,
    pub model: ScriptedModel,
    pub claude: PathBuf,
    _runtime: Runtime,
}

impl Deref for ClaudeContext {
    type Target = TestContext;

    fn deref(&self) -> &Self::Target {
        &self.context
    }
}

impl ClaudeContext {
    /// Creates the project; `None`, with a message, if this version of `claude` cannot be installed.
    pub fn new(version: &str) -> Option<Self> {
        Self::with_program(version, env!("CARGO_BIN_EXE_adjutant").as_ref())
    }

    /// Like [`new`](Self::new), for another build of the program.
    pub fn with_program(version: &str, program: &Path) -> Option<Self> {
        let claude = real_claude(version)?;
        let runtime = Runtime::new().expect("a runtime");
        let model = {
            let _inside = runtime.enter();
            ScriptedModel::start().expect("a scripted model")
        };
        Some(Self { context: TestContext::with_program(program), model, claude, _runtime: runtime })
    }

    /// A command of the program, which uses this `claude` and this model.
    pub fn adjutant<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = self.context.adjutant(arguments);
        command.envs(scripted_environment(&self.model, &self.context.home()));
        command.env("ADJUTANT_CLAUDE", &self.claude);
        command
    }

    /// Returns the report of `adjutant run AGENT PROMPT --json`, also of a failed run.
    pub fn run(&self, agent: &str, prompt: &str) -> serde_json::Value {
        report(&self.adjutant(["run", agent, prompt, "--json"]).output().expect("it runs"))
    }

    /// Starts `adjutant serve` and connects to it.
    pub fn serve(&self) -> McpClient {
        McpClient::connect(self.adjutant(["serve"]))
    }

    /// The bodies of all requests to the model so far, as text.
    pub fn all_requests_text(&self) -> String {
        self.model.requests().iter().map(|request| request.body.to_string()).collect()
    }
}

/// The report of a run that a main `claude` started last, from its own answer, which has the results of all its calls.
pub fn delegated_report(answer: &str) -> serde_json::Value {
    let start = answer.rfind("{\"result\":").unwrap_or_else(|| panic!("no report: {answer}"));
    let mut reports = serde_json::Deserializer::from_str(&answer[start..]).into_iter();
    reports.next().expect("a report").expect("JSON")
}

/// Parses the output of a command as JSON.
pub fn report(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}
