//! Parser of `agent.md`: returns an agent or all problems.

use std::path::{Path, PathBuf};

use super::super::diagnostic::{Diagnostic, Severity};
use super::super::problem::{ProblemTarget, Problems};
use super::front_matter::{self, FrontMatter};
use super::node::{MappingFields, Node};
use super::output::SchemaLocation;
use super::policy::UnknownServer;
use super::positions::{SourcePosition, SourcePositions};
use super::{agent_keys, limits, output, permissions, policy, servers, tools, yaml};
use crate::catalog::model::{
    Agent, AgentOrigin, AllowedCallers, Defaults, Limits, Permissions, PolicyRules, ServerEntry,
    ServerLaunch, Template, ToolRef,
};
use crate::util::{AgentName, RESERVED_MAIN, nearest_names, one_line, shorten};

/// Longer descriptions are an error.
const MAX_DESCRIPTION_CHARS: usize = 1_000;
/// Longer descriptions are a warning: they cost context of every caller.
const DESCRIPTION_WARNING_CHARS: usize = 300;

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

/// Parses `text`; `file` is the path shown in findings.
pub(crate) fn parse_agent(
    text: &str,
    source: &AgentSource<'_>,
    file: &Path,
    defaults: &Defaults,
) -> AgentParseResult {
    let mut problems = Problems::default();
    let mut schema_file = None;
    let parts = front_matter::split(text, &mut problems);
    let agent = parts.as_ref().and_then(|parts| {
        let mapping = yaml::parse_mapping(parts.yaml, parts.first_line, &mut problems)?;
        let fields = MappingFields::new(&mapping, &mut problems);
        schema_file = output::schema_file_name(&fields).map(|name| source.dir.join(name));
        read_fields(&fields, parts, source, defaults, &mut problems)
    });
    let agent = agent.filter(|_| !problems.has_errors());
    AgentParseResult {
        agent,
        diagnostics: locate_problems(problems, parts.as_ref(), file),
        schema_dependency: schema_file,
    }
}

fn locate_problems(
    problems: Problems,
    parts: Option<&FrontMatter<'_>>,
    file: &Path,
) -> Vec<Diagnostic> {
    if problems.found.is_empty() {
        return Vec::new();
    }
    let positions = parts.map(|parts| SourcePositions::parse(parts.yaml, parts.first_line));
    problems.locate(file, &positions.unwrap_or_default())
}

fn read_fields(
    fields: &MappingFields<'_>,
    parts: &FrontMatter<'_>,
    source: &AgentSource<'_>,
    defaults: &Defaults,
    problems: &mut Problems,
) -> Option<Agent> {
    agent_keys::check_keys(fields, problems);
    check_name(fields, source, problems);
    check_prompt(parts, problems);
    let mut own = defaults.clone();
    limits::parse_shared_keys(fields, &mut own, problems);
    let rights = read_permission_keys(fields, source.extension_servers, problems);
    let beside = SchemaLocation { root: source.root, dir: &source.dir };
    let output = output::parse_output(fields, own.output_retries, &beside, problems);
    let description = read_description(fields, problems);
    Some(Agent {
        name: source.name.clone(),
        display_name: read_text(fields, "display_name", problems).map(|text| one_line(&text)),
        description: description?,
        origin: source.origin.clone(),
        file: source.file.clone(),
        prompt: parts.body.clone(),
        memory: source.memory.clone(),
        session: read_session(fields, problems),
        allowed_callers: read_callers(fields, problems),
        cwd: read_cwd(fields, problems),
        add_dirs: read_folders(fields, problems),
        permissions: rights.permissions,
        tools: rights.tools,
        policy: rights.policy,
        may_change_project_config: read_may_change_project_config(fields, problems),
        servers: rights.servers,
        output,
        limits: limits(&own),
        model: own.model,
        effort: own.effort,
        env: own.env,
        warm: own.warm,
        keep_alive: own.keep_alive,
        hooks: own.hooks,
    })
}

