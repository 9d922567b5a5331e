//! `adjutant explain`: allowed or denied, by which rule, in which file.

use std::path::Path;

use clap::{ArgGroup, Args};
use serde::Serialize;

use super::exit::Exit;
use super::render;
use super::rights::Rights;
use crate::base::without_controls;
use crate::config::Settings;
use crate::policy::{Decision, Evaluation};

/// `adjutant explain`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("subject").required(true).args(["server", "builtin"]))]
pub(super) struct ExplainArguments {
    /// Who asks: a subagent, or an agent of the gateway's rules
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(super) agent: String,

    /// An MCP server
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(super) server: Option<String>,

    /// A tool of that server
    #[arg(long, value_name = "NAME", requires = "server", allow_hyphen_values = true)]
    pub(super) tool: Option<String>,

    /// A built-in tool of Claude Code, such as `Bash` or `shell`
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(super) builtin: Option<String>,

    /// Answer as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The answer as a program reads it; `decision` is null where nothing can be said.
#[derive(Serialize)]
struct Answer<'a> {
    decision: Option<Decision>,
    agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    builtin: Option<&'a str>,
    server: Option<&'a str>,
    tool: Option<&'a str>,
    rule: Option<&'a str>,
    file: Option<&'a Path>,
    line: Option<u32>,
    reason: &'a str,
}

pub(super) fn run(settings: &Settings, arguments: &ExplainArguments) -> Exit {
    let judged = judge(settings, arguments);
    if arguments.json {
        render::json(&answer(arguments, &judged));
    }
    match (&judged, arguments.json) {
        (Ok(evaluation), false) => say(evaluation),
        (Err(reason), _) => render::problem(reason),
        (Ok(_), true) => {}
    }
    match judged.map(|evaluation| evaluation.decision) {
        Ok(Decision::Allow) => Exit::Success,
        Ok(Decision::Deny) => Exit::Failure,
        Err(_) => Exit::Usage,
    }
}

fn judge(settings: &Settings, arguments: &ExplainArguments) -> Result<Evaluation, String> {
    let rights = Rights::load(settings);
    let tool = arguments.tool.as_deref();
    match (&arguments.server, &arguments.builtin) {
        (Some(server), _) => {
            let judged = rights.judge_mcp(&arguments.agent, server, tool)?;
            note_missing_rules(&rights, &judged);
            Ok(judged)
        }
        (None, Some(builtin)) => rights.judge_builtin(&arguments.agent, builtin),
        (None, None) => Err("say what for: `--server` or `--builtin`".to_owned()),
    }
}

/// A refusal because there are no rules at all deserves a word more.
fn note_missing_rules(rights: &Rights<'_>, judged: &Evaluation) {
    let Some(loaded) = rights.rules.as_ref().ok().filter(|loaded| !loaded.found) else { return };
    if judged.rule.file.as_deref() == Some(loaded.rules.file()) {
        let path = loaded.rules.file().display();
        render::talk(format_args!(
            "there are no rules: `{path}` does not exist, so nobody may do anything"
        ));
    }
}

fn answer<'a>(
    arguments: &'a ExplainArguments,
    judged: &'a Result<Evaluation, String>,
) -> Answer<'a> {
    let evaluation = judged.as_ref().ok();
    let rule = evaluation.map(|evaluation| &evaluation.rule);
    Answer {
        decision: evaluation.map(|evaluation| evaluation.decision),
        agent: &arguments.agent,
        builtin: arguments.builtin.as_deref(),
        server: arguments.server.as_deref(),
        tool: arguments.tool.as_deref(),
        rule: rule.map(|rule| &*rule.path),
        file: rule.and_then(|rule| rule.file.as_deref()),
        line: rule.and_then(|rule| rule.line),
        reason: match judged {
            Ok(evaluation) => evaluation.sentence(),
            Err(reason) => reason,
        },
    }
}

fn say(evaluation: &Evaluation) {
    let word = match evaluation.decision {
        Decision::Allow => "allowed",
        Decision::Deny => "denied",
    };
    render::data(without_controls(&format!("{word}: {}", evaluation.sentence())));
    if let Some(file) = &evaluation.rule.file {
        let line = evaluation.rule.line.map(|line| format!(":{line}")).unwrap_or_default();
        render::data(format_args!("  {}{line}", file.display()));
    }
}
