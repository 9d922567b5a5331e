//! `adjutant explain`: prints the decision on one server, tool or subagent, with its rule and file.

use std::path::Path;

use clap::{ArgGroup, Args};
use serde::Serialize;

use super::show::unknown_agent;
use crate::catalog::Snapshot;
use crate::cli::permissions_view::PermissionsView;
use crate::cli::{CliCommand, CommandError, CommandResult, ErrorCode, ExitStatus, output};
use crate::config::Settings;
use crate::policy::{Decision, Verdict};
use crate::util::strip_control_chars;

/// Say whether an agent may use a server, a tool or a subagent, and by which rule
///
/// Exit code 0: allowed. 1: denied. 2: cannot say. 3: there is no such subagent.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("subject").required(true).args(["server", "builtin", "subagent"]))]
#[command(after_long_help = "Examples:\n  adjutant explain --agent web-search --builtin Bash\n  \
    adjutant explain --agent web-search --server brave-search --tool brave_web_search")]
pub(crate) struct ExplainArguments {
    /// Who asks: a subagent, `main`, or an agent of the gateway's rules
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) agent: String,

    /// An MCP server
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) server: Option<String>,

    /// A tool of that server
    #[arg(long, value_name = "NAME", requires = "server", allow_hyphen_values = true)]
    pub(crate) tool: Option<String>,

    /// A built-in tool of Claude Code, such as `Bash` or `shell`
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) builtin: Option<String>,

    /// A subagent that is to be run
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) subagent: Option<String>,

    /// Answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// JSON output; `decision` is null if no decision can be made.
#[derive(Serialize)]
struct ExplainReport<'a> {
    decision: Option<Decision>,
    agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    builtin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subagent: Option<&'a str>,
    server: Option<&'a str>,
    tool: Option<&'a str>,
    rule: Option<&'a str>,
    file: Option<&'a Path>,
    line: Option<u32>,
    reason: &'a str,
}

impl CliCommand for ExplainArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        self.check_agent(settings)?;
        let verdict = evaluate_request(settings, self);
        if self.json {
            output::print_json(&explain_report(self, &verdict));
        }
        match verdict {
            Err(reason) if self.json => {
                output::print_error(reason);
                Ok(ExitStatus::Usage)
            }
            Err(reason) => Err(CommandError::new(ErrorCode::Undetermined, reason)),
            Ok(verdict) => {
                if !self.json {
                    print_verdict(&verdict);
                }
                Ok(ExitStatus::success_if(verdict.decision == Decision::Allow))
            }
        }
    }
}

impl ExplainArguments {
    /// Returns an error if a subagent is meant that does not exist. Other agents are names in the gateway's rules.
    fn check_agent(&self, settings: &Settings) -> Result<(), CommandError> {
        let meant = self.builtin.as_ref().map(|_| &self.agent).or(self.subagent.as_ref());
        let snapshot = Snapshot::load(settings);
        match meant.filter(|name| snapshot.get(name).is_none()) {
            Some(name) => Err(unknown_agent(&snapshot, name)),
            None => Ok(()),
        }
    }
}

fn evaluate_request(settings: &Settings, arguments: &ExplainArguments) -> Result<Verdict, String> {
    let rights = PermissionsView::load(settings);
    let tool = arguments.tool.as_deref();
    match (&arguments.server, &arguments.builtin, &arguments.subagent) {
        (Some(server), ..) => {
            let judged = rights.evaluate_mcp(&arguments.agent, server, tool)?;
            print_missing_rules_hint(&rights, &judged);
            Ok(judged)
        }
        (None, Some(builtin), _) => rights.evaluate_builtin(&arguments.agent, builtin),
        (None, None, Some(subagent)) => rights.evaluate_delegation(&arguments.agent, subagent),
        (None, None, None) => {
            Err("say what for: `--server`, `--builtin` or `--subagent`".to_owned())
        }
    }
}

/// Prints a hint if the denial results from a missing rules file.
fn print_missing_rules_hint(rights: &PermissionsView<'_>, judged: &Verdict) {
    let Some(loaded) = rights.rules.as_ref().ok().filter(|loaded| !loaded.file_exists) else {
        return;
    };
    if judged.rule.file.as_deref() == Some(loaded.rules.file()) {
        let path = loaded.rules.file().display();
        output::print_message(format_args!(
            "there are no rules: `{path}` does not exist, so nobody may do anything"
        ));
    }
}

fn explain_report<'a>(
    arguments: &'a ExplainArguments,
    verdict: &'a Result<Verdict, String>,
) -> ExplainReport<'a> {
    let evaluation = verdict.as_ref().ok();
    let rule = evaluation.map(|evaluation| &evaluation.rule);
    ExplainReport {
        decision: evaluation.map(|evaluation| evaluation.decision),
        agent: &arguments.agent,
        builtin: arguments.builtin.as_deref(),
        subagent: arguments.subagent.as_deref(),
        server: arguments.server.as_deref(),
        tool: arguments.tool.as_deref(),
        rule: rule.map(|rule| &*rule.path),
        file: rule.and_then(|rule| rule.file.as_deref()),
        line: rule.and_then(|rule| rule.line),
        reason: match verdict {
            Ok(evaluation) => evaluation.message(),
            Err(reason) => reason,
        },
    }
}

fn print_verdict(evaluation: &Verdict) {
    let word = match evaluation.decision {
        Decision::Allow => "allowed",
        Decision::Deny => "denied",
    };
    output::print(strip_control_chars(&format!("{word}: {}", evaluation.message())));
    if let Some(file) = &evaluation.rule.file {
        let line = evaluation.rule.line.map(|line| format!(":{line}")).unwrap_or_default();
        output::print(format_args!("  {}{line}", file.display()));
    }
}
