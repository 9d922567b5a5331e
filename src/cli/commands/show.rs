//! `adjutant show AGENT`: prints the effective settings of an agent, each with its source.

use clap::Args;
use serde_json::Value;

use super::list::agent_object;
use super::matrix::{Matrix, MatrixFilter, MatrixRow, RowKind};
use crate::api::{AgentObject, ServerObject, SettingObject, SettingOrigin};
use crate::catalog::{
    Agent, CatalogEntry, EffectiveSetting, ServerLaunch, SettingSource, Snapshot,
    effective_settings,
};
use crate::cli::format::plural;
use crate::cli::permissions_view::{PermissionsView, shared_servers};
use crate::cli::table::{Column, Table};
use crate::cli::{
    CliCommand, CommandError, CommandReport, CommandResult, ErrorCode, ExitStatus, JsonArgument,
    diagnostics,
};
use crate::config::Settings;
use crate::policy::{Decision, builtin_tools};
use crate::util::{shorten, strip_control_chars};

const MAX_VALUE_CHARS: usize = 2_000;

/// Show what an agent's file means, every setting with where it came from
///
/// Variables such as ${API_KEY} are shown as they were written; they are put in only when the agent
/// is started. Exit code 0; 1 if the agent is broken; 3 if there is no such agent.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant show web-search\n  \
    adjutant show web-search --json | jq '.settings[] | select(.key == \"timeout_ms\")'")]
pub(crate) struct ShowAgentArguments {
    /// The agent's name
    agent: String,

    #[command(flatten)]
    format: JsonArgument,
}

impl CliCommand for ShowAgentArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let snapshot = Snapshot::load(settings);
        let entry =
            snapshot.get(&self.agent).ok_or_else(|| unknown_agent(&snapshot, &self.agent))?;
        let held =
            entry.agent().map(|agent| effective_settings(settings, agent)).unwrap_or_default();
        let tools = entry.agent().map(|agent| agent_tools(settings, agent)).unwrap_or_default();
        let output = CommandReport::new(&build_report(settings, entry, &held, &tools))
            .exit(ExitStatus::success_if(entry.agent().is_some()));
        add_text(output, settings, entry, &held, &tools).print(self.format)
    }
}

fn build_report(
    settings: &Settings,
    entry: &CatalogEntry,
    effective: &[EffectiveSetting],
    tools: &[ServerTools],
) -> AgentObject {
    let agent = entry.agent();
    AgentObject {
        settings: Some(effective.iter().map(setting_object).collect()),
        builtin_tools: agent.map(|agent| builtin_tools(agent)),
        servers: agent.map(|agent| tools.iter().map(|tools| tools.to_object(agent)).collect()),
        prompt: agent.map(|agent| agent.prompt.clone()),
        memory: agent.and_then(|agent| agent.memory.as_deref()).map(|file| settings.relative(file)),
        findings: Some(entry.diagnostics.iter().map(diagnostics::to_finding).collect()),
        ..agent_object(entry, settings)
    }
}

fn setting_object(setting: &EffectiveSetting) -> SettingObject {
    let (from, place) = match &setting.source {
        SettingSource::File { file, line } => (SettingOrigin::File, Some((file, *line))),
        SettingSource::BuiltIn => (SettingOrigin::BuiltIn, None),
    };
    SettingObject {
        key: setting.key.to_owned(),
        value: setting.value.clone(),
        from,
        file: place.map(|(file, _)| file.display().to_string()),
        line: place.map(|(_, line)| line),
    }
}

fn add_text(
    mut output: CommandReport,
    settings: &Settings,
    entry: &CatalogEntry,
    held: &[EffectiveSetting],
    tools: &[ServerTools],
) -> CommandReport {
    if !entry.diagnostics.is_empty() {
        let found = diagnostics::render(&entry.diagnostics, &settings.root);
        output = output.styled(found.trim_end());
    }
    match entry.agent() {
        Some(agent) => output.data(format_args!(
            "{}\nbuilt-in tools: {}\n{}\n{}",
            table(held),
            format_builtin_tools(agent),
            format_mcp_tools(tools),
            format_prompt(agent)
        )),
        None => output.message(format_args!(
            "\n`{}` is broken and cannot be run; nothing in its file counts",
            entry.name
        )),
    }
}

/// Formats the built-in tools that remain after grants and denials.
fn format_builtin_tools(agent: &Agent) -> String {
    let tools = builtin_tools(agent);
    if tools.is_empty() { "none".to_owned() } else { tools.join(", ") }
}

/// Formats the permitted tools of the agent's servers, as far as files name them.
fn format_mcp_tools(servers: &[ServerTools]) -> String {
    if servers.is_empty() {
        return "MCP tools: none".to_owned();
    }
    let lines: Vec<String> = servers.iter().flat_map(ServerTools::lines).collect();
    format!("MCP tools:\n{}", strip_control_chars(&lines.join("\n")))
}

