//! The MCP tools that are left to one agent, for `show`: the matrix with one column, read by server.
//!
//! No server is started: the tools are those that a file names, and what holds for all others is said once.

use serde::Serialize;

use super::build::{Filter, Kind, Matrix, Row};
use crate::catalog::{Agent, ServerLaunch};
use crate::cli::rights::{Rights, shared_servers};
use crate::config::Settings;
use crate::policy::Decision;

/// What stands for every tool that no file names.
const ALL_OTHERS: &str = "every tool that no file names";

/// What an agent has of one of its servers.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(in crate::cli) struct ServerTools {
    server: String,
    /// Whether the server is the agent's own, or one behind the gateway.
    private: bool,
    /// Tools and patterns that it may call, as files name them.
    tools: Vec<String>,
    /// Whether it may call the tools that no file names.
    all_others: bool,
    /// Why the rest is not there, each a sentence with its rule.
    taken_away: Vec<String>,
}

/// What is left of every server that the agent declares.
pub(in crate::cli) fn agent_tools(settings: &Settings, agent: &Agent) -> Vec<ServerTools> {
    let names = agent.servers.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    if names.is_empty() {
        return Vec::new();
    }
    let rights = Rights::load(settings);
    let agents = [agent.name.to_string()];
    let matrix = Matrix::build(settings, &rights, &Filter { agents: &agents, servers: &names });
    let shared = shared_servers(settings);
    agent
        .servers
        .iter()
        .map(|entry| {
            let private = entry.launch != ServerLaunch::Shared;
            let mut left = ServerTools::new(&entry.name, private, &matrix.rows);
            if !private && !shared.contains(&entry.name) {
                left.take_all(
                    "no shared server has that name, so a run fails before its first turn",
                );
            } else if let (false, Err(reason)) = (private, rights.rules()) {
                left.take_all(&reason);
            }
            left
        })
        .collect()
}

impl ServerTools {
    fn new(server: &str, private: bool, rows: &[Row]) -> Self {
        let mut left = Self {
            server: server.to_owned(),
            private,
            tools: Vec::new(),
            all_others: false,
            taken_away: Vec::new(),
        };
        let own = |row: &&Row| {
            row.server.as_deref() == Some(server) && row.private_to.is_some() == private
        };
        for row in rows.iter().filter(own) {
            let Some(Some(cell)) = row.cells.first() else { continue };
            let denied = cell.decision == Decision::Deny;
            if denied {
                left.taken_away.push(cell.reason.clone());
            }
            match (row.kind, &row.tool) {
                // A server that is taken away as a whole needs no sentence for each of its tools.
                (Kind::Server, _) if denied => break,
                (Kind::OtherTools, _) => left.all_others = !denied,
                (Kind::Tool | Kind::Pattern, Some(tool)) if !denied => {
                    left.tools.push(tool.clone());
                }
                (Kind::Server | Kind::Builtin | Kind::Tool | Kind::Pattern, _) => {}
            }
        }
        left
    }

    fn take_all(&mut self, reason: &str) {
        self.tools.clear();
        self.all_others = false;
        self.taken_away = vec![reason.to_owned()];
    }

    /// For people: what there is on one line, and a line for everything that is not.
    pub(in crate::cli) fn lines(&self) -> Vec<String> {
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
