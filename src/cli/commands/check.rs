//! `adjutant check`: everything that is wrong in any file, with its line.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;
use serde::Serialize;

use super::exit::Exit;
use super::{problems, render};
use crate::base::one_line;
use crate::catalog::{Diagnostic, ProjectCheck, Severity, Snapshot, check_project, public_servers};
use crate::config::{GatewayFiles, Settings};
use crate::gateway::{GatewayError, Pins, ServerSet, Weight, read_text};
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
    check_gateway(settings, &mut check);
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

/// The gateway's two files, read by the same functions that it reads them with.
fn check_gateway(settings: &Settings, check: &mut ProjectCheck) {
    let root = &settings.root;
    let files = GatewayFiles::locate(settings);
    let path = &files.mcp_config.path;
    let mut servers = None;
    check.text(root, path, read_text(path), |text, file| {
        let (names, found) = check_servers(text, file, root);
        servers = names;
        found
    });
    let path = &files.rules.path;
    check.text(root, path, read_text(path), |text, file| {
        check_rules(text, file, servers.as_deref())
    });
}

/// What the gateway refuses is an error, what it takes is at most a warning. Also the names of all servers behind it;
/// `None` where they cannot be read.
fn check_servers(text: &str, file: &Path, root: &Path) -> (Option<Vec<String>>, Vec<Diagnostic>) {
    let set = match ServerSet::parse(text) {
        Ok(set) => set,
        Err(GatewayError::InvalidServers { line, reason }) => {
            return (None, vec![about_servers(file, Severity::Error, Some(line), &reason)]);
        }
        Err(error) => {
            return (None, vec![about_servers(file, Severity::Error, None, &error.to_string())]);
        }
    };
    let remarks = set.remarks.iter().filter_map(|remark| {
        let severity = match remark.weight {
            Weight::LeftOut => return None,
            Weight::Odd => Severity::Warning,
            Weight::Refused => Severity::Error,
        };
        Some(about_servers(file, severity, remark.line, &remark.sentence))
    });
    let obstacles = set.entries().iter().filter_map(|entry| {
        let obstacle = entry.spec.as_ref().ok()?.obstacle(root)?;
        let message = format!("server `{}` cannot be started here: {obstacle}", entry.name);
        Some(about_servers(file, Severity::Warning, entry.line, &message))
    });
    let mut found: Vec<Diagnostic> = remarks.chain(obstacles).collect();
    found.sort_by_key(|found| found.line);
    let own: BTreeSet<String> = set.written_names().map(str::to_owned).collect();
    let more = public_servers(root, &own).into_iter().map(|(name, _)| name);
    (Some(own.iter().cloned().chain(more).collect()), found)
}

fn about_servers(file: &Path, severity: Severity, line: Option<u32>, message: &str) -> Diagnostic {
    Diagnostic {
        severity,
        code: "mcp-servers",
        file: file.to_path_buf(),
        line: line.and_then(|line| usize::try_from(line).ok()).unwrap_or(1).max(1),
        column: 1,
        length: 1,
        // What was written is quoted in it; it must not break a line.
        message: one_line(message),
        help: None,
    }
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
