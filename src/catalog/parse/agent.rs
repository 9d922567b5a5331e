//! Reads one `agent.md` to its checked meaning, or to everything that is wrong with it.

use std::path::{Path, PathBuf};

use super::defaults::Defaults;
use super::diagnostic::{Diagnostic, Severity};
use super::front_matter::{self, Parts};
use super::keys;
use super::model::{
    Agent, Callers, Limits, Origin, Permissions, PolicyRules, ServerEntry, ServerLaunch, Template,
    ToolRef,
};
use super::node::{Fields, Node};
use super::positions::{Place, Positions};
use super::problem::{At, Problems};
use super::read_output::{self, Beside};
use super::read_policy::{self, Doubt};
use super::{read_limits, read_permissions, read_servers, read_tools, yaml};
use crate::base::{AgentName, RESERVED_MAIN, nearest, one_line, shorten};

/// A description longer than this is of no use in a tool list.
const MAX_DESCRIPTION: usize = 1_000;
/// A description longer than this costs every caller context.
const LONG_DESCRIPTION: usize = 300;

/// The file to read and what is around it.
#[derive(Clone, Debug)]
pub(super) struct AgentSource<'s> {
    /// The project's root, which nothing may leave.
    pub(super) root: &'s Path,
    /// The agent's folder.
    pub(super) folder: PathBuf,
    /// Its file.
    pub(super) file: PathBuf,
    /// The name it must have.
    pub(super) name: &'s AgentName,
    /// Where it comes from.
    pub(super) origin: Origin,
    /// `memory.md`, if it is there.
    pub(super) memory: Option<PathBuf>,
    /// The names of all folders beside it, to say which one a wrong name belongs to.
    pub(super) siblings: &'s [String],
    /// Servers that its extension gives to its agents.
    pub(super) lent: &'s [ServerEntry],
}

/// What came of reading a file.
#[derive(Debug)]
pub(super) struct AgentReading {
    /// The agent; `None` if anything is an error, so that nothing in a broken file grants anything.
    pub(super) agent: Option<Agent>,
    /// What was found, in the order of the file.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// A further file the meaning depends on.
    pub(super) schema_file: Option<PathBuf>,
}

/// Reads `text`, the content of the agent's file; `file` is how findings name it.
pub(super) fn read_agent(
    text: &str,
    source: &AgentSource<'_>,
    file: &Path,
    defaults: &Defaults,
) -> AgentReading {
    let mut problems = Problems::default();
    let mut schema_file = None;
    let parts = front_matter::split(text, &mut problems);
    let agent = parts.as_ref().and_then(|parts| {
        let mapping = yaml::read_mapping(parts.yaml, parts.first_line, &mut problems)?;
        let fields = Fields::new(&mapping, "", &mut problems);
        schema_file = read_output::schema_file(&fields).map(|name| source.folder.join(name));
        read_fields(&fields, parts, source, defaults, &mut problems)
    });
    let agent = agent.filter(|_| !problems.has_errors());
    AgentReading { agent, diagnostics: place(problems, parts.as_ref(), file), schema_file }
}

fn place(problems: Problems, parts: Option<&Parts<'_>>, file: &Path) -> Vec<Diagnostic> {
    if problems.found.is_empty() {
        return Vec::new();
    }
    let positions = parts.map(|parts| Positions::of(parts.yaml, parts.first_line));
    problems.place(file, &positions.unwrap_or_default())
}

