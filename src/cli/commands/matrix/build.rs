//! Computes the permission matrix: every agent against every known server, tool and built-in tool.
//!
//! No server is started. The tools of a server are those that a file names; one row covers all others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::api::{DecisionKind, DecisionObject};
use crate::catalog::{Agent, RuleText, ServerLaunch, ToolRef};
use crate::cli::format::plural;
use crate::cli::permissions_view::{PermissionsView, shared_servers};
use crate::cli::{CommandError, ErrorCode};
use crate::config::Settings;
use crate::policy::{Decision, GatewayRules, Verdict, builtin_tools};
use crate::util::{Pattern, nearest_names, one_line};

/// Placeholder that equals no tool name: its verdict holds for every tool that no file names.
const OTHER_TOOLS: &str = "any other tool";

#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) agents: Vec<MatrixColumn>,
    pub(crate) rows: Vec<MatrixRow>,
    /// Notes on omitted agents and missing rules.
    pub(crate) notes: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct MatrixColumn {
    pub(crate) name: String,
    /// True for a subagent of this project, false for a name that only the gateway rules contain.
    pub(crate) subagent: bool,
}

/// Permissions on one server, tool, pattern or built-in tool.
#[derive(Debug)]
pub(crate) struct MatrixRow {
    pub(crate) kind: RowKind,
    pub(crate) server: Option<String>,
    /// Agent that declares the server; `None` for a shared server.
    pub(crate) private_to: Option<String>,
    pub(crate) tool: Option<String>,
    /// One cell per agent, in column order; null if the server or tool does not exist for the agent.
    pub(crate) cells: Vec<Option<MatrixCell>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowKind {
    Server,
    /// A tool that a file names.
    Tool,
    /// A pattern that a file names, evaluated as written.
    Pattern,
    /// All tools that no file names.
    OtherTools,
    /// A built-in tool of Claude Code.
    Builtin,
}

/// Verdict for one agent and one row.
#[derive(Debug)]
pub(crate) struct MatrixCell {
    pub(crate) decision: Decision,
    pub(crate) rule: String,
    pub(crate) file: Option<PathBuf>,
    pub(crate) line: Option<u32>,
    pub(crate) reason: String,
    /// Rules that allow some calls of a built-in tool, if none allows the tool as a whole.
    pub(crate) patterns: Vec<String>,
}

impl MatrixCell {
    /// `yes`, `no`, or the number of patterns that a call has to match.
    pub(crate) fn word(&self) -> String {
        match self.decision {
            Decision::Allow if self.patterns.is_empty() => "yes".to_owned(),
            Decision::Allow => plural(self.patterns.len(), "pattern"),
            Decision::Deny => "no".to_owned(),
        }
    }
}

/// Agents and servers to include; an empty list includes all.
pub(crate) struct MatrixFilter<'f> {
    pub(crate) agents: &'f [String],
    pub(crate) servers: &'f [String],
}

impl MatrixFilter<'_> {
    fn includes(list: &[String], name: &str) -> bool {
        list.is_empty() || list.iter().any(|wanted| wanted == name)
    }
}

/// Returns the error on a wanted agent or server that is not known.
fn unknown_name_error(
    code: ErrorCode,
    what: &str,
    wanted: &[String],
    known: &BTreeSet<String>,
) -> Option<CommandError> {
    let name = wanted.iter().find(|name| !known.contains(*name))?;
    let near = nearest_names(name, known.iter().map(String::as_str));
    let list = |names: Vec<&str>| format!("`{}`", names.join("`, `"));
    let help = match (near.is_empty(), known.is_empty()) {
        (false, _) => format!("did you mean {}?", list(near)),
        (true, false) => {
            format!("there are {}", list(known.iter().map(String::as_str).collect()))
        }
        (true, true) => "there is none at all".to_owned(),
    };
    let message = format!("there is no {what} `{}`", one_line(name));
    Some(CommandError::new(code, message).with_help(help))
}

/// A shared server, or one that an agent declares.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MatrixServer {
    name: String,
    private_to: Option<String>,
}

impl Matrix {
    pub(crate) fn build(
        settings: &Settings,
        rights: &PermissionsView<'_>,
        filter: &MatrixFilter<'_>,
    ) -> Self {
        Self::from_known(&KnownNames::collect(settings, rights), filter)
    }

    /// Builds the matrix for names from the command line: an unknown agent or server is an error.
    pub(crate) fn build_checked(
        settings: &Settings,
        rights: &PermissionsView<'_>,
        filter: &MatrixFilter<'_>,
    ) -> Result<Self, CommandError> {
        let source = KnownNames::collect(settings, rights);
        match source.unknown_name(filter) {
            Some(reason) => Err(reason),
            None => Ok(Self::from_known(&source, filter)),
        }
    }

