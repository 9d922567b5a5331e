//! Who may do what, worked out: every agent against every server, tool and built-in tool that is known.
//!
//! No server is started for this. The tools of a server are those that some file names; what holds for all others
//! has a row of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::base::{nearest, one_line};
use crate::catalog::{Agent, RuleText, ServerLaunch, ToolRef};
use crate::cli::rights::{Rights, shared_servers};
use crate::config::Settings;
use crate::policy::{Decision, Evaluation, GatewayRules, Pattern, builtin_tools};

/// A name that no tool has: what holds for it holds for every tool that no file names.
const UNNAMED: &str = "any other tool";

/// The whole table.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    /// The columns.
    pub(super) agents: Vec<Column>,
    /// One for every server, tool and built-in tool.
    pub(super) rows: Vec<Row>,
    /// What could not be shown.
    pub(super) notes: Vec<String>,
}

/// One agent.
#[derive(Debug, Serialize)]
pub(super) struct Column {
    pub(super) name: String,
    /// Whether it is a subagent of this project, or only known to the gateway's rules.
    pub(super) subagent: bool,
}

/// One thing that can be used.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) server: Option<String>,
    /// The agent whose own server it is.
    pub(super) private_to: Option<String>,
    pub(super) tool: Option<String>,
    /// One per agent, in their order; null where the thing does not exist for it.
    pub(super) cells: Vec<Option<Cell>>,
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// A server.
    Server,
    /// A tool that a file names.
    Tool,
    /// A pattern that a file names, judged as it is written.
    Pattern,
    /// Every tool that no file names.
    OtherTools,
    /// A built-in tool of Claude Code.
    Builtin,
}

/// One answer.
#[derive(Debug, Serialize)]
pub(super) struct Cell {
    pub(super) decision: Decision,
    pub(super) rule: String,
    pub(super) file: Option<PathBuf>,
    pub(super) line: Option<u32>,
    pub(super) reason: String,
}

/// Which part is wanted; empty means all.
pub(super) struct Filter<'f> {
    pub(super) agents: &'f [String],
    pub(super) servers: &'f [String],
}

impl Filter<'_> {
    fn wants(list: &[String], name: &str) -> bool {
        list.is_empty() || list.iter().any(|wanted| wanted == name)
    }
}

fn unknown(what: &str, wanted: &[String], known: &BTreeSet<String>) -> Option<String> {
    let name = wanted.iter().find(|name| !known.contains(*name))?;
    let near = nearest(name, known.iter().map(String::as_str));
    let list = |names: Vec<&str>| format!("`{}`", names.join("`, `"));
    let help = match (near.is_empty(), known.is_empty()) {
        (false, _) => format!("did you mean {}?", list(near)),
        (true, false) => {
            format!("there are {}", list(known.iter().map(String::as_str).collect()))
        }
        (true, true) => "there is none at all".to_owned(),
    };
    Some(format!("there is no {what} `{}`; {help}", one_line(name)))
}

/// A server, shared or an agent's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Server {
    name: String,
    private_to: Option<String>,
}

impl Matrix {
    pub(super) fn build(settings: &Settings, rights: &Rights<'_>, filter: &Filter<'_>) -> Self {
        Self::of(&Known::of(settings, rights), filter)
    }

    /// The same, for a person's own words: a name that is no agent's or no server's is an error.
    pub(super) fn asked_for(
        settings: &Settings,
        rights: &Rights<'_>,
        filter: &Filter<'_>,
    ) -> Result<Self, String> {
        let source = Known::of(settings, rights);
        match source.unknown_name(filter) {
            Some(reason) => Err(reason),
            None => Ok(Self::of(&source, filter)),
        }
    }

    fn of(source: &Known<'_>, filter: &Filter<'_>) -> Self {
        let columns = source.columns(filter);
        let mut rows = source.builtin_rows(&columns, filter);
        rows.extend(source.server_rows(&columns, filter));
        Self { rows, notes: source.notes(), agents: columns }
    }
}

/// What the files name.
struct Known<'r> {
    rights: &'r Rights<'r>,
    sound: BTreeMap<String, Arc<Agent>>,
    shared: Vec<String>,
}

