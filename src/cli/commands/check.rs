//! `adjutant check`: validates all configuration files and reports findings with their lines.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;

use crate::api::{CheckObject, FindingObject, ReportLevel};
use crate::catalog::{
    Agent, Diagnostic, ProjectCheck, Severity, Snapshot, check_project, public_servers,
};
use crate::cli::commands::init::refresh_section;
use crate::cli::format::plural;
use crate::cli::{
    CliCommand, CommandAccess, CommandReport, CommandResult, ExitStatus, JsonArgument, diagnostics,
};
use crate::config::{GatewayFiles, Settings};
use crate::gateway::{FindingLevel, GatewayError, ServerSet, ToolPins, read_text};
use crate::policy::{GatewayRules, RuleProblem, builtin_tools, runs_commands, unknown_servers};
use crate::util::one_line;

/// Check every file of the project before it bites
///
/// Looks at agents/*/agent.md, agents/defaults.yaml, extensions, .mcp.json, the gateway's rules,
/// .claude/settings.json, and the list of subagents in agents/main/system-prompt.md. Findings go to
/// stderr, the summary to stdout. Exit code 0 if nothing is wrong, else 1.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  adjutant check\n  adjutant check --strict\n  adjutant check --fix\n  \
    adjutant check --json | jq -r '.findings[] | \"\\(.file):\\(.line): \\(.message)\"'"
)]
pub(crate) struct CheckArguments {
    /// Count warnings as errors
    #[arg(long)]
    strict: bool,

    /// Refresh the list of subagents in agents/main/system-prompt.md
    #[arg(long)]
    fix: bool,

    #[command(flatten)]
    format: JsonArgument,
}

impl CheckArguments {
    pub(crate) fn access(&self) -> CommandAccess {
        if self.fix { CommandAccess::ActsOrChanges } else { CommandAccess::ReadsOnly }
    }
}

impl CliCommand for CheckArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        if self.fix {
            refresh_section(settings);
        }
        let snapshot = Snapshot::load(settings);
        let mut check = check_project(settings, &snapshot);
        check_gateway(settings, &mut check);
        check.diagnostics.extend(check_tool_pins(settings));
        let found = &check.diagnostics;
        let errors = found.iter().filter(|found| found.is_error()).count();
        let warnings = found.len() - errors;
        let note = shell_note(&snapshot);
        let ok = errors == 0 && (warnings == 0 || !self.strict);
        let findings = found.iter().map(diagnostics::to_finding).chain(note.clone()).collect();
        let files = check.files;
        let output = CommandReport::new(&CheckObject { ok, files, errors, warnings, findings })
            .exit(ExitStatus::success_if(ok));
        let mut output = diagnostics::add_to(output, found, &settings.root);
        if let Some(note) = note {
            output = output.message(format_args!("note: {}", note.message));
        }
        let agents = plural(snapshot.entries().len(), "agent");
        let (files, counts) = (plural(files, "file"), diagnostics::format_counts(found));
        output.data(format_args!("{agents}, {files} checked: {counts}")).print(self.format)
    }
}

/// Returns a note on agents with a shell: a shell bypasses the denials on control files.
fn shell_note(snapshot: &Snapshot) -> Option<FindingObject> {
    let runs_commands = |agent: &Agent| builtin_tools(agent).iter().any(|tool| runs_commands(tool));
    let agents = snapshot.entries().iter().filter_map(|entry| entry.agent());
    let agents: Vec<String> =
        agents.filter(|agent| runs_commands(agent)).map(|agent| agent.name.to_string()).collect();
    let names = match agents.as_slice() {
        [] => return None,
        [name] => format!("agent `{name}` has a shell"),
        names => format!("agents `{}` have a shell", names.join("`, `")),
    };
    let message = format!(
        "{names}: only a sandbox keeps a shell from changing control files and reading `data/` (docs/security.md)"
    );
    Some(FindingObject {
        level: ReportLevel::Note,
        code: "shell".to_owned(),
        message,
        help: None,
        file: None,
        line: None,
        column: None,
    })
}