    /// Returns the cells for `--json`, row by row.
    pub(crate) fn decisions(&self) -> Vec<DecisionObject> {
        let cells = self.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
        let agents = self.agents.iter().cycle();
        let cells = cells.zip(agents).filter_map(|((row, cell), agent)| {
            cell.as_ref().map(|cell| cell.to_object(row, &agent.name))
        });
        cells.collect()
    }

    fn from_known(source: &KnownNames<'_>, filter: &MatrixFilter<'_>) -> Self {
        let columns = source.columns(filter);
        let mut rows = source.builtin_rows(&columns, filter);
        rows.extend(source.server_rows(&columns, filter));
        Self { rows, notes: source.notes(), agents: columns }
    }
}

/// Agents and servers that the files name.
struct KnownNames<'r> {
    rights: &'r PermissionsView<'r>,
    valid_agents: BTreeMap<String, Arc<Agent>>,
    shared_servers: Vec<String>,
}

impl<'r> KnownNames<'r> {
    fn collect(settings: &Settings, rights: &'r PermissionsView<'r>) -> Self {
        let valid_agents = rights
            .snapshot
            .entries()
            .iter()
            .filter_map(|entry| Some((entry.name.clone(), Arc::clone(entry.agent()?))))
            .collect();
        Self { rights, valid_agents, shared_servers: shared_servers(settings) }
    }

    /// Returns an error with similar names if a requested agent or server is unknown.
    fn unknown_name(&self, wanted: &MatrixFilter<'_>) -> Option<CommandError> {
        if wanted.agents.is_empty() && wanted.servers.is_empty() {
            return None;
        }
        let columns = self.columns(&MatrixFilter { agents: &[], servers: &[] });
        // A broken agent is known; a note reports that it is left out.
        let broken = self.rights.snapshot.entries().iter().map(|entry| entry.name.clone());
        let agents = columns.iter().map(|column| column.name.clone()).chain(broken).collect();
        let servers = self.servers(&columns).into_iter().map(|server| server.name).collect();
        unknown_name_error(ErrorCode::AgentNotFound, "agent", wanted.agents, &agents).or_else(
            || unknown_name_error(ErrorCode::ServerNotFound, "server", wanted.servers, &servers),
        )
    }

    fn rules(&self) -> Option<&GatewayRules> {
        self.rights.rules.as_ref().ok().map(|loaded| &loaded.rules)
    }

    fn columns(&self, filter: &MatrixFilter<'_>) -> Vec<MatrixColumn> {
        let ruled = self.rules().into_iter().flat_map(GatewayRules::agents).map(str::to_owned);
        let names: BTreeSet<String> = self.valid_agents.keys().cloned().chain(ruled).collect();
        let column =
            |name: String| MatrixColumn { subagent: self.valid_agents.contains_key(&name), name };
        names
            .into_iter()
            .filter(|name| MatrixFilter::includes(filter.agents, name))
            .map(column)
            .collect()
    }

    fn notes(&self) -> Vec<String> {
        let broken = self.rights.snapshot.entries().iter().filter(|entry| entry.agent().is_none());
        let mut notes: Vec<String> =
            broken.map(|entry| format!("agent `{}` is broken and left out", entry.name)).collect();
        let loaded = self.rights.rules.as_ref().ok();
        if let Some(loaded) = loaded.filter(|loaded| !loaded.file_exists) {
            let path = loaded.rules.file().display();
            notes.push(format!(
                "there are no gateway rules (`{path}`), so no shared server is granted"
            ));
        }
        notes
    }

    fn builtin_rows(&self, columns: &[MatrixColumn], filter: &MatrixFilter<'_>) -> Vec<MatrixRow> {
        if !filter.servers.is_empty() {
            return Vec::new();
        }
        let shown = || columns.iter().filter_map(|column| self.valid_agents.get(&column.name));
        let names: BTreeSet<String> = shown().flat_map(|agent| named_builtins(agent)).collect();
        let cell = |column: &MatrixColumn, tool: &str| {
            let verdict = column.subagent.then(|| self.rights.evaluate_builtin(&column.name, tool));
            let patterns = self.rights.call_patterns(&column.name, tool);
            verdict?.ok().map(|verdict| MatrixCell { patterns, ..MatrixCell::from(verdict) })
        };
        names
            .into_iter()
            .map(|tool| MatrixRow {
                kind: RowKind::Builtin,
                server: None,
                private_to: None,
                cells: columns.iter().map(|column| cell(column, &tool)).collect(),
                tool: Some(tool),
            })
            .collect()
    }