impl<'r> Known<'r> {
    fn of(settings: &Settings, rights: &'r Rights<'r>) -> Self {
        let sound = rights
            .snapshot
            .entries()
            .iter()
            .filter_map(|entry| Some((entry.name.clone(), Arc::clone(entry.agent()?))))
            .collect();
        Self { rights, sound, shared: shared_servers(settings) }
    }

    /// Says that a wanted name is no agent's or no server's, with the nearest that are.
    fn unknown_name(&self, wanted: &Filter<'_>) -> Option<String> {
        if wanted.agents.is_empty() && wanted.servers.is_empty() {
            return None;
        }
        let columns = self.columns(&Filter { agents: &[], servers: &[] });
        // A broken agent is known: a note says why it is left out.
        let broken = self.rights.snapshot.entries().iter().map(|entry| entry.name.clone());
        let agents = columns.iter().map(|column| column.name.clone()).chain(broken).collect();
        let servers = self.servers(&columns).into_iter().map(|server| server.name).collect();
        unknown("agent", wanted.agents, &agents)
            .or_else(|| unknown("server", wanted.servers, &servers))
    }

    fn rules(&self) -> Option<&GatewayRules> {
        self.rights.rules.as_ref().ok().map(|loaded| &loaded.rules)
    }

    fn columns(&self, filter: &Filter<'_>) -> Vec<Column> {
        let ruled = self.rules().into_iter().flat_map(GatewayRules::agents).map(str::to_owned);
        let names: BTreeSet<String> = self.sound.keys().cloned().chain(ruled).collect();
        let column = |name: String| Column { subagent: self.sound.contains_key(&name), name };
        names.into_iter().filter(|name| Filter::wants(filter.agents, name)).map(column).collect()
    }

    fn notes(&self) -> Vec<String> {
        let broken = self.rights.snapshot.entries().iter().filter(|entry| entry.agent().is_none());
        let mut notes: Vec<String> =
            broken.map(|entry| format!("agent `{}` is broken and left out", entry.name)).collect();
        let loaded = self.rights.rules.as_ref().ok();
        if let Some(loaded) = loaded.filter(|loaded| !loaded.found) {
            let path = loaded.rules.file().display();
            notes.push(format!(
                "there are no gateway rules (`{path}`), so no shared server is granted"
            ));
        }
        notes
    }

    fn builtin_rows(&self, columns: &[Column], filter: &Filter<'_>) -> Vec<Row> {
        if !filter.servers.is_empty() {
            return Vec::new();
        }
        let shown = || columns.iter().filter_map(|column| self.sound.get(&column.name));
        let names: BTreeSet<String> = shown().flat_map(|agent| named_builtins(agent)).collect();
        let cell = |column: &Column, tool: &str| {
            column.subagent.then(|| self.rights.judge_builtin(&column.name, tool).ok()).flatten()
        };
        names
            .into_iter()
            .map(|tool| Row {
                kind: Kind::Builtin,
                server: None,
                private_to: None,
                cells: columns.iter().map(|column| cell(column, &tool).map(Cell::from)).collect(),
                tool: Some(tool),
            })
            .collect()
    }

    fn server_rows(&self, columns: &[Column], filter: &Filter<'_>) -> Vec<Row> {
        let servers = self.servers(columns);
        let wanted = servers.iter().filter(|server| Filter::wants(filter.servers, &server.name));
        wanted.flat_map(|server| self.rows_of(server, columns)).collect()
    }

    fn servers(&self, columns: &[Column]) -> BTreeSet<Server> {
        let named = self.rules().map(GatewayRules::named_servers).unwrap_or_default();
        let shared = self.shared.iter().map(String::as_str).chain(named);
        let mut servers: BTreeSet<Server> =
            shared.map(|name| Server { name: name.to_owned(), private_to: None }).collect();
        for agent in columns.iter().filter_map(|column| self.sound.get(&column.name)) {
            servers.extend(agent.servers.iter().map(|entry| Server {
                name: entry.name.clone(),
                private_to: (entry.launch != ServerLaunch::Shared).then(|| agent.name.to_string()),
            }));
        }
        servers
    }