fn format_prompt(agent: &Agent) -> String {
    let lines = plural(agent.prompt.lines().count(), "line");
    let memory = match (&agent.memory, agent.session) {
        (Some(_), true) => ", then memory.md",
        (Some(_), false) => "; memory.md is used only with `session: true`",
        (None, _) => "",
    };
    format!("system prompt: {lines}{memory}")
}

fn table(effective: &[EffectiveSetting]) -> Table {
    let mut table =
        Table::new([Column::text("SETTING"), Column::text("VALUE"), Column::text("FROM").drop(1)]);
    for EffectiveSetting { key, value, source } in effective {
        let value = shorten(&format_value(value), MAX_VALUE_CHARS);
        table.add_row([(*key).to_owned(), value, format_source(source)]);
    }
    table
}

fn format_source(source: &SettingSource) -> String {
    match source {
        SettingSource::File { file, line } => {
            let name = file.file_name().unwrap_or(file.as_os_str());
            format!("{} line {line}", name.display())
        }
        SettingSource::BuiltIn => "built-in default".to_owned(),
    }
}

/// Formats a value: text without quotes, one item per line, no empty or false members.
fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(format_value).collect::<Vec<_>>().join("\n"),
        Value::Object(members) => {
            let lines: Vec<String> = members
                .iter()
                .filter(|(_, value)| has_content(value))
                .map(|(key, value)| format!("{key}: {}", format_value(value).replace('\n', ", ")))
                .collect();
            if lines.is_empty() { "–".to_owned() } else { lines.join("\n") }
        }
        other => other.to_string(),
    }
}

fn has_content(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => members.values().any(has_content),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Returns an error with similar agent names.
pub(crate) fn unknown_agent(snapshot: &Snapshot, name: &str) -> CommandError {
    let names = snapshot.entries().iter().map(|entry| entry.name.as_str());
    CommandError::not_found(ErrorCode::AgentNotFound, "agent", name, names, "adjutant list")
}

/// Label of all tools that no file names.
const ALL_OTHERS: &str = "every tool that no file names";

/// Permitted tools of one server of an agent.
#[derive(Default)]
struct ServerTools {
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
fn agent_tools(settings: &Settings, agent: &Agent) -> Vec<ServerTools> {
    let names: Vec<String> = agent.servers.iter().map(|entry| entry.name.clone()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let rights = PermissionsView::load(settings);
    let agents = [agent.name.to_string()];
    let filter = MatrixFilter { agents: &agents, servers: &names };
    let matrix = Matrix::build(settings, &rights, &filter);
    let shared = shared_servers(settings);
    let tools = agent.servers.iter().map(|entry| {
        let private = entry.launch != ServerLaunch::Shared;
        let mut left = ServerTools::from_rows(&entry.name, private, &matrix.rows);
        if !private && !shared.contains(&entry.name) {
            left.deny_all("no shared server has that name, so a run fails before its first turn");
        } else if let (false, Err(reason)) = (private, rights.rules()) {
            left.deny_all(&reason);
        }
        left
    });
    tools.collect()
}

impl ServerTools {
    fn from_rows(server: &str, private: bool, rows: &[MatrixRow]) -> Self {
        let mut left = Self { server: server.to_owned(), private, ..Self::default() };
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

    fn to_object(&self, agent: &Agent) -> ServerObject {
        ServerObject {
            server: self.server.clone(),
            agent: self.private.then(|| agent.name.to_string()),
            tools: Some(self.tools.clone()),
            other_tools: Some(self.all_others),
            denied: Some(self.taken_away.clone()),
            sign_in: None,
        }
    }

    fn deny_all(&mut self, reason: &str) {
        self.tools.clear();
        self.all_others = false;
        self.taken_away = vec![reason.to_owned()];
    }

    /// Formats the permitted tools on one line and each denial on a line of its own.
    fn lines(&self) -> Vec<String> {
        let whose = if self.private { "its own" } else { "shared" };
        let others = self.all_others.then(|| ALL_OTHERS.to_owned());
        let left: Vec<String> = self.tools.iter().cloned().chain(others).collect();
        let left = match (left.as_slice(), self.tools.is_empty(), self.taken_away.is_empty()) {
            ([], ..) => "none".to_owned(),
            (_, true, true) => "all of its tools".to_owned(),
            (left, ..) => left.join(", "),
        };
        let mut lines = vec![format!("  {} ({whose}): {left}", self.server)];
        lines.extend(self.taken_away.iter().map(|reason| format!("    {reason}")));
        lines
    }
}
