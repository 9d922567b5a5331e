//! `adjutant extensions list | check | add PATH | remove NAME`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use serde_json::{Value, json};

use super::exit::Exit;
use super::fit::fit;
use super::{problems, render};
use crate::base::{AgentName, copy_tree, nearest, remove_tree, without_controls};
use crate::catalog::{Diagnostic, Extension, Snapshot, Visibility};
use crate::config::Settings;

/// What to do with the extensions.
#[derive(Debug, Subcommand)]
pub(super) enum ExtensionsCommand {
    /// List the extensions with their agents and servers
    ///
    /// Exit code 0, also when one is broken: `check` is the command that judges.
    #[command(
        after_long_help = "Examples:\n  adjutant extensions list\n  adjutant extensions list --json | jq -r '.[].name'"
    )]
    List {
        /// Print the extensions as JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what is wrong in extensions, with the line
    ///
    /// Findings go to stderr. Exit code 0 if nothing is wrong, else 1.
    #[command(after_long_help = "Example:\n  adjutant extensions check")]
    Check,
    /// Copy an extension into the project
    ///
    /// The folder is copied to extensions/NAME, where NAME is its own; nothing is overwritten, and an extension that
    /// has mistakes, symlinks, or names that are there already is not taken. It grants nothing: its public servers
    /// are used by whom the gateway's rules allow. Exit code 0; 1 if it was not taken.
    #[command(after_long_help = "Example:\n  adjutant extensions add ~/Downloads/review-kit")]
    Add {
        /// The folder with extension.json or gemini-extension.json
        path: PathBuf,
    },
    /// Remove an extension and everything in its folder
    ///
    /// Exit code 0; 1 if there is no such extension.
    #[command(after_long_help = "Example:\n  adjutant extensions remove review-kit")]
    Remove {
        /// The extension's name
        name: String,
    },
}

pub(super) fn run(settings: &Settings, command: &ExtensionsCommand) -> Exit {
    match command {
        ExtensionsCommand::List { json } => list(settings, *json),
        ExtensionsCommand::Check => check(settings),
        ExtensionsCommand::Add { path } => add(settings, path),
        ExtensionsCommand::Remove { name } => remove(settings, name),
    }
}

fn list(settings: &Settings, as_json: bool) -> Exit {
    let snapshot = Snapshot::load(settings);
    let extensions = snapshot.extensions();
    if as_json {
        let all: Vec<Value> = extensions.iter().map(|each| row(settings, each)).collect();
        render::json(&all);
    } else if extensions.is_empty() {
        render::talk("there are no extensions: `adjutant extensions add PATH` brings one");
    } else {
        render::data(table(extensions));
    }
    Exit::Success
}

fn row(settings: &Settings, extension: &Extension) -> Value {
    let relative =
        |path: &Path| path.strip_prefix(&settings.root).unwrap_or(path).display().to_string();
    let agents: Vec<Value> = extension
        .agents
        .iter()
        .map(|agent| json!({ "name": agent.name, "file": relative(&agent.file) }))
        .collect();
    json!({
        "name": extension.name, "file": relative(&extension.file), "agents": agents,
        "servers": extension.servers, "state": state(extension),
        "reason": first_problem(extension),
    })
}

fn state(extension: &Extension) -> &'static str {
    match (extension.has_errors(), extension.diagnostics.is_empty()) {
        (true, _) => "broken",
        (false, false) => "warned",
        (false, true) => "ok",
    }
}

fn first_problem(extension: &Extension) -> Option<String> {
    let error = extension.diagnostics.iter().find(|found| found.is_error());
    error.or(extension.diagnostics.first()).map(ToString::to_string)
}

fn table(extensions: &[Extension]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_header([
        "extension",
        "agents",
        "public servers",
        "private servers",
        "state",
    ]);
    fit(&mut table);
    for extension in extensions {
        table.add_row(cells(extension));
    }
    table
}

