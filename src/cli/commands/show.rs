//! `adjutant show AGENT`: the effective contract, every setting with where it came from.

use clap::Args;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{Table, TableComponent};
use serde::Serialize;
use serde_json::Value;

use super::exit::Exit;
use super::fit::fit;
use super::matrix::{ServerTools, agent_tools};
use super::{problems, render};
use crate::base::{nearest, shorten, without_controls};
use crate::catalog::{Agent, Diagnostic, Entry, Setting, Snapshot, Source, contract};
use crate::config::Settings;
use crate::policy::builtin_tools;

const VALUE_CHARACTERS: usize = 2_000;

/// What `show` may be told.
#[derive(Debug, Args)]
pub(super) struct ShowArguments {
    /// The agent's name
    agent: String,

    /// Print the contract as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'r> {
    name: &'r str,
    state: &'static str,
    file: String,
    settings: Vec<Setting>,
    builtin_tools: Option<Vec<String>>,
    mcp_tools: Option<Vec<ServerTools>>,
    prompt: Option<&'r str>,
    memory: Option<String>,
    diagnostics: &'r [Diagnostic],
}

pub(super) fn run(settings: &Settings, arguments: &ShowArguments) -> Exit {
    let snapshot = Snapshot::load(settings);
    let Some(entry) = snapshot.get(&arguments.agent) else {
        return say_unknown(&snapshot, &arguments.agent);
    };
    let held = entry.agent().map(|agent| contract(settings, agent)).unwrap_or_default();
    if arguments.json {
        render::json(&report(settings, entry, held));
    } else {
        show(settings, entry, &held);
    }
    if entry.agent().is_some() { Exit::Success } else { Exit::Failure }
}

fn report<'r>(settings: &Settings, entry: &'r Entry, held: Vec<Setting>) -> Report<'r> {
    let relative = |path: &std::path::Path| {
        path.strip_prefix(&settings.root).unwrap_or(path).display().to_string()
    };
    let agent = entry.agent();
    Report {
        name: &entry.name,
        state: if agent.is_some() { "ok" } else { "broken" },
        file: relative(&entry.file),
        settings: held,
        builtin_tools: agent.map(|agent| builtin_tools(agent)),
        mcp_tools: agent.map(|agent| agent_tools(settings, agent)),
        prompt: agent.map(|agent| agent.prompt.as_str()),
        memory: agent.and_then(|agent| agent.memory.as_deref()).map(relative),
        diagnostics: &entry.diagnostics,
    }
}

fn show(settings: &Settings, entry: &Entry, held: &[Setting]) {
    if !entry.diagnostics.is_empty() {
        render::talk(problems::render(&entry.diagnostics, &settings.root).trim_end());
    }
    match entry.agent() {
        Some(agent) => render::data(format_args!(
            "{}\nbuilt-in tools: {}\n{}\n{}",
            table(held),
            about_tools(agent),
            about_servers(settings, agent),
            about_prompt(agent)
        )),
        None => render::talk(format_args!(
            "\n`{}` is broken and cannot be run; nothing in its file counts",
            entry.name
        )),
    }
}

/// The built-in tools that are left of what was granted and taken away.
fn about_tools(agent: &Agent) -> String {
    let tools = builtin_tools(agent);
    if tools.is_empty() { "none".to_owned() } else { tools.join(", ") }
}

/// The same for the tools of its servers, as far as files name them.
fn about_servers(settings: &Settings, agent: &Agent) -> String {
    let servers = agent_tools(settings, agent);
    if servers.is_empty() {
        return "MCP tools: none".to_owned();
    }
    let lines: Vec<String> = servers.iter().flat_map(ServerTools::lines).collect();
    format!("MCP tools:\n{}", without_controls(&lines.join("\n")))
}

fn about_prompt(agent: &Agent) -> String {
    let lines = problems::plural(agent.prompt.lines().count(), "line");
    let memory = match (&agent.memory, agent.session) {
        (Some(_), true) => ", then memory.md",
        (Some(_), false) => "; memory.md is used only with `session: true`",
        (None, _) => "",
    };
    format!("system prompt: {lines}{memory}")
}

fn table(held: &[Setting]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_HORIZONTAL_ONLY)
        .set_header(["setting", "value", "from"])
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections);
    fit(&mut table);
    for Setting { key, value, source } in held {
        let value = shorten(&readable(value), VALUE_CHARACTERS);
        table.add_row([(*key).to_owned(), without_controls(&value), origin(source)]);
    }
    table
}

fn origin(source: &Source) -> String {
    match source {
        Source::File { file, line } => {
            let name = file.file_name().unwrap_or(file.as_os_str());
            format!("{} line {line}", name.display())
        }
        Source::BuiltIn => "built-in default".to_owned(),
    }
}

/// A value for people: no quotes around text, one item per line, nothing that says nothing.
fn readable(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(readable).collect::<Vec<_>>().join("\n"),
        Value::Object(members) => {
            let lines: Vec<String> = members
                .iter()
                .filter(|(_, value)| says_something(value))
                .map(|(key, value)| format!("{key}: {}", readable(value).replace('\n', ", ")))
                .collect();
            if lines.is_empty() { "–".to_owned() } else { lines.join("\n") }
        }
        other => other.to_string(),
    }
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => members.values().any(says_something),
        Value::Bool(true) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Says that there is no such agent, with the nearest names.
fn say_unknown(snapshot: &Snapshot, name: &str) -> Exit {
    let names = snapshot.entries().iter().map(|entry| entry.name.as_str());
    let near = nearest(name, names);
    let way_out = match near.as_slice() {
        [] => "`adjutant list` shows the agents there are".to_owned(),
        near => format!("did you mean `{}`?", near.join("` or `")),
    };
    let name = without_controls(&shorten(name, 80));
    render::problem(format_args!("there is no agent `{name}`: {way_out}"));
    Exit::Usage
}