    fn rows_of(&self, server: &Server, columns: &[Column]) -> Vec<Row> {
        let mut asked: Vec<(Kind, Option<String>)> = vec![(Kind::Server, None)];
        for name in self.named_tools(server, columns) {
            let kind = if Pattern::new(&name).is_literal() { Kind::Tool } else { Kind::Pattern };
            asked.push((kind, Some(name)));
        }
        asked.push((Kind::OtherTools, Some(UNNAMED.to_owned())));
        let row = |(kind, tool): (Kind, Option<String>)| Row {
            kind,
            server: Some(server.name.clone()),
            private_to: server.private_to.clone(),
            cells: columns
                .iter()
                .map(|column| self.cell(column, server, tool.as_deref()))
                .collect(),
            tool,
        };
        asked.into_iter().map(row).collect()
    }

    /// An agent's own server exists for nobody else, and hides a shared one of the same name from its owner.
    fn cell(&self, column: &Column, server: &Server, tool: Option<&str>) -> Option<Cell> {
        let own = self.sound.get(&column.name).is_some_and(|agent| {
            let private = |launch: &ServerLaunch| *launch != ServerLaunch::Shared;
            agent.servers.iter().any(|entry| entry.name == server.name && private(&entry.launch))
        });
        let exists = match &server.private_to {
            Some(owner) => *owner == column.name,
            None => !own,
        };
        let judged = exists.then(|| self.rights.judge_mcp(&column.name, &server.name, tool));
        judged?.ok().map(Cell::from)
    }

    /// Tools and patterns that some file names for this server.
    fn named_tools(&self, server: &Server, columns: &[Column]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        if let (None, Some(rules)) = (&server.private_to, self.rules()) {
            names.extend(rules.tool_patterns(&server.name).map(str::to_owned));
        }
        let owners = columns
            .iter()
            .filter(|column| server.private_to.as_ref().is_none_or(|owner| *owner == column.name));
        for agent in owners.filter_map(|column| self.sound.get(&column.name)) {
            if agent.servers.iter().any(|entry| entry.name == server.name) {
                names.extend(tools_named_by(agent, &server.name));
            }
        }
        names.remove("*");
        names
    }
}

/// Built-in tools that an agent has, or that its file takes away.
fn named_builtins(agent: &Agent) -> Vec<String> {
    let refs = agent.policy.tools_exclude.iter().chain(agent.tools.iter().flatten());
    let literal = |tool: &ToolRef| match tool {
        ToolRef::Builtin(name) if Pattern::new(name).is_literal() => Some(name.clone()),
        ToolRef::Builtin(_) | ToolRef::Mcp { .. } => None,
    };
    let denied = agent.permissions.deny.iter().map(|rule| rule.tool.clone());
    let plain = |name: &String| name.chars().all(|c| c.is_ascii_alphanumeric());
    builtin_tools(agent)
        .into_iter()
        .chain(refs.filter_map(literal))
        .chain(denied.filter(plain))
        .collect()
}

/// Tools of a server that an agent's file names.
fn tools_named_by(agent: &Agent, server: &str) -> Vec<String> {
    let policy = &agent.policy;
    let refs = policy.tools_allowed.iter().flatten().chain(&policy.tools_exclude);
    let written = refs.chain(agent.tools.iter().flatten()).filter_map(|tool| match tool {
        ToolRef::Mcp { server: servers, tool } if Pattern::new(servers).matches(server) => {
            Some(tool.clone())
        }
        ToolRef::Mcp { .. } | ToolRef::Builtin(_) => None,
    });
    let prefix = format!("mcp__{server}__");
    let tool_of = |rule: &RuleText| rule.tool.strip_prefix(&prefix).map(str::to_owned);
    let permissions = agent.permissions.allow.iter().chain(&agent.permissions.deny);
    written.chain(permissions.filter_map(tool_of)).collect()
}

impl From<Evaluation> for Cell {
    fn from(evaluation: Evaluation) -> Self {
        Self {
            decision: evaluation.decision,
            rule: evaluation.rule.path.to_string(),
            file: evaluation.rule.file.as_deref().map(PathBuf::from),
            line: evaluation.rule.line,
            reason: evaluation.reason,
        }
    }
}
