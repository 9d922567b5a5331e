//! The arguments of `claude`. Each is written `--flag=value`: a list flag swallows what follows it,
//! and a value with a leading dash would become a flag.

use serde_json::{Map, Value, json};

use super::launch::{Argument, ArgumentValue, ConversationStart, PlanRequest, PlannedFile};
use super::schema_hint::hint;
use crate::catalog::Agent;

/// The flags that say which conversation it is; everything else is the contract.
pub(super) const CONVERSATION_FLAGS: [&str; 3] =
    ["--session-id", "--resume", "--no-session-persistence"];

pub(super) fn arguments(request: &PlanRequest<'_>, builtin_tools: &[String]) -> Vec<Argument> {
    let mut list = pipe(request);
    list.extend(isolation(request));
    list.extend(rights(request.agent, builtin_tools));
    list.extend(model(request));
    list.extend(conversation(request));
    list
}

/// Everything goes over stdin and stdout.
fn pipe(request: &PlanRequest<'_>) -> Vec<Argument> {
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

/// Nothing of the user's or the project's own configuration reaches the agent.
fn isolation(request: &PlanRequest<'_>) -> Vec<Argument> {
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

/// What it may do, and who is asked about the rest.
fn rights(agent: &Agent, builtin_tools: &[String]) -> Vec<Argument> {
    let mut list = vec![
        text(
            "--tools",
            &builtin_tools.join(","),
            "exactly the built-in tools that its agent.md grants",
        ),
        file("--settings", PlannedFile::Settings, "its own permission rules"),
        text("--permission-mode", "default", "what no rule allows is asked, not granted"),
        text("--permission-prompt-tool", "stdio", "Adjutant answers what is asked"),
        text("--mcp-config", &tunnel(agent), "its MCP servers, reached through its pipe"),
    ];
    list.extend(agent.add_dirs.iter().map(|folder| Argument {
        flag: "--add-dir",
        value: Some(ArgumentValue::Folder(folder.clone())),
        reason: "`add_dirs` in its agent.md".to_owned(),
    }));
    list
}

/// The servers by name alone: their commands and secrets stay on our side of the pipe.
fn tunnel(agent: &Agent) -> String {
    let entry = |name: &str| json!({ "type": "sdk", "name": name });
    let servers: Map<String, Value> =
        agent.servers.iter().map(|server| (server.name.clone(), entry(&server.name))).collect();
    json!({ "mcpServers": servers }).to_string()
}

fn model(request: &PlanRequest<'_>) -> Vec<Argument> {
    let agent = request.agent;
    let mut list =
        vec![file("--system-prompt-file", PlannedFile::SystemPrompt, "the body of its agent.md")];
    if request.features.has("--system-prompt-snapshot") {
        // Otherwise a resumed conversation keeps the prompt it was made with, whatever the file says now.
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
    if let Some(schema) = schema(request) {
        let reason =
            "`output_schema`, as far as claude knows such keywords; judged by Adjutant in any case";
        list.push(text("--json-schema", &schema, reason));
    }
    if let Some(turns) = agent.limits.max_turns {
        list.push(text("--max-turns", &turns.to_string(), "`max_turns`; counted by Adjutant too"));
    }
    list.extend(budget(request));
    list
}

fn schema(request: &PlanRequest<'_>) -> Option<String> {
    let known = request.features.has("--json-schema");
    request.agent.output.schema.as_deref().filter(|_| known).and_then(hint)
}

/// The CLI counts from the start of its process. One that may serve several calls gets twice what a call may cost, and
/// serves no other once it has cost the half: so the CLI's limit never comes before ours, and never far behind it.
fn budget(request: &PlanRequest<'_>) -> Option<Argument> {
    let known = request.features.has("--max-budget-usd");
    let usd = request.agent.limits.max_budget_usd.filter(|_| known)?;
    Some(match request.agent.may_stay() {
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

fn conversation(request: &PlanRequest<'_>) -> Vec<Argument> {
    match request.conversation {
        ConversationStart::Passing(id) => {
            let named =
                text("--session-id", id, "known before it begins, so that its events can say it");
            let passing =
                switch("--no-session-persistence", "`session: false` leaves no transcript");
            let known = |argument: &Argument| request.features.has(argument.flag);
            [passing, named].into_iter().filter(known).collect()
        }
        ConversationStart::Create(id) => {
            vec![text(
                "--session-id",
                id,
                "a new conversation, under an id that is already recorded",
            )]
        }
        ConversationStart::Resume(id) => {
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