    fn server_rows(&self, columns: &[MatrixColumn], filter: &MatrixFilter<'_>) -> Vec<MatrixRow> {
        let servers = self.servers(columns);
        let wanted =
            servers.iter().filter(|server| MatrixFilter::includes(filter.servers, &server.name));
        wanted.flat_map(|server| self.rows_of_server(server, columns)).collect()
    }

    fn servers(&self, columns: &[MatrixColumn]) -> BTreeSet<MatrixServer> {
        let named = self.rules().map(GatewayRules::named_servers).unwrap_or_default();
        let shared = self.shared_servers.iter().map(String::as_str).chain(named);
        let mut servers: BTreeSet<MatrixServer> =
            shared.map(|name| MatrixServer { name: name.to_owned(), private_to: None }).collect();
        for agent in columns.iter().filter_map(|column| self.valid_agents.get(&column.name)) {
            servers.extend(agent.servers.iter().map(|entry| MatrixServer {
                name: entry.name.clone(),
                private_to: (entry.launch != ServerLaunch::Shared).then(|| agent.name.to_string()),
            }));
        }
        servers
    }

    fn rows_of_server(&self, server: &MatrixServer, columns: &[MatrixColumn]) -> Vec<MatrixRow> {
        let mut asked: Vec<(RowKind, Option<String>)> = vec![(RowKind::Server, None)];
        for name in self.named_tools(server, columns) {
            let kind =
                if Pattern::new(&name).is_literal() { RowKind::Tool } else { RowKind::Pattern };
            asked.push((kind, Some(name)));
        }
        asked.push((RowKind::OtherTools, Some(OTHER_TOOLS.to_owned())));
        let row = |(kind, tool): (RowKind, Option<String>)| MatrixRow {
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

    /// Evaluates one cell; `None` if the server does not exist for the agent.
    ///
    /// A server that an agent declares exists only for that agent and hides a shared one of the same name.
    fn cell(
        &self,
        column: &MatrixColumn,
        server: &MatrixServer,
        tool: Option<&str>,
    ) -> Option<MatrixCell> {
        let own = self.valid_agents.get(&column.name).is_some_and(|agent| {
            let private = |launch: &ServerLaunch| *launch != ServerLaunch::Shared;
            agent.servers.iter().any(|entry| entry.name == server.name && private(&entry.launch))
        });
        let exists = match &server.private_to {
            Some(owner) => *owner == column.name,
            None => !own,
        };
        let verdict = exists.then(|| self.rights.evaluate_mcp(&column.name, &server.name, tool));
        verdict?.ok().map(MatrixCell::from)
    }

    /// Returns the tools and patterns of a server that a file names.
    fn named_tools(&self, server: &MatrixServer, columns: &[MatrixColumn]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        if let (None, Some(rules)) = (&server.private_to, self.rules()) {
            names.extend(rules.tool_patterns(&server.name).map(str::to_owned));
        }
        let owners = columns
            .iter()
            .filter(|column| server.private_to.as_ref().is_none_or(|owner| *owner == column.name));
        for agent in owners.filter_map(|column| self.valid_agents.get(&column.name)) {
            if agent.servers.iter().any(|entry| entry.name == server.name) {
                names.extend(tools_named_by(agent, &server.name));
            }
        }
        names.remove("*");
        names
    }
}

/// Returns the built-in tools that the agent has, or that its file denies or excludes.
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

/// Returns the tools of a server that the agent's file names.
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

impl MatrixCell {
    fn to_object(&self, row: &MatrixRow, agent: &str) -> DecisionObject {
        DecisionObject {
            decision: self.decision.into(),
            agent: agent.to_owned(),
            kind: match row.kind {
                RowKind::Server => DecisionKind::Server,
                RowKind::Tool => DecisionKind::Tool,
                RowKind::Pattern => DecisionKind::Pattern,
                RowKind::OtherTools => DecisionKind::OtherTools,
                RowKind::Builtin => DecisionKind::Builtin,
            },
            target: match (&row.server, &row.tool) {
                (Some(server), Some(tool)) => format!("{server}/{tool}"),
                (Some(name), None) | (None, Some(name)) => name.clone(),
                (None, None) => String::new(),
            },
            server: row.server.clone(),
            tool: row.tool.clone(),
            rule: Some(self.rule.clone()),
            file: self.file.as_ref().map(|file| file.display().to_string()),
            line: self.line,
            reason: self.reason.clone(),
            patterns: self.patterns.clone(),
        }
    }
}

impl From<Verdict> for MatrixCell {
    fn from(evaluation: Verdict) -> Self {
        Self {
            decision: evaluation.decision,
            rule: evaluation.rule.path.to_string(),
            file: evaluation.rule.file.as_deref().map(PathBuf::from),
            line: evaluation.rule.line,
            reason: evaluation.reason,
            patterns: Vec::new(),
        }
    }
}
