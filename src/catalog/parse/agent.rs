//! Parser of `agent.md`: returns an agent or all problems.

use std::path::{Path, PathBuf};

use super::super::diagnostic::{Diagnostic, Severity};
use super::super::problem::{ProblemTarget, Problems};
use super::agent_keys::agent_keys;
use super::front_matter::{self, FrontMatter};
use super::key::read_keys;
use super::node::{MappingFields, Node};
use super::output::SchemaLocation;
use super::policy::UnknownServer;
use super::positions::{SourcePosition, SourcePositions};
use super::{output, permissions, policy, servers, tools, unknown_keys, yaml};
use crate::catalog::model::{Agent, AgentOrigin, ServerEntry, ServerLaunch, ToolRef};
use crate::util::AgentName;

/// The file to parse and its context.
#[derive(Clone, Debug)]
pub(crate) struct AgentSource<'s> {
    /// Directory that confines all files of the agent.
    pub(crate) root: &'s Path,
    /// Directory of the agent.
    pub(crate) dir: PathBuf,
    /// Path of the agent's file.
    pub(crate) file: PathBuf,
    /// Name required by the directory.
    pub(crate) name: &'s AgentName,
    pub(crate) origin: AgentOrigin,
    /// Path of `memory.md`, if it exists.
    pub(crate) memory: Option<PathBuf>,
    /// Names of all agent directories, to explain a wrong `name`.
    pub(crate) siblings: &'s [String],
    /// Private servers of the agent's extension.
    pub(crate) extension_servers: &'s [ServerEntry],
}

/// Result of parsing an agent file.
#[derive(Debug)]
pub(crate) struct AgentParseResult {
    /// `None` if there is any error, so that an invalid file grants nothing.
    pub(crate) agent: Option<Agent>,
    /// Findings in file order.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Schema file that the agent depends on.
    pub(crate) schema_dependency: Option<PathBuf>,
}

/// Parses `text`; `file` is the path shown in findings, `template` has the values of keys that the file leaves out.
pub(crate) fn parse_agent(
    text: &str,
    source: &AgentSource<'_>,
    file: &Path,
    template: &Agent,
) -> AgentParseResult {
    let problems = Problems::default();
    let mut schema_dependency = None;
    let parts = front_matter::split(text, &problems);
    let agent = parts.as_ref().and_then(|parts| {
        let mapping = yaml::parse_mapping(parts.yaml, parts.first_line, &problems)?;
        let fields = MappingFields::new(&mapping, &problems);
        schema_dependency = output::schema_file_name(&fields).map(|name| source.dir.join(name));
        Some(read_fields(&fields, parts, source, template))
    });
    AgentParseResult {
        agent: agent.filter(|_| !problems.has_errors()),
        diagnostics: problems.locate(file, || {
            let parse =
                |parts: &FrontMatter<'_>| SourcePositions::parse(parts.yaml, parts.first_line);
            parts.as_ref().map(parse).unwrap_or_default()
        }),
        schema_dependency,
    }
}

fn read_fields(
    fields: &MappingFields<'_>,
    parts: &FrontMatter<'_>,
    source: &AgentSource<'_>,
    template: &Agent,
) -> Agent {
    let mut agent = Agent {
        name: source.name.clone(),
        origin: source.origin.clone(),
        file: source.file.clone(),
        prompt: parts.body.clone(),
        memory: source.memory.clone(),
        ..template.clone()
    };
    unknown_keys::check_keys(fields);
    check_name(fields, source);
    check_prompt(parts, fields);
    check_description(fields);
    read_keys(agent_keys(), fields, &mut agent);
    read_permission_keys(fields, source.extension_servers, &mut agent);
    let beside = SchemaLocation { root: source.root, dir: &source.dir };
    output::parse_output(fields, &beside, &mut agent.output);
    agent
}

/// Reads `mcp_servers` and the keys that name tools of these servers.
fn read_permission_keys(fields: &MappingFields<'_>, lent: &[ServerEntry], agent: &mut Agent) {
    let node = fields.get("mcp_servers");
    let own = node.as_ref().map(|node| servers::parse_servers(node)).unwrap_or_default();
    let mut servers = merge_extension_servers(own, lent, node.as_ref());
    if let Some(node) = fields.get("permissions") {
        agent.permissions = permissions::parse_permissions(&node, &servers);
    }
    agent.tools = fields.get("tools").map(|node| {
        let tools = tools::parse_tools(&node);
        policy::check_servers(tools, &servers, UnknownServer::Error)
    });
    if let Some(node) = fields.get("policy") {
        agent.policy = policy::parse_policy(&node, &servers);
    }
    remove_unlisted_servers(&mut servers, lent, agent.tools.as_deref());
    agent.servers = servers;
}

/// Merges the agent's servers with those of its extension.
/// A bare name refers to the extension's server; two definitions of one name are an error.
fn merge_extension_servers(
    mut own: Vec<ServerEntry>,
    lent: &[ServerEntry],
    node: Option<&Node<'_>>,
) -> Vec<ServerEntry> {
    for server in lent {
        match (own.iter_mut().find(|entry| entry.name == server.name), node) {
            (Some(entry), _) if entry.launch == ServerLaunch::Shared => {
                entry.launch = server.launch.clone();
            }
            (Some(_), Some(node)) => {
                let name = &server.name;
                let message = format!("`{name}` is a server of this file and of its extension");
                node.error("duplicate-server", message).help("rename one of them");
            }
            (Some(_), None) | (None, _) => own.push(server.clone()),
        }
    }
    own
}

/// Removes the extension's servers that `tools` does not list.
fn remove_unlisted_servers(
    servers: &mut Vec<ServerEntry>,
    lent: &[ServerEntry],
    tools: Option<&[ToolRef]>,
) {
    let Some(tools) = tools else { return };
    let listed = |name: &str| {
        tools.iter().any(|tool| match tool {
            ToolRef::Mcp { server, .. } => server == name || server.contains(['*', '?', '[']),
            ToolRef::Builtin(_) => false,
        })
    };
    servers.retain(|server| !lent.contains(server) || listed(&server.name));
}

fn check_name(fields: &MappingFields<'_>, source: &AgentSource<'_>) {
    let Some(node) = fields.get("name") else { return };
    let Some(written) = node.text() else { return };
    let folder = source.name.as_str();
    if written == folder {
        return;
    }
    if source.siblings.iter().any(|sibling| sibling == written) {
        node.error(
            "duplicate-name",
            format!("`{written}` is the name of the agent in `agents/{written}/`, too"),
        )
        .help(format!("this folder is `{folder}`: write `name: {folder}`"));
    } else {
        node.error(
            "name-mismatch",
            format!("the name `{written}` differs from the folder's, `{folder}`"),
        )
        .help(format!("write `name: {folder}`, or rename the folder to `{written}`"));
    }
}

fn check_prompt(parts: &FrontMatter<'_>, fields: &MappingFields<'_>) {
    if parts.body.trim().is_empty() {
        let line = parts.first_line + parts.yaml.lines().count();
        let at = ProblemTarget::Place(SourcePosition::at(line, 1));
        fields
            .problems
            .add(Severity::Warning, "empty-prompt", at, "there is no system prompt")
            .help("write below the second `---` what the agent is and how it should work");
    }
}

fn check_description(fields: &MappingFields<'_>) {
    if fields.get("description").is_none() {
        let at = ProblemTarget::Place(SourcePosition::at(1, 1));
        fields.problems.error("missing-key", at, "there is no `description`").help(
            "add `description: \"what it is good for, in one sentence\"`: callers choose by it",
        );
    }
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