fn read_fields(
    fields: &Fields<'_>,
    parts: &Parts<'_>,
    source: &AgentSource<'_>,
    defaults: &Defaults,
    problems: &mut Problems,
) -> Option<Agent> {
    keys::check(fields, problems);
    check_name(fields, source, problems);
    check_prompt(parts, problems);
    let mut own = defaults.clone();
    read_limits::defaults(fields, &mut own, problems);
    let rights = read_rights(fields, source.lent, problems);
    let beside = Beside { root: source.root, folder: &source.folder };
    let output = read_output::read(fields, own.output_retries, &beside, problems);
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

struct Rights {
    servers: Vec<ServerEntry>,
    permissions: Permissions,
    tools: Option<Vec<ToolRef>>,
    policy: PolicyRules,
}

fn read_rights(fields: &Fields<'_>, lent: &[ServerEntry], problems: &mut Problems) -> Rights {
    let node = fields.get("mcp_servers");
    let own = node.as_ref().map(|node| read_servers::read(node, problems)).unwrap_or_default();
    let mut servers = with_lent(own, lent, node.as_ref(), problems);
    let permissions =
        fields.get("permissions").map(|node| read_permissions::read(&node, &servers, problems));
    let tools = fields.get("tools").map(|node| {
        let tools = read_tools::read_list(&node, problems);
        read_policy::check_servers(&tools, &servers, Doubt::Error, problems);
        tools.into_iter().map(|(tool, _)| tool).collect()
    });
    let policy = fields.get("policy").map(|node| read_policy::read(&node, &servers, problems));
    leave_unlisted(&mut servers, lent, tools.as_deref());
    Rights {
        servers,
        permissions: permissions.unwrap_or_default(),
        tools,
        policy: policy.unwrap_or_default(),
    }
}

/// Its own servers and those of its extension. A name alone means the extension's; two servers of one name are a mistake.
fn with_lent(
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

/// A server of its extension that its `tools` do not list is none of its own.
fn leave_unlisted(servers: &mut Vec<ServerEntry>, lent: &[ServerEntry], tools: Option<&[ToolRef]>) {
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

fn check_name(fields: &Fields<'_>, source: &AgentSource<'_>, problems: &mut Problems) {
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

fn check_prompt(parts: &Parts<'_>, problems: &mut Problems) {
    if parts.body.trim().is_empty() {
        let line = parts.first_line + parts.yaml.lines().count();
        problems
            .warning("empty-prompt", At::Place(Place::at(line, 1)), "there is no system prompt")
            .help("write below the second `---` what the agent is and how it should work");
    }
}

fn read_description(fields: &Fields<'_>, problems: &mut Problems) -> Option<String> {
    let Some(node) = fields.get("description") else {
        problems
            .error("missing-key", At::Place(Place::at(1, 1)), "there is no `description`")
            .help(
                "add `description: \"what it is good for, in one sentence\"`: callers choose by it",
            );
        return None;
    };
    let text = one_line(node.text(problems)?);
    let length = text.chars().count();
    if length > LONG_DESCRIPTION {
        let message = format!("the description has {length} characters, too long for a tool list");
        let severity = if length > MAX_DESCRIPTION { Severity::Error } else { Severity::Warning };
        problems
            .add(severity, "description-too-long", node.at(), message)
            .help(format!("keep it under {LONG_DESCRIPTION}; details belong into the prompt"));
    }
    Some(text)
}

fn read_text(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Option<String> {
    fields.get(key)?.text(problems).map(str::to_owned)
}

fn read_session(fields: &Fields<'_>, problems: &mut Problems) -> bool {
    fields.get("session").and_then(|node| node.boolean(problems)).unwrap_or(false)
}

fn read_cwd(fields: &Fields<'_>, problems: &mut Problems) -> Option<Template> {
    let node = fields.get("cwd")?;
    node.text(problems)?;
    node.template(problems)
}

fn read_folders(fields: &Fields<'_>, problems: &mut Problems) -> Vec<Template> {
    let Some(node) = fields.get("add_dirs") else { return Vec::new() };
    let items = node.items_or_text(problems).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.text(problems).and_then(|_| item.template(problems)))
        .collect()
}

fn read_callers(fields: &Fields<'_>, problems: &mut Problems) -> Callers {
    let Some(node) = fields.get("allowed_callers") else {
        return Callers::Named(vec![RESERVED_MAIN.to_owned()]);
    };
    let Some(items) = node.items_or_text(problems) else { return Callers::Named(Vec::new()) };
    if items.is_empty() {
        problems
            .error("no-callers", node.at_key(), "`allowed_callers` is empty: nobody can call it")
            .help("write `allowed_callers: [main]`, or `[\"*\"]` for anyone known");
    }
    let names: Vec<&str> = items.iter().filter_map(|item| read_caller(item, problems)).collect();
    if names.contains(&"*") {
        return Callers::Anyone;
    }
    Callers::Named(names.into_iter().map(str::to_owned).collect())
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
    let near = nearest(name, [RESERVED_MAIN, "*"]);
    problems.error("invalid-caller", node.at(), message).help(match near.first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write `main`, the name of a native subagent, or `\"*\"` alone".to_owned(),
    });
    None
}

#[cfg(test)]
#[path = "agent_tests.rs"]
mod tests;
