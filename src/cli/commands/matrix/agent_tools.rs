//! Permitted MCP tools of one agent, for `show`: a matrix with one column, grouped by server.
//!
//! No server is started: only tools that a file names are listed; one entry covers all others.

use serde::Serialize;

use super::build::{Matrix, MatrixFilter, MatrixRow, RowKind};
use crate::catalog::{Agent, ServerLaunch};
use crate::cli::permissions_view::{PermissionsView, shared_servers};
use crate::config::Settings;
use crate::policy::Decision;

/// Label of all tools that no file names.
const ALL_OTHERS: &str = "every tool that no file names";

/// Permitted tools of one server of an agent.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ServerTools {
    server: String,
    /// True if the agent declares the server itself, false if the server is shared.
    private: bool,
    /// Permitted tools and patterns, as files name them.
    tools: Vec<String>,
    /// True if the tools that no file names are permitted.
    all_others: bool,
    /// Reasons of the denials, each with its rule.
    taken_away: Vec<String>,
}

/// Returns the permitted tools of every server that the agent uses.
pub(crate) fn agent_tools(settings: &Settings, agent: &Agent) -> Vec<ServerTools> {
    let names = agent.servers.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    if names.is_empty() {
        return Vec::new();
    }
    let rights = PermissionsView::load(settings);
    let agents = [agent.name.to_string()];
    let matrix =
        Matrix::build(settings, &rights, &MatrixFilter { agents: &agents, servers: &names });
    let shared = shared_servers(settings);
    agent
        .servers
        .iter()
        .map(|entry| {
            let private = entry.launch != ServerLaunch::Shared;
            let mut left = ServerTools::from_rows(&entry.name, private, &matrix.rows);
            if !private && !shared.contains(&entry.name) {
                left.deny_all(
                    "no shared server has that name, so a run fails before its first turn",
                );
            } else if let (false, Err(reason)) = (private, rights.rules()) {
                left.deny_all(&reason);
            }
            left
        })
        .collect()
}

impl ServerTools {
    fn from_rows(server: &str, private: bool, rows: &[MatrixRow]) -> Self {
        let mut left = Self {
            server: server.to_owned(),
            private,
            tools: Vec::new(),
            all_others: false,
            taken_away: Vec::new(),
        };
        let own = |row: &&MatrixRow| {
            row.server.as_deref() == Some(server) && row.private_to.is_some() == private
        };
        for row in rows.iter().filter(own) {
            let Some(Some(cell)) = row.cells.first() else { continue };
            let denied = cell.decision == Decision::Deny;
            if denied {
                left.taken_away.push(cell.reason.clone());
            }
            match (row.kind, &row.tool) {
                // One reason is enough for all tools of a denied server.
                (RowKind::Server, _) if denied => break,
                (RowKind::OtherTools, _) => left.all_others = !denied,
                (RowKind::Tool | RowKind::Pattern, Some(tool)) if !denied => {
                    left.tools.push(tool.clone());
                }
                (RowKind::Server | RowKind::Builtin | RowKind::Tool | RowKind::Pattern, _) => {}
            }
        }
        left
    }

    fn deny_all(&mut self, reason: &str) {
        self.tools.clear();
        self.all_others = false;
        self.taken_away = vec![reason.to_owned()];
    }

    /// Formats the permitted tools on one line and each denial on a line of its own.
    pub(crate) fn lines(&self) -> Vec<String> {
        let whose = if self.private { "its own" } else { "shared" };
        let others = self.all_others.then(|| ALL_OTHERS.to_owned());
        let left: Vec<String> = self.tools.iter().cloned().chain(others).collect();
        let left = match (left.as_slice(), self.tools.is_empty(), self.taken_away.is_empty()) {
            ([], ..) => "none".to_owned(),
            (_, true, true) => "all of its tools".to_owned(),
            (left, ..) => left.join(", "),
        };
        let first = format!("  {} ({whose}): {left}", self.server);
        std::iter::once(first)
            .chain(self.taken_away.iter().map(|reason| format!("    {reason}")))
            .collect()
    }
}
