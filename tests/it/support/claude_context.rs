//! A project, the real `claude` and a scripted model: everything a delegation needs.

use std::path::PathBuf;
use std::process::{Command, Output};

use adjutant::scripted::ScriptedModel;
use tokio::runtime::Runtime;

use super::TestContext;
use super::claude::{real_claude, scripted_environment};
use super::mcp::McpClient;

/// Both versions that users have.
pub const NEW: &str = "2.1.325";
pub const OLD: &str = "2.1.197";

/// What a script for a main `claude` begins with: 2.1.197 has its first turn before its servers are connected, 2.1.325 waits.
pub fn until_connected(version: &str) -> &'static str {
    if version == OLD { "SLEEP 2\n" } else { "" }
}

/// The stage of one test.
pub struct Stage {
    pub context: TestContext,
    pub model: ScriptedModel,
    pub claude: PathBuf,
    _runtime: Runtime,
}

impl Stage {
    /// A stage with that version of `claude`; `None`, said aloud, where it cannot be had.
    pub fn new(version: &str) -> Option<Self> {
        let claude = real_claude(version)?;
        let runtime = Runtime::new().expect("a runtime");
        let model = {
            let _inside = runtime.enter();
            ScriptedModel::start().expect("a scripted model")
        };
        Some(Self { context: TestContext::new(), model, claude, _runtime: runtime })
    }

    /// The program, with that `claude` and that model.
    pub fn adjutant<const N: usize>(&self, arguments: [&str; N]) -> Command {
        let mut command = self.context.adjutant(arguments);
        command.envs(scripted_environment(&self.model, &self.context.home()));
        command.env("ADJUTANT_CLAUDE", &self.claude);
        command
    }

    /// `adjutant run AGENT PROMPT --json`: the report, whatever it says.
    pub fn run(&self, agent: &str, prompt: &str) -> serde_json::Value {
        report(&self.adjutant(["run", agent, prompt, "--json"]).output().expect("it runs"))
    }

    /// A client of `adjutant serve`.
    pub fn serve(&self) -> McpClient {
        McpClient::connect(self.adjutant(["serve"]))
    }

    /// What the model was told in all requests so far, as text.
    pub fn told(&self) -> String {
        self.model.requests().iter().map(|request| request.body.to_string()).collect()
    }
}

/// The JSON that a command printed.
pub fn report(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}