struct ParsedPermissions {
    servers: Vec<ServerEntry>,
    permissions: Permissions,
    tools: Option<Vec<ToolRef>>,
    policy: PolicyRules,
}

fn read_permission_keys(
    fields: &MappingFields<'_>,
    lent: &[ServerEntry],
    problems: &mut Problems,
) -> ParsedPermissions {
    let node = fields.get("mcp_servers");
    let own = node.as_ref().map(|node| servers::parse_servers(node, problems)).unwrap_or_default();
    let mut servers = merge_extension_servers(own, lent, node.as_ref(), problems);
    let permissions = fields
        .get("permissions")
        .map(|node| permissions::parse_permissions(&node, &servers, problems));
    let tools = fields.get("tools").map(|node| {
        let tools = tools::parse_tools(&node, problems);
        policy::check_servers(&tools, &servers, UnknownServer::Error, problems);
        tools.into_iter().map(|(tool, _)| tool).collect()
    });
    let policy = fields.get("policy").map(|node| policy::parse_policy(&node, &servers, problems));
    remove_unlisted_servers(&mut servers, lent, tools.as_deref());
    ParsedPermissions {
        servers,
        permissions: permissions.unwrap_or_default(),
        tools,
        policy: policy.unwrap_or_default(),
    }
}

/// Merges the agent's servers with those of its extension.
/// A bare name refers to the extension's server; two definitions of one name are an error.
fn merge_extension_servers(
    mut own: Vec<ServerEntry>,
    lent: &[ServerEntry],
    node: Option<&Node<'_>>,
    problems: &mut Problems,
) -> Vec<ServerEntry> {
    for server in lent {
        match (own.iter_mut().find(|entry| entry.name == server.name), node) {
            (Some(entry), _) if entry.launch == ServerLaunch::Shared => {
                entry.launch = server.launch.clone();
            }
            (Some(_), Some(node)) => {
                let name = &server.name;
                let message = format!("`{name}` is a server of this file and of its extension");
                problems.error("duplicate-server", node.at(), message).help("rename one of them");
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

fn limits(own: &Defaults) -> Limits {
    Limits {
        timeout: own.timeout,
        idle_timeout: own.idle_timeout,
        max_turns: own.max_turns,
        max_budget_usd: own.max_budget_usd,
        max_output_chars: own.max_output_chars,
        max_concurrent: own.max_concurrent,
        approval_timeout: own.approval_timeout,
    }
}

fn check_name(fields: &MappingFields<'_>, source: &AgentSource<'_>, problems: &mut Problems) {
    let Some(node) = fields.get("name") else { return };
    let Some(written) = node.text(problems) else { return };
    let folder = source.name.as_str();
    if written == folder {
        return;
    }
    if source.siblings.iter().any(|sibling| sibling == written) {
        problems
            .error(
                "duplicate-name",
                node.at(),
                format!("`{written}` is the name of the agent in `agents/{written}/`, too"),
            )
            .help(format!("this folder is `{folder}`: write `name: {folder}`"));
    } else {
        problems
            .error(
                "name-mismatch",
                node.at(),
                format!("the name `{written}` differs from the folder's, `{folder}`"),
            )
            .help(format!("write `name: {folder}`, or rename the folder to `{written}`"));
    }
}

fn check_prompt(parts: &FrontMatter<'_>, problems: &mut Problems) {
    if parts.body.trim().is_empty() {
        let line = parts.first_line + parts.yaml.lines().count();
        problems
            .warning(
                "empty-prompt",
                ProblemTarget::Place(SourcePosition::at(line, 1)),
                "there is no system prompt",
            )
            .help("write below the second `---` what the agent is and how it should work");
    }
}

fn read_description(fields: &MappingFields<'_>, problems: &mut Problems) -> Option<String> {
    let Some(node) = fields.get("description") else {
        problems
            .error(
                "missing-key",
                ProblemTarget::Place(SourcePosition::at(1, 1)),
                "there is no `description`",
            )
            .help(
                "add `description: \"what it is good for, in one sentence\"`: callers choose by it",
            );
        return None;
    };
    let text = one_line(node.text(problems)?);
    let length = text.chars().count();
    if length > DESCRIPTION_WARNING_CHARS {
        let message = format!("the description has {length} characters, too long for a tool list");
        let severity =
            if length > MAX_DESCRIPTION_CHARS { Severity::Error } else { Severity::Warning };
        problems.add(severity, "description-too-long", node.at(), message).help(format!(
            "keep it under {DESCRIPTION_WARNING_CHARS}; details belong into the prompt"
        ));
    }
    Some(text)
}

fn read_text(fields: &MappingFields<'_>, key: &str, problems: &mut Problems) -> Option<String> {
    fields.get(key)?.text(problems).map(str::to_owned)
}

fn read_session(fields: &MappingFields<'_>, problems: &mut Problems) -> bool {
    fields.get("session").and_then(|node| node.boolean(problems)).unwrap_or(false)
}

fn read_may_change_project_config(fields: &MappingFields<'_>, problems: &mut Problems) -> bool {
    let Some(node) = fields.get("may_change_project_config") else { return false };
    let permitted = node.boolean(problems).unwrap_or(false);
    if permitted {
        let message = "the agent may change what decides about agents (agent files, gateway rules, hooks, settings) and read the files of Adjutant in `data/`";
        problems
            .warning("may-change-project-config", node.at_key(), message)
            .help("remove the key unless this agent exists to set up the project");
    }
    permitted
}

fn read_cwd(fields: &MappingFields<'_>, problems: &mut Problems) -> Option<Template> {
    let node = fields.get("cwd")?;
    node.text(problems)?;
    node.template(problems)
}

fn read_folders(fields: &MappingFields<'_>, problems: &mut Problems) -> Vec<Template> {
    let Some(node) = fields.get("add_dirs") else { return Vec::new() };
    let items = node.items_or_text(problems).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.text(problems).and_then(|_| item.template(problems)))
        .collect()
}

fn read_callers(fields: &MappingFields<'_>, problems: &mut Problems) -> AllowedCallers {
    let Some(node) = fields.get("allowed_callers") else {
        return AllowedCallers::Named(vec![RESERVED_MAIN.to_owned()]);
    };
    let Some(items) = node.items_or_text(problems) else {
        return AllowedCallers::Named(Vec::new());
    };
    if items.is_empty() {
        problems
            .error("no-callers", node.at_key(), "`allowed_callers` is empty: nobody can call it")
            .help("write `allowed_callers: [main]`, or `[\"*\"]` for anyone known");
    }
    let names: Vec<&str> = items.iter().filter_map(|item| read_caller(item, problems)).collect();
    if names.contains(&"*") {
        return AllowedCallers::Anyone;
    }
    AllowedCallers::Named(names.into_iter().map(str::to_owned).collect())
}

fn read_caller<'v>(node: &Node<'v>, problems: &mut Problems) -> Option<&'v str> {
    let name = node.text(problems)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if name == "*" || (name.len() <= 128 && name.chars().all(allowed)) {
        if name != RESERVED_MAIN && name.eq_ignore_ascii_case(RESERVED_MAIN) {
            problems
                .error("invalid-caller", node.at(), format!("there is no caller `{name}`"))
                .help("did you mean `main`?");
        }
        return Some(name);
    }
    let message = format!("`{}` is no caller's name", shorten(&one_line(name), 80));
    let near = nearest_names(name, [RESERVED_MAIN, "*"]);
    problems.error("invalid-caller", node.at(), message).help(match near.first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write `main`, the name of a native subagent, or `\"*\"` alone".to_owned(),
    });
    None
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
