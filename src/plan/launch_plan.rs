//! Launch plan: agent definition to command line.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::arguments::arguments;
use super::cli_features::CliFeatures;
use super::environment::{PlannedVariable, variables};
use crate::catalog::{Agent, Limits, RuleText, Template};
use crate::policy::builtin_tools;
use crate::util::AgentName;

/// Input of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanRequest<'a> {
    pub agent: &'a Agent,
    pub program: &'a std::path::Path,
    pub features: &'a CliFeatures,
    /// Text of `memory.md`, for agents with `session: true`.
    pub memory: Option<&'a str>,
    /// Names of all variables set in our environment.
    pub present_variables: &'a BTreeSet<String>,
    pub session: &'a SessionStart,
    /// Further rules for `permissions.deny`: the files that Adjutant owns.
    pub read_denials: &'a [String],
}

/// Session in which a process is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionStart {
    /// New session under this id, without a transcript.
    Ephemeral(String),
    /// New session under this id.
    Create(String),
    /// Existing session with this id.
    Resume(String),
}

impl SessionStart {
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Ephemeral(id) | Self::Create(id) | Self::Resume(id) => id,
        }
    }

    /// Returns Claude Code's word for the start of a session: `startup` or `resume`.
    pub(crate) fn source(&self) -> &'static str {
        match self {
            Self::Ephemeral(_) | Self::Create(_) => "startup",
            Self::Resume(_) => "resume",
        }
    }
}

/// Complete description of a launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LaunchPlan {
    pub agent: AgentName,
    pub program: PathBuf,
    /// Arguments; none holds a prompt or a secret.
    pub arguments: Vec<Argument>,
    /// Environment: these variables and no others.
    pub environment: Vec<PlannedVariable>,
    /// Working directory as written; `None` for the project's root.
    pub folder: Option<Template>,
    /// System prompt, passed as a file.
    pub system_prompt: String,
    /// Claude Code settings, passed as a file.
    pub settings: Value,
    /// Built-in tools of the agent.
    pub builtin_tools: Vec<String>,
    /// MCP servers, reached over the process's stdin and stdout.
    pub servers: Vec<PlannedServer>,
    pub limits: Limits,
}

/// MCP server of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PlannedServer {
    pub name: String,
    pub reason: String,
}

/// Argument with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Argument {
    pub flag: &'static str,
    pub value: Option<ArgumentValue>,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ArgumentValue {
    Text(String),
    /// Path of a private file that exists only during the run.
    File(PlannedFile),
    /// Directory, resolved when the process is started.
    Folder(Template),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PlannedFile {
    SystemPrompt,
    Settings,
}

impl PlannedFile {
    /// Returns the file name in the run's directory.
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Self::SystemPrompt => "system-prompt.md",
            Self::Settings => "settings.json",
        }
    }
}

pub(crate) fn plan(request: PlanRequest<'_>) -> LaunchPlan {
    let agent = request.agent;
    let builtin_tools = builtin_tools(agent);
    LaunchPlan {
        agent: agent.name.clone(),
        program: request.program.to_path_buf(),
        arguments: arguments(&request, &builtin_tools),
        environment: variables(agent, request.present_variables),
        folder: agent.cwd.clone(),
        system_prompt: system_prompt(agent, request.memory),
        settings: settings(agent, request.read_denials),
        servers: servers(agent),
        limits: agent.limits.clone(),
        builtin_tools,
    }
}

impl LaunchPlan {
    /// Returns the digest of the plan without the session: 32 hexadecimal digits of SHA-256.
    pub(crate) fn digest(&self) -> String {
        let is_digested = |a: &&Argument| !super::arguments::SESSION_FLAGS.contains(&a.flag);
        let arguments: Vec<&Argument> = self.arguments.iter().filter(is_digested).collect();
        let contract = json!([
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

fn settings(agent: &Agent, read_denials: &[String]) -> Value {
    let permissions = &agent.permissions;
    let mut allow = texts(&permissions.allow);
    allow.extend(agent.policy.trusted_servers.iter().map(|server| format!("mcp__{server}")));
    let mut deny = texts(&permissions.deny);
    deny.extend_from_slice(read_denials);
    json!({
        // Adds instructions about commits to the prompt, which agents do not need.
        "includeGitInstructions": false,
        "permissions": {
            "allow": allow,
            "ask": texts(&permissions.ask),
            "deny": deny,
        }
    })
}

fn texts(rules: &[RuleText]) -> Vec<String> {
    rules.iter().map(RuleText::to_string).collect()
}
