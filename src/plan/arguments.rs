//! Command-line arguments of `claude`, each as `--flag=value`.
//!
//! A list flag would consume the next argument, and a separate value with a leading dash would be read as a flag.

use serde_json::{Map, Value, json};

use super::launch_plan::{Argument, ArgumentValue, PlanRequest, PlannedFile, SessionStart};
use super::schema_hint::hint;
use crate::catalog::Agent;

/// Flags that name the session; all other arguments are part of the digest.
pub(crate) const SESSION_FLAGS: [&str; 3] =
    ["--session-id", "--resume", "--no-session-persistence"];

pub(crate) fn arguments(request: &PlanRequest<'_>, builtin_tools: &[String]) -> Vec<Argument> {
    let mut list = stdio_arguments(request);
    list.extend(isolation_arguments(request));
    list.extend(permission_arguments(request.agent, builtin_tools));
    list.extend(model_arguments(request));
    list.extend(session_arguments(request));
    list
}

/// Communication over stdin and stdout.
fn stdio_arguments(request: &PlanRequest<'_>) -> Vec<Argument> {
    let mut list = vec![
        switch("--print", "no terminal"),
        text("--input-format", "stream-json", "prompts and verdicts come over its stdin"),
        text("--output-format", "stream-json", "events and questions go over its stdout"),
        switch("--verbose", "stream-json needs it"),
    ];
    if request.features.has("--include-partial-messages") {
        let reason = "tokens and words are told as they come: a budget holds in its turn, and no work is lost";
        list.push(switch("--include-partial-messages", reason));
    }
    list
}

/// Isolation from the configuration of the user and the project.
fn isolation_arguments(request: &PlanRequest<'_>) -> Vec<Argument> {
    let mut list = vec![
        text(
            "--setting-sources",
            "",
            "settings, hooks, CLAUDE.md and skills of user and project are not read",
        ),
        switch("--strict-mcp-config", "the project's .mcp.json is not read"),
    ];
    if request.features.has("--disable-slash-commands") {
        list.push(switch("--disable-slash-commands", "no skills and commands but its own tools"));
    }
    list
}

/// Tools and permissions, and the handler of permission requests.
fn permission_arguments(agent: &Agent, builtin_tools: &[String]) -> Vec<Argument> {
    let mut list = vec![
        text(
            "--tools",
            &builtin_tools.join(","),
            "exactly the built-in tools that its agent.md grants",
        ),
        file("--settings", PlannedFile::Settings, "its own permission rules"),
        text("--permission-mode", "default", "what no rule allows is asked, not granted"),
        text("--permission-prompt-tool", "stdio", "Adjutant answers what is asked"),
        text("--mcp-config", &sdk_servers(agent), "its MCP servers, reached through its pipe"),
    ];
    list.extend(agent.add_dirs.iter().map(|dir| Argument {
        flag: "--add-dir",
        value: Some(ArgumentValue::Folder(dir.clone())),
        reason: "`add_dirs` in its agent.md".to_owned(),
    }));
    list
}

/// Names of the MCP servers; their commands and secrets stay in Adjutant.
fn sdk_servers(agent: &Agent) -> String {
    let entry = |name: &str| json!({ "type": "sdk", "name": name });
    let servers: Map<String, Value> =
        agent.servers.iter().map(|server| (server.name.clone(), entry(&server.name))).collect();
    json!({ "mcpServers": servers }).to_string()
}

fn model_arguments(request: &PlanRequest<'_>) -> Vec<Argument> {
    let agent = request.agent;
    let mut list =
        vec![file("--system-prompt-file", PlannedFile::SystemPrompt, "the body of its agent.md")];
    if request.features.has("--system-prompt-snapshot") {
        // Without the flag a resumed session keeps its first system prompt, even if the agent file has changed.
        list.push(text(
            "--system-prompt-snapshot",
            "off",
            "its agent.md and memory.md count at every launch",
        ));
    }
    if let Some(model) = &agent.model {
        list.push(text("--model", model, "`model` in its agent.md or defaults.yaml"));
    }
    if let Some(effort) = agent.effort.as_deref().filter(|_| request.features.has("--effort")) {
        list.push(text("--effort", effort, "`effort` in its agent.md or defaults.yaml"));
    }
    if let Some(schema) = json_schema(request) {
        let reason =
            "`output_schema`, as far as claude knows such keywords; judged by Adjutant in any case";
        list.push(text("--json-schema", &schema, reason));
    }
    if let Some(turns) = agent.limits.max_turns {
        list.push(text("--max-turns", &turns.to_string(), "`max_turns`; counted by Adjutant too"));
    }
    list.extend(budget_argument(request));
    list
}

fn json_schema(request: &PlanRequest<'_>) -> Option<String> {
    let known = request.features.has("--json-schema");
    request.agent.output.schema.as_deref().filter(|_| known).and_then(hint)
}

/// Budget of the process. The CLI counts from the start of its process.
///
/// A process that may serve several runs gets twice the budget of one run, and serves no further run after it has spent
/// half: the CLI's limit never takes effect before ours.
fn budget_argument(request: &PlanRequest<'_>) -> Option<Argument> {
    let known = request.features.has("--max-budget-usd");
    let usd = request.agent.limits.max_budget_usd.filter(|_| known)?;
    Some(match request.agent.keeps_process() {
        false => {
            text("--max-budget-usd", &usd.to_string(), "`max_budget_usd`; counted by Adjutant too")
        }
        true => text(
            "--max-budget-usd",
            &(2.0 * usd).to_string(),
            "`max_budget_usd` twice, for a process that may serve several calls; each is counted by Adjutant",
        ),
    })
}

fn session_arguments(request: &PlanRequest<'_>) -> Vec<Argument> {
    match request.session {
        SessionStart::Ephemeral(id) => {
            let named =
                text("--session-id", id, "known before it begins, so that its events can say it");
            let ephemeral =
                switch("--no-session-persistence", "`session: false` leaves no transcript");
            let known = |argument: &Argument| request.features.has(argument.flag);
            [ephemeral, named].into_iter().filter(known).collect()
        }
        SessionStart::Create(id) => {
            vec![text(
                "--session-id",
                id,
                "a new conversation, under an id that is already recorded",
            )]
        }
        SessionStart::Resume(id) => {
            vec![text("--resume", id, "`session: true`: the conversation goes on")]
        }
    }
}

fn switch(flag: &'static str, reason: &str) -> Argument {
    Argument { flag, value: None, reason: reason.to_owned() }
}

fn text(flag: &'static str, value: &str, reason: &str) -> Argument {
    let value = Some(ArgumentValue::Text(value.to_owned()));
    Argument { flag, value, reason: reason.to_owned() }
}

fn file(flag: &'static str, file: PlannedFile, reason: &str) -> Argument {
    Argument { flag, value: Some(ArgumentValue::File(file)), reason: reason.to_owned() }
}
