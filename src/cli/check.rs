//! `adjutant check`: everything that is wrong in any file, with its line.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::exit::Exit;
use super::{problems, render};
use crate::base::read_bounded;
use crate::catalog::{Diagnostic, Severity, Snapshot, check_project, public_servers};
use crate::config::{GatewayFiles, Settings};
use crate::gateway::Pins;
use crate::policy::{GatewayRules, RuleProblem, unknown_servers};

/// What `check` may be told.
#[derive(Debug, Args)]
pub(super) struct CheckArguments {
    /// Count warnings as errors
    #[arg(long)]
    strict: bool,

    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'r> {
    ok: bool,
    files: usize,
    errors: usize,
    warnings: usize,
    diagnostics: &'r [Diagnostic],
}

pub(super) fn run(settings: &Settings, arguments: &CheckArguments) -> Exit {
    let snapshot = Snapshot::load(settings);
    let mut check = check_project(settings, &snapshot);
    let files = GatewayFiles::locate(settings);
    if files.rules.found {
        let servers = shared_servers(&files.mcp_config.path, &settings.root);
        check.file(&settings.root, &files.rules.path, |text, file| {
            check_rules(text, file, servers.as_deref())
        });
    }
    check.diagnostics.extend(check_tools(settings));
    let found = &check.diagnostics;
    let errors = found.iter().filter(|found| found.is_error()).count();
    let ok = errors == 0 && (found.is_empty() || !arguments.strict);
    if arguments.json {
        let warnings = found.len() - errors;
        render::json(&Report { ok, files: check.files, errors, warnings, diagnostics: found });
    } else {
        show(settings, found, &snapshot, check.files);
    }
    if ok { Exit::Success } else { Exit::Failure }
}

fn show(settings: &Settings, found: &[Diagnostic], snapshot: &Snapshot, files: usize) {
    if !found.is_empty() {
        render::talk(problems::render(found, &settings.root).trim_end());
        render::talk("");
    }
    let agents = problems::plural(snapshot.entries().len(), "agent");
    let files = problems::plural(files, "file");
    render::data(format_args!("{agents}, {files} checked: {}", problems::count(found)));
}

/// The names of the servers behind the gateway; `None` where they cannot be read, which is said elsewhere.
fn shared_servers(path: &Path, root: &Path) -> Option<Vec<String>> {
    let bytes = read_bounded(path, 1024 * 1024).ok()?;
    let config: Value = serde_json::from_slice(&bytes).ok()?;
    let own: BTreeSet<String> = config.get("mcpServers")?.as_object()?.keys().cloned().collect();
    let more = public_servers(root, &own).into_iter().map(|(name, _)| name);
    Some(own.iter().cloned().chain(more).collect())
}

fn check_rules(text: &str, file: &Path, servers: Option<&[String]>) -> Vec<Diagnostic> {
    match GatewayRules::parse(text, file) {
        Ok((rules, mut warnings)) => {
            if let Some(servers) = servers {
                warnings.extend(unknown_servers(&rules, servers.iter().map(String::as_str)));
            }
            warnings.iter().map(|problem| from_rules(problem, file, Severity::Warning)).collect()
        }
        Err(problems) => {
            problems.iter().map(|problem| from_rules(problem, file, Severity::Error)).collect()
        }
    }
}

/// What the gateway saw of the servers' tools that a person should look at.
fn check_tools(settings: &Settings) -> Vec<Diagnostic> {
    let pins = Pins::new(&settings.data_dir());
    let file = settings.data_dir().join("tool-pins.json");
    let file = file.strip_prefix(&settings.root).unwrap_or(&file);
    let found = match pins.findings() {
        Ok(found) => found,
        Err(error) => return vec![about_tools(file, error.to_string(), None)],
    };
    let changed = found.changed.iter().map(|(server, tools)| {
        let message =
            format!("server `{server}` changed the definition of `{}`", tools.join("`, `"));
        let help = format!("look at what it says now, then `adjutant trust {server}` accepts it");
        about_tools(file, message, Some(help))
    });
    let odd = found.odd.iter().flat_map(|(server, odd)| odd.iter().map(move |odd| (server, odd)));
    let odd = odd.map(|(server, odd)| about_tools(file, format!("server `{server}`: {odd}"), None));
    changed.chain(odd).collect()
}

fn about_tools(file: &Path, message: String, help: Option<String>) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        code: "server-tools",
        file: file.to_path_buf(),
        line: 1,
        column: 1,
        length: 1,
        message,
        help,
    }
}

fn from_rules(problem: &RuleProblem, file: &Path, severity: Severity) -> Diagnostic {
    Diagnostic {
        severity,
        code: "gateway-rules",
        file: file.to_path_buf(),
        line: usize::try_from(problem.line).unwrap_or(1).max(1),
        column: 1,
        length: 1,
        message: problem.message.clone(),
        help: problem.help.clone(),
    }
}