/// Checks `.mcp.json` and the gateway rules with the parsers that the gateway uses.
fn check_gateway(settings: &Settings, check: &mut ProjectCheck) {
    let root = &settings.root;
    let files = GatewayFiles::locate(settings);
    let path = &files.mcp_config.path;
    let mut servers = None;
    check.check_text(root, path, read_text(path), |text, file| {
        let (names, found) = check_servers(text, file, root);
        servers = names;
        found
    });
    let path = &files.rules.path;
    check.check_text(root, path, read_text(path), |text, file| {
        check_rules(text, file, servers.as_deref())
    });
}

/// Checks `.mcp.json`; also returns the names of all shared servers, or `None` if they cannot be read.
///
/// Entries that the gateway refuses are errors; entries that it accepts are at most warnings.
fn check_servers(text: &str, file: &Path, root: &Path) -> (Option<Vec<String>>, Vec<Diagnostic>) {
    let set = match ServerSet::parse(text) {
        Ok(set) => set,
        Err(GatewayError::InvalidServers { line, reason }) => {
            return (None, vec![servers_diagnostic(file, Severity::Error, Some(line), &reason)]);
        }
        Err(error) => {
            return (
                None,
                vec![servers_diagnostic(file, Severity::Error, None, &error.to_string())],
            );
        }
    };
    let remarks = set.findings.iter().filter_map(|remark| {
        let severity = match remark.level {
            FindingLevel::Excluded => return None,
            FindingLevel::Suspicious => Severity::Warning,
            FindingLevel::Invalid => Severity::Error,
        };
        Some(servers_diagnostic(file, severity, remark.line, &remark.message))
    });
    let obstacles = set.entries().iter().filter_map(|entry| {
        let obstacle = entry.spec.as_ref().ok()?.start_obstacle(root)?;
        let message = format!("server `{}` cannot be started here: {obstacle}", entry.name);
        Some(servers_diagnostic(file, Severity::Warning, entry.line, &message))
    });
    let mut found: Vec<Diagnostic> = remarks.chain(obstacles).collect();
    found.sort_by_key(|found| found.line);
    let own: BTreeSet<String> = set.all_names().map(str::to_owned).collect();
    let more = public_servers(root, &own).into_iter().map(|(name, _)| name);
    (Some(own.iter().cloned().chain(more).collect()), found)
}

fn servers_diagnostic(
    file: &Path,
    severity: Severity,
    line: Option<u32>,
    message: &str,
) -> Diagnostic {
    Diagnostic {
        severity,
        code: "mcp-servers",
        file: file.to_path_buf(),
        line: line.and_then(|line| usize::try_from(line).ok()).unwrap_or(1).max(1),
        column: 1,
        length: 1,
        // The message quotes user input, which may contain line breaks.
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
            warnings
                .iter()
                .map(|problem| rules_diagnostic(problem, file, Severity::Warning))
                .collect()
        }
        Err(problems) => problems
            .iter()
            .map(|problem| rules_diagnostic(problem, file, Severity::Error))
            .collect(),
    }
}

/// Returns the recorded warnings about tools: changed definitions, and findings in tool lists.
fn check_tool_pins(settings: &Settings) -> Vec<Diagnostic> {
    let pins = ToolPins::new(&settings.data_dir());
    let file = settings.data_dir().join("tool-pins.json");
    let file = file.strip_prefix(&settings.root).unwrap_or(&file);
    let found = match pins.findings() {
        Ok(found) => found,
        Err(error) => return vec![tools_diagnostic(file, error.to_string(), None)],
    };
    let changed = found.changed.iter().map(|(server, tools)| {
        let message =
            format!("server `{server}` changed the definition of `{}`", tools.join("`, `"));
        let help = format!("look at what it says now, then `adjutant trust {server}` accepts it");
        tools_diagnostic(file, message, Some(help))
    });
    let odd =
        found.warnings.iter().flat_map(|(server, odd)| odd.iter().map(move |odd| (server, odd)));
    let odd =
        odd.map(|(server, odd)| tools_diagnostic(file, format!("server `{server}`: {odd}"), None));
    changed.chain(odd).collect()
}

fn tools_diagnostic(file: &Path, message: String, help: Option<String>) -> Diagnostic {
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

fn rules_diagnostic(problem: &RuleProblem, file: &Path, severity: Severity) -> Diagnostic {
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
