//! `adjutant extensions`: lists, checks, adds and removes extensions.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::api::{
    CheckObject, DefinitionState, ExtensionAgentObject, ExtensionObject, ExtensionServerObject,
};
use crate::catalog::{Diagnostic, Extension, Snapshot, Visibility};
use crate::cli::format::plural;
use crate::cli::table::{Column, Table};
use crate::cli::{
    CliCommand, CommandAccess, CommandError, CommandReport, CommandResult, ErrorCode, ExitStatus,
    JsonArgument, diagnostics,
};
use crate::config::Settings;
use crate::store::{copy_tree, remove_tree};
use crate::util::{AgentName, strip_control_chars};

/// Show, check, add and remove extensions: bundles of agents and MCP servers
#[derive(Debug, Subcommand)]
#[command(
    after_long_help = "Examples:\n  adjutant extensions list\n  adjutant extensions add ./review-kit"
)]
pub(crate) enum ExtensionsCommand {
    /// List the extensions with their agents and servers
    ///
    /// Exit code 0, also when one is broken: `check` is the command that judges.
    #[command(
        after_long_help = "Examples:\n  adjutant extensions list\n  adjutant extensions list --json | jq -r '.[].extension'"
    )]
    List {
        #[command(flatten)]
        format: JsonArgument,
    },
    /// Say what is wrong in extensions, with the line
    ///
    /// Findings go to stderr. Exit code 0 if nothing is wrong, else 1.
    #[command(after_long_help = "Example:\n  adjutant extensions check")]
    Check {
        #[command(flatten)]
        format: JsonArgument,
    },
    /// Copy an extension into the project
    ///
    /// The folder is copied to extensions/NAME, where NAME is its own; nothing is overwritten, and an extension that
    /// has mistakes, symlinks, or names that are there already is not taken. It grants nothing: its public servers
    /// are used by whom the gateway's rules allow. Exit code 0; 1 if it is invalid or there already; 2 if it is no
    /// folder; 4 if it cannot be copied.
    #[command(after_long_help = "Example:\n  adjutant extensions add ~/Downloads/review-kit")]
    Add {
        /// The folder with extension.json or gemini-extension.json
        path: PathBuf,
        #[command(flatten)]
        format: JsonArgument,
    },
    /// Remove an extension and everything in its folder
    ///
    /// Exit code 0; 3 if there is no such extension.
    #[command(after_long_help = "Example:\n  adjutant extensions remove review-kit")]
    Remove {
        /// The extension's name
        name: String,
        #[command(flatten)]
        format: JsonArgument,
    },
}

impl ExtensionsCommand {
    pub(crate) fn access(&self) -> CommandAccess {
        match self {
            Self::List { .. } | Self::Check { .. } => CommandAccess::ReadsOnly,
            Self::Add { .. } | Self::Remove { .. } => CommandAccess::ActsOrChanges,
        }
    }
}

impl CliCommand for ExtensionsCommand {
    fn run(&self, settings: &Settings) -> CommandResult {
        match self {
            Self::List { format } => list(settings).print(*format),
            Self::Check { format } => check(settings).print(*format),
            Self::Add { path, format } => add(settings, path)?.print(*format),
            Self::Remove { name, format } => remove(settings, name)?.print(*format),
        }
    }
}

fn list(settings: &Settings) -> CommandReport {
    let snapshot = Snapshot::load(settings);
    let extensions: Vec<_> =
        snapshot.extensions().iter().map(|each| extension_object(settings, each)).collect();
    let none = "there are no extensions: `adjutant extensions add PATH` brings one";
    CommandReport::list(&extensions, none, || table(snapshot.extensions()))
}

fn extension_object(settings: &Settings, extension: &Extension) -> ExtensionObject {
    let agents = extension.agents.iter().map(|agent| ExtensionAgentObject {
        agent: agent.name.clone(),
        file: settings.relative(&agent.file),
    });
    let servers = extension.servers.iter().map(|server| ExtensionServerObject {
        server: server.name.clone(),
        visibility: match server.visibility {
            Visibility::Public => "public".to_owned(),
            Visibility::Private => "private".to_owned(),
        },
    });
    ExtensionObject {
        extension: extension.name.clone(),
        file: settings.relative(&extension.file),
        state: state(extension),
        reason: first_problem(extension),
        agents: agents.collect(),
        servers: servers.collect(),
    }
}

fn state(extension: &Extension) -> DefinitionState {
    match (extension.has_errors(), extension.diagnostics.is_empty()) {
        (true, _) => DefinitionState::Broken,
        (false, false) => DefinitionState::Warned,
        (false, true) => DefinitionState::Ok,
    }
}

fn first_problem(extension: &Extension) -> Option<String> {
    let error = extension.diagnostics.iter().find(|found| found.is_error());
    error.or(extension.diagnostics.first()).map(ToString::to_string)
}

fn table(extensions: &[Extension]) -> Table {
    let mut table = Table::new([
        Column::text("EXTENSION"),
        Column::text("AGENTS").drop(3),
        Column::text("PUBLIC SERVERS").drop(2),
        Column::text("PRIVATE SERVERS").drop(1),
        Column::text("STATE"),
    ]);
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
        Some(reason) => format!("{}: {reason}", state(extension).as_str()),
        None => state(extension).as_str().to_owned(),
    };
    [
        extension.name.clone(),
        agents.join(", "),
        servers(Visibility::Public),
        servers(Visibility::Private),
        state,
    ]
    .map(|cell| strip_control_chars(&cell))
}

