//! `adjutant check`: everything that is wrong in any file, with its line.

use std::path::Path;

use clap::Args;
use serde::Serialize;

use super::exit::Exit;
use super::{problems, render};
use crate::catalog::{Diagnostic, Severity, Snapshot, check_project};
use crate::config::{GatewayFiles, Settings};
use crate::policy::{GatewayRules, RuleProblem};

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
    let rules = GatewayFiles::locate(settings).rules;
    if rules.found {
        check.file(&settings.root, &rules.path, check_rules);
    }
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

fn check_rules(text: &str, file: &Path) -> Vec<Diagnostic> {
    match GatewayRules::parse(text, file) {
        Ok((_, warnings)) => {
            warnings.iter().map(|problem| from_rules(problem, file, Severity::Warning)).collect()
        }
        Err(problems) => {
            problems.iter().map(|problem| from_rules(problem, file, Severity::Error)).collect()
        }
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
