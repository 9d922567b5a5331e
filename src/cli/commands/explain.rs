//! `adjutant explain`: prints the decision on one server, tool or subagent, with its rule and file.

use std::path::Path;

use clap::{ArgGroup, Args};
use serde::Serialize;

use crate::cli::format::plural;
use crate::cli::permissions_view::PermissionsView;
use crate::cli::{CliCommand, CommandResult, ExitStatus, output, usage};
use crate::config::Settings;
use crate::policy::{CallDecision, Decision, Verdict};
use crate::util::strip_control_chars;

/// Say whether an agent may use a server, a tool or a subagent, or make a call, and by which rule
///
/// Exit code 0: allowed. 1: denied. 2: cannot be determined.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("subject").required(true).args(["server", "builtin", "subagent", "call"]))]
#[command(after_long_help = "Examples:\n  adjutant explain --agent web-search --builtin Bash\n  \
    adjutant explain --agent github --call 'Bash(gh pr list)'\n  \
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

    /// A call, written like a permission rule: 'Bash(git push)', 'WebFetch(domain:example.org)', 'Write(src/x)'
    #[arg(long, value_name = "CALL", allow_hyphen_values = true)]
    pub(crate) call: Option<String>,

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
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'a str>,
    /// Rules that allow some calls of a tool, if none allows the tool as a whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    patterns: Vec<String>,
    server: Option<&'a str>,
    tool: Option<&'a str>,
    rule: Option<&'a str>,
    file: Option<&'a Path>,
    line: Option<u32>,
    reason: &'a str,
}

impl CliCommand for ExplainArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let rights = PermissionsView::load(settings);
        let verdict = self.evaluate(&rights);
        let patterns = self.builtin.as_deref().map(|tool| rights.call_patterns(&self.agent, tool));
        let patterns = patterns.unwrap_or_default();
        if self.json {
            output::print_json(&explain_report(self, &verdict, patterns.clone()));
        }
        let verdict = verdict.map_err(usage)?;
        if !self.json {
            print_verdict(&verdict, &patterns);
        }
        Ok(ExitStatus::success_if(verdict.decision == Decision::Allow))
    }
}

impl ExplainArguments {
    fn evaluate(&self, rights: &PermissionsView<'_>) -> Result<Verdict, String> {
        let agent = &self.agent;
        if let Some(server) = &self.server {
            let verdict = rights.evaluate_mcp(agent, server, self.tool.as_deref())?;
            print_missing_rules_hint(rights, &verdict);
            Ok(verdict)
        } else if let Some(builtin) = &self.builtin {
            rights.evaluate_builtin(agent, builtin)
        } else if let Some(subagent) = &self.subagent {
            rights.evaluate_delegation(agent, subagent)
        } else {
            match rights.evaluate_call(agent, self.call.as_deref().unwrap_or_default())? {
                CallDecision::Decided(verdict) => Ok(verdict),
                CallDecision::Undetermined(reason) => Err(reason),
            }
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
    patterns: Vec<String>,
) -> ExplainReport<'a> {
    let evaluation = verdict.as_ref().ok();
    let rule = evaluation.map(|evaluation| &evaluation.rule);
    ExplainReport {
        decision: evaluation.map(|evaluation| evaluation.decision),
        agent: &arguments.agent,
        builtin: arguments.builtin.as_deref(),
        subagent: arguments.subagent.as_deref(),
        call: arguments.call.as_deref(),
        patterns,
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

fn print_verdict(evaluation: &Verdict, patterns: &[String]) {
    let word = match evaluation.decision {
        Decision::Allow if patterns.is_empty() => "allowed".to_owned(),
        Decision::Allow => {
            format!(
                "allowed for {} only ({})",
                plural(patterns.len(), "pattern"),
                patterns.join(", ")
            )
        }
        Decision::Deny => "denied".to_owned(),
    };
    output::print(strip_control_chars(&format!("{word}: {}", evaluation.message())));
    if let Some(file) = &evaluation.rule.file {
        let line = evaluation.rule.line.map(|line| format!(":{line}")).unwrap_or_default();
        output::print(format_args!("  {}{line}", file.display()));
    }
}