fn check(settings: &Settings) -> CommandReport {
    let snapshot = Snapshot::load(settings);
    let found = collect_diagnostics(&snapshot, |_| true);
    let errors = found.iter().filter(|found| found.is_error()).count();
    let output = CommandReport::new(&CheckObject {
        ok: errors == 0,
        files: snapshot.extensions().len(),
        errors,
        warnings: found.len() - errors,
        findings: found.iter().map(diagnostics::to_finding).collect(),
    });
    let number = plural(snapshot.extensions().len(), "extension");
    let counts = diagnostics::format_counts(&found);
    diagnostics::add_to(output, &found, &settings.root)
        .data(format_args!("{number} checked: {counts}"))
        .exit(ExitStatus::success_if(errors == 0))
}

/// Returns the diagnostics of the extensions that `wanted` accepts: manifests and agents.
fn collect_diagnostics(snapshot: &Snapshot, wanted: impl Fn(&str) -> bool) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for extension in snapshot.extensions().iter().filter(|each| wanted(&each.name)) {
        found.extend(extension.diagnostics.iter().cloned());
        let own = |file: &Path| extension.agents.iter().any(|agent| agent.file == file);
        let entries = snapshot.entries().iter().filter(|entry| own(&entry.file));
        found.extend(entries.flat_map(|entry| entry.diagnostics.iter().cloned()));
    }
    found
}

fn add(settings: &Settings, path: &Path) -> Result<CommandReport, CommandError> {
    let refuse =
        |code, why: String| CommandError::new(code, format_args!("{why}; nothing was changed"));
    let shown = path.display();
    let source = path.canonicalize().map_err(|error| {
        refuse(ErrorCode::InvalidArgument, format!("`{shown}` cannot be opened: {error}"))
    })?;
    if !source.is_dir() {
        return Err(refuse(ErrorCode::InvalidArgument, format!("`{shown}` is not a folder")));
    }
    let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Err(error) = name.parse::<AgentName>() {
        return Err(refuse(
            ErrorCode::InvalidArgument,
            format!("the folder's name cannot be an extension's: {error}"),
        ));
    }
    let target = settings.extensions_dir().join(&name);
    if fs::symlink_metadata(&target).is_ok() {
        return Err(refuse(
            ErrorCode::AlreadyExists,
            format!("`extensions/{name}` is there already"),
        ));
    }
    if target.starts_with(&source) {
        return Err(refuse(
            ErrorCode::InvalidArgument,
            "an extension cannot be the project itself".to_owned(),
        ));
    }
    copy_tree(&source, &target).map_err(|error| {
        refuse(ErrorCode::IoFailed, format!("`{shown}` cannot be copied: {error}"))
    })?;
    keep_if_valid(settings, &name, &target)
}

/// Validates a copied extension together with the project; removes the copy if it has errors.
fn keep_if_valid(
    settings: &Settings,
    name: &str,
    target: &Path,
) -> Result<CommandReport, CommandError> {
    let snapshot = Snapshot::load(settings);
    let found = collect_diagnostics(&snapshot, |each| each == name);
    diagnostics::print(&found, &settings.root);
    let sound = !found.iter().any(Diagnostic::is_error);
    let extension = snapshot.extensions().iter().find(|each| each.name == name && sound);
    let Some(extension) = extension else {
        let _ = remove_tree(target);
        let why = match found.is_empty() {
            true => "it has neither extension.json nor gemini-extension.json",
            false => "it has mistakes",
        };
        let message = format!("`{name}` was not added: {why}; nothing was changed");
        return Err(CommandError::new(ErrorCode::ExtensionInvalid, message));
    };
    Ok(CommandReport::new(&extension_object(settings, extension))
        .data(format_args!("extensions/{name}"))
        .message(format_summary(extension)))
}

fn format_summary(extension: &Extension) -> String {
    let [_, agents, public, private, _] = cells(extension);
    let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    format!(
        "agents: {}\npublic servers: {} (used by whom the gateway's rules allow)\nprivate servers: {} (for its agents alone)",
        or_none(agents),
        or_none(public),
        or_none(private)
    )
}

fn remove(settings: &Settings, name: &str) -> Result<CommandReport, CommandError> {
    let snapshot = Snapshot::load(settings);
    let extensions = snapshot.extensions();
    // Only listed names are accepted, so that a name cannot be a path.
    let Some(extension) = extensions.iter().find(|extension| extension.name == name) else {
        return Err(CommandError::not_found(
            ErrorCode::ExtensionNotFound,
            "extension",
            name,
            extensions.iter().map(|extension| extension.name.as_str()),
            "adjutant extensions list",
        ));
    };
    let output = CommandReport::new(&extension_object(settings, extension));
    remove_tree(&settings.extensions_dir().join(name)).map_err(|error| {
        let message = format!("`extensions/{name}` cannot be removed: {error}");
        CommandError::new(ErrorCode::IoFailed, message)
    })?;
    Ok(output.data(format_args!("extensions/{name} is gone")))
}
