//! The plan itself: from a contract to a command line.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::arguments::arguments;
use super::environment::{PlannedVariable, variables};
use super::features::Features;
use super::settings::settings;
use crate::base::AgentName;
use crate::catalog::{Agent, Limits, Template};
use crate::policy::builtin_tools;

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    /// The contract.
    pub agent: &'a Agent,
    /// The `claude` to start.
    pub program: &'a std::path::Path,
    /// What it can do.
    pub features: &'a Features,
    /// The text of `memory.md`, where the agent keeps a conversation and has one.
    pub memory: Option<&'a str>,
    /// The names of the variables that are set in our environment.
    pub present: &'a BTreeSet<String>,
    /// Which conversation it is to be.
    pub conversation: &'a ConversationStart,
}

/// Which conversation a process is started for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationStart {
    /// One under this id that leaves no transcript.
    Passing(String),
    /// A new one under this id.
    Create(String),
    /// One that goes on.
    Resume(String),
}

/// Exactly what will be started.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchPlan {
    /// For whom.
    pub agent: AgentName,
    /// The program.
    pub program: PathBuf,
    /// Its arguments; none holds a prompt or a secret.
    pub arguments: Vec<Argument>,
    /// Its environment: these names and no others.
    pub environment: Vec<PlannedVariable>,
    /// Its working folder as written; `None` is the project's root.
    pub folder: Option<Template>,
    /// Its system prompt, given by file.
    pub system_prompt: String,
    /// Its settings, given by file.
    pub settings: Value,
    /// The built-in tools that exist for it.
    pub builtin_tools: Vec<String>,
    /// Its MCP servers, tunnelled through its pipe.
    pub servers: Vec<PlannedServer>,
    /// Its limits.
    pub limits: Limits,
}

/// An MCP server that the agent reaches through its pipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedServer {
    /// Its name.
    pub name: String,
    /// Why the agent has it.
    pub reason: String,
}

/// One argument, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Argument {
    /// The flag.
    pub flag: &'static str,
    /// Its value, if it takes one.
    pub value: Option<ArgumentValue>,
    /// Why it is there.
    pub reason: String,
}

/// The value of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentValue {
    /// Just this.
    Text(String),
    /// The path of a private file that exists only for the run.
    File(PlannedFile),
    /// A folder, resolved when the process is started.
    Folder(Template),
}

/// A private file of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedFile {
    /// The system prompt.
    SystemPrompt,
    /// The settings.
    Settings,
}

impl PlannedFile {
    /// Its name in the run's folder.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::SystemPrompt => "system-prompt.md",
            Self::Settings => "settings.json",
        }
    }
}

/// Plans one launch.
pub fn plan(request: PlanRequest<'_>) -> LaunchPlan {
    let agent = request.agent;
    let builtin_tools = builtin_tools(agent);
    LaunchPlan {
        agent: agent.name.clone(),
        program: request.program.to_path_buf(),
        arguments: arguments(&request, &builtin_tools),
        environment: variables(agent, request.present),
        folder: agent.cwd.clone(),
        system_prompt: system_prompt(agent, request.memory),
        settings: settings(agent),
        servers: servers(agent),
        limits: agent.limits.clone(),
        builtin_tools,
    }
}

impl LaunchPlan {
    /// A digest of everything that decides what the agent is and may do, whichever conversation it is in.
    pub fn digest(&self) -> String {
        let lasting = |a: &&Argument| !super::arguments::CONVERSATION_FLAGS.contains(&a.flag);
        let arguments: Vec<&Argument> = self.arguments.iter().filter(lasting).collect();
        let contract = serde_json::json!([
            self.agent,
            self.program,
            arguments,
            self.environment,
            self.folder,
            self.system_prompt,
            self.settings,
            self.builtin_tools,
            self.servers,
        ]);
        let hash = Sha256::digest(contract.to_string().as_bytes());
        hash.iter().take(16).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }
}

fn system_prompt(agent: &Agent, memory: Option<&str>) -> String {
    match memory.map(str::trim).filter(|text| !text.is_empty()) {
        Some(memory) => format!("{}\n\n# Memory\n\n{memory}\n", agent.prompt.trim()),
        None => format!("{}\n", agent.prompt.trim()),
    }
}

fn servers(agent: &Agent) -> Vec<PlannedServer> {
    agent
        .servers
        .iter()
        .map(|server| PlannedServer {
            name: server.name.clone(),
            reason: "`mcp_servers` in its agent.md".to_owned(),
        })
        .collect()
}
