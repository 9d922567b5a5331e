//! `adjutant explain`: prints the decision on one server, tool or subagent, with its rule and file.

use clap::{ArgGroup, Args};

use super::show::unknown_agent;
use crate::api::{DecisionKind, DecisionObject, DecisionWord};
use crate::catalog::Snapshot;
use crate::cli::format::plural;
use crate::cli::permissions_view::PermissionsView;
use crate::cli::{
    CliCommand, CommandError, CommandReport, CommandResult, ErrorCode, ExitStatus, JsonArgument,
    output,
};
use crate::config::Settings;
use crate::policy::{CallDecision, Decision, Verdict};
use crate::util::strip_control_chars;

/// Say whether an agent may use a server, a tool or a subagent, or make a call, and by which rule
///
/// Exit code 0: allowed. 1: denied. 2: cannot be determined. 3: there is no such subagent.
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

    #[command(flatten)]
    pub(crate) format: JsonArgument,
}

impl CliCommand for ExplainArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        self.check_agent(settings)?;
        let rights = PermissionsView::load(settings);
        let verdict = self.evaluate(&rights);
        let patterns = self.builtin.as_deref().map(|tool| rights.call_patterns(&self.agent, tool));
        let patterns = patterns.unwrap_or_default();
        let output = CommandReport::new(&decision_object(self, &verdict, &patterns));
        match &verdict {
            Err(reason) if self.format.json => {
                output::print_error(reason);
                output.exit(ExitStatus::Usage).print(self.format)
            }
            Err(reason) => Err(CommandError::new(ErrorCode::Undetermined, reason)),
            Ok(verdict) => add_verdict(output, verdict, &patterns)
                .exit(ExitStatus::success_if(verdict.decision == Decision::Allow))
                .print(self.format),
        }
    }
}

impl ExplainArguments {
    /// Returns an error if a subagent is meant that does not exist. Other agents are names in the gateway's rules.
    fn check_agent(&self, settings: &Settings) -> Result<(), CommandError> {
        let is_own = self.builtin.is_some() || self.call.is_some();
        let meant = is_own.then_some(&self.agent).or(self.subagent.as_ref());
        let snapshot = Snapshot::load(settings);
        match meant.filter(|name| snapshot.get(name).is_none()) {
            Some(name) => Err(unknown_agent(&snapshot, name)),
            None => Ok(()),
        }
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

fn decision_object(
    arguments: &ExplainArguments,
    verdict: &Result<Verdict, String>,
    patterns: &[String],
) -> DecisionObject {
    let ExplainArguments { agent, server, tool, builtin, subagent, call, .. } = arguments;
    let (kind, target) = match (server, tool, builtin) {
        (Some(server), Some(tool), _) => (DecisionKind::Tool, format!("{server}/{tool}")),
        (Some(server), None, _) => (DecisionKind::Server, server.clone()),
        (None, _, Some(builtin)) => (DecisionKind::Builtin, builtin.clone()),
        (None, ..) => match call {
            Some(call) => (DecisionKind::Call, call.clone()),
            None => (DecisionKind::Subagent, subagent.clone().unwrap_or_default()),
        },
    };
    let found = verdict.as_ref().ok();
    let rule = found.map(|verdict| &verdict.rule);
    DecisionObject {
        decision: found.map_or(DecisionWord::Undetermined, |verdict| verdict.decision.into()),
        agent: agent.clone(),
        kind,
        target,
        server: server.clone(),
        tool: tool.clone(),
        rule: rule.map(|rule| rule.path.to_string()),
        file: rule.and_then(|rule| rule.file.as_ref()).map(|file| file.display().to_string()),
        line: rule.and_then(|rule| rule.line),
        reason: match verdict {
            Ok(verdict) => verdict.message().to_owned(),
            Err(reason) => reason.clone(),
        },
        patterns: patterns.to_vec(),
    }
}

fn add_verdict(output: CommandReport, evaluation: &Verdict, patterns: &[String]) -> CommandReport {
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
    let output = output.data(strip_control_chars(&format!("{word}: {}", evaluation.message())));
    let Some(file) = &evaluation.rule.file else { return output };
    let line = evaluation.rule.line.map(|line| format!(":{line}")).unwrap_or_default();
    output.data(format_args!("  {}{line}", file.display()))
}
