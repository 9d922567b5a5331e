//! `adjutant plan`: prints the launch plan of an agent. Starts nothing but `claude --help`.

use clap::Args;
use serde_json::Value;

use crate::api::{PlanArgument, PlanObject, PlanSandboxPart, PlanServer, PlanVariable};
use crate::cli::table::{Column, Table};
use crate::cli::{CliCommand, CommandReport, CommandResult, JsonArgument, runtime};
use crate::config::Settings;
use crate::delegation::{PlanPreview, SandboxPart, preview};
use crate::plan::{Argument, ArgumentValue, VariableSource};

/// Show exactly what would be started for an agent, and why
///
/// Program, arguments, variables (names only), tools, servers and limits. `${VAR}` is shown as written:
/// variables are resolved only when an agent is really started. Nothing is started but `claude --help`.
/// In a sandbox also every mount and every variable inside. Exit code 0; 3 if there is no such agent or it is
/// broken; 4 if there is no `claude` or the sandbox cannot be made.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  adjutant plan web-search
  adjutant plan web-search --json | jq -r '.arguments[].argument'")]
pub(crate) struct PlanArguments {
    /// The agent
    agent: String,
    #[command(flatten)]
    format: JsonArgument,
}

impl CliCommand for PlanArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        runtime::block_on(async {
            let preview = preview(settings, &self.agent).await?;
            CommandReport::new(&plan_object(&preview)).data(plan_table(&preview)).print(self.format)
        })
    }
}

fn plan_table(preview: &PlanPreview) -> Table {
    let plan = &preview.plan;
    let mut table = Table::new([Column::whole(""), Column::text(""), Column::text("").drop(1)]);
    let mut row = |what: &str, value: String, why: &str| {
        table.add_row([what, value.as_str(), why]);
    };
    row("program", plan.program.display().to_string(), &format!("version {}", preview.version));
    row("folder", preview.working_dir.clone(), preview.working_dir_reason);
    for argument in &plan.arguments {
        row("argument", format_argument(argument), &argument.reason);
    }
    for variable in &plan.environment {
        row("variable", format_variable(&variable.name, &variable.source), variable.reason);
    }
    for part in &preview.sandbox {
        row(part.kind, part.text.clone(), &part.reason);
    }
    for tool in &plan.builtin_tools {
        row("tool", format!("builtin:{tool}"), "granted by its agent.md");
    }
    for server in &plan.servers {
        row("server", server.name.clone(), &server.reason);
    }
    for (name, value) in limits(preview) {
        row(
            "limit",
            format!("{name} {value}"),
            "its agent.md, defaults.yaml, or the built-in default: see `adjutant show`",
        );
    }
    row("contract", plan.digest(), "changes when anything above does, but for the conversation");
    table
}

fn format_argument(argument: &Argument) -> String {
    match &argument.value {
        None => argument.flag.to_owned(),
        Some(ArgumentValue::Text(text)) => format!("{}={text}", argument.flag),
        Some(ArgumentValue::File(file)) => {
            format!("{}=<private folder>/{}", argument.flag, file.file_name())
        }
        Some(ArgumentValue::Folder(folder)) => format!("{}={}", argument.flag, folder.0),
    }
}

fn format_variable(name: &str, source: &VariableSource) -> String {
    match source {
        VariableSource::Inherited => name.to_owned(),
        VariableSource::Fixed(value) => format!("{name}={value}"),
        VariableSource::Agent(template) => format!("{name}={}", template.0),
    }
}

fn limits(preview: &PlanPreview) -> Vec<(&'static str, String)> {
    let limits = &preview.plan.limits;
    let mut list = vec![
        ("timeout_ms", limits.timeout.as_millis().to_string()),
        ("max_output_chars", limits.max_output_chars.to_string()),
    ];
    list.extend(limits.idle_timeout.map(|idle| ("idle_timeout_ms", idle.as_millis().to_string())));
    list.extend(limits.max_turns.map(|turns| ("max_turns", turns.to_string())));
    list.extend(limits.max_budget_usd.map(|usd| ("max_budget_usd", usd.to_string())));
    list.extend(limits.max_concurrent.map(|runs| ("max_concurrent", runs.to_string())));
    list
}

fn plan_object(preview: &PlanPreview) -> PlanObject {
    let plan = &preview.plan;
    let limits = limits(preview).into_iter();
    PlanObject {
        agent: plan.agent.to_string(),
        program: plan.program.display().to_string(),
        version: preview.version.clone(),
        folder: preview.working_dir.clone(),
        arguments: plan
            .arguments
            .iter()
            .map(|a| PlanArgument { argument: format_argument(a), reason: a.reason.clone() })
            .collect(),
        environment: plan
            .environment
            .iter()
            .map(|v| variable_object(&v.name, &v.source, v.reason))
            .collect(),
        system_prompt: plan.system_prompt.clone(),
        settings: plan.settings.clone(),
        builtin_tools: plan.builtin_tools.clone(),
        servers: plan
            .servers
            .iter()
            .map(|s| PlanServer { server: s.name.clone(), reason: s.reason.clone() })
            .collect(),
        limits: limits.map(|(name, value)| (name.to_owned(), parse_number(&value))).collect(),
        contract: plan.digest(),
        sandbox: preview.sandbox.iter().map(sandbox_part).collect(),
    }
}

fn sandbox_part(part: &SandboxPart) -> PlanSandboxPart {
    let SandboxPart { kind, text, reason } = part;
    PlanSandboxPart { kind: (*kind).to_owned(), text: text.clone(), reason: reason.clone() }
}

fn variable_object(name: &str, source: &VariableSource, reason: &str) -> PlanVariable {
    let (from, value) = match source {
        VariableSource::Inherited => ("inherited", None),
        VariableSource::Agent(template) => ("agent", Some(template.0.clone())),
        VariableSource::Fixed(value) => ("fixed", Some(value.clone())),
    };
    let (name, from, reason) = (name.to_owned(), from.to_owned(), reason.to_owned());
    PlanVariable { name, from, value, reason }
}

fn parse_number(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}