fn cells(extension: &Extension) -> [String; 5] {
    let servers = |wanted| {
        let servers = extension.servers.iter().filter(|server| server.visibility == wanted);
        servers.map(|server| server.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let agents: Vec<&str> = extension.agents.iter().map(|agent| agent.name.as_str()).collect();
    let state = match first_problem(extension) {
        Some(reason) => format!("{}: {reason}", state(extension)),
        None => state(extension).to_owned(),
    };
    [
        extension.name.clone(),
        agents.join(", "),
        servers(Visibility::Public),
        servers(Visibility::Private),
        state,
    ]
    .map(|cell| without_controls(&cell))
}

fn check(settings: &Settings) -> Exit {
    let snapshot = Snapshot::load(settings);
    let found = found(&snapshot, |_| true);
    if !found.is_empty() {
        render::talk(problems::render(&found, &settings.root).trim_end());
        render::talk("");
    }
    let number = problems::plural(snapshot.extensions().len(), "extension");
    render::data(format_args!("{number} checked: {}", problems::count(&found)));
    if found.iter().any(Diagnostic::is_error) { Exit::Failure } else { Exit::Success }
}

/// What is wrong in the manifests and in the agents of the extensions that are wanted.
fn found(snapshot: &Snapshot, wanted: impl Fn(&str) -> bool) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for extension in snapshot.extensions().iter().filter(|each| wanted(&each.name)) {
        found.extend(extension.diagnostics.iter().cloned());
        let own = |file: &Path| extension.agents.iter().any(|agent| agent.file == file);
        let entries = snapshot.entries().iter().filter(|entry| own(&entry.file));
        found.extend(entries.flat_map(|entry| entry.diagnostics.iter().cloned()));
    }
    found
}

fn add(settings: &Settings, path: &Path) -> Exit {
    let refuse = |why: String| {
        render::problem(format_args!("{why}; nothing was changed"));
        Exit::Failure
    };
    let source = match path.canonicalize() {
        Ok(source) if source.is_dir() => source,
        Ok(_) => return refuse(format!("`{}` is not a folder", path.display())),
        Err(error) => return refuse(format!("`{}` cannot be opened: {error}", path.display())),
    };
    let name = source.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    if let Err(error) = name.parse::<AgentName>() {
        return refuse(format!("the folder's name cannot be an extension's: {error}"));
    }
    let target = settings.extensions_dir().join(&name);
    if fs::symlink_metadata(&target).is_ok() {
        return refuse(format!("`extensions/{name}` is there already"));
    }
    if target.starts_with(&source) {
        return refuse("an extension cannot be the project itself".to_owned());
    }
    match copy_tree(&source, &target) {
        Ok(()) => keep_if_sound(settings, &name, &target),
        Err(error) => refuse(format!("`{}` cannot be copied: {error}", path.display())),
    }
}

/// Judged where it lies now, among everything that is there; a mistake takes it away again.
fn keep_if_sound(settings: &Settings, name: &str, target: &Path) -> Exit {
    let snapshot = Snapshot::load(settings);
    let found = found(&snapshot, |each| each == name);
    let extension = snapshot.extensions().iter().find(|each| each.name == name);
    let sound = !found.iter().any(Diagnostic::is_error);
    if !found.is_empty() {
        render::talk(problems::render(&found, &settings.root).trim_end());
        render::talk("");
    }
    let Some(extension) = extension.filter(|_| sound) else {
        let _ = remove_tree(target);
        let why = match found.is_empty() {
            true => "it has neither extension.json nor gemini-extension.json",
            false => "it has mistakes",
        };
        render::problem(format_args!("`{name}` was not added: {why}; nothing was changed"));
        return Exit::Failure;
    };
    render::data(format_args!("extensions/{name}"));
    render::talk(brought(extension));
    Exit::Success
}

fn brought(extension: &Extension) -> String {
    let [_, agents, public, private, _] = cells(extension);
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    format!(
        "agents: {}\npublic servers: {} (used by whom the gateway's rules allow)\nprivate servers: {} (for its agents alone)",
        or_none(agents),
        or_none(public),
        or_none(private)
    )
}

fn remove(settings: &Settings, name: &str) -> Exit {
    let snapshot = Snapshot::load(settings);
    let names = || snapshot.extensions().iter().map(|extension| extension.name.as_str());
    // Only what is listed: no path can be smuggled in as a name.
    if !names().any(|known| known == name) {
        let hint = match nearest(name, names()).first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`adjutant extensions list` shows them".to_owned(),
        };
        let name = without_controls(name);
        render::problem(format_args!("there is no extension `{name}`: {hint}"));
        return Exit::Failure;
    }
    match remove_tree(&settings.extensions_dir().join(name)) {
        Ok(()) => {
            render::data(format_args!("extensions/{name} is gone"));
            Exit::Success
        }
        Err(error) => {
            render::problem(format_args!("`extensions/{name}` cannot be removed: {error}"));
            Exit::Failure
        }
    }
}
