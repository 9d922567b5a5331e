//! Keys of `agent.md`, in the order of `docs/agent-file.md` and of `adjutant show`.

use serde_json::{Value, json};

use super::key::{Effect, Key, properties};
use super::permissions::PERMISSIONS;
use super::policy::POLICY;
use super::sandbox::{SANDBOX, read_sandbox, show_sandbox};
use super::shape::{Shape, object_schema};
use super::{agent_values as values, hooks, server_entry, servers};
use crate::catalog::model::{Agent, AllowedCallers, RuleText};

type AgentKey = Key<Agent>;

const DAY_MS: u64 = 86_400_000;
pub(crate) const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

const IDENTITY: &[AgentKey] = &[
    AgentKey::dependent("name", Shape::Text, |agent| json!(agent.name))
        .doc("Name of the agent; must equal the name of its directory"),
    AgentKey::other("display_name", Shape::Text, values::read_display_name, |agent| {
        json!(agent.display_name)
    })
    .doc("Name shown to people")
    .effect(Effect::None),
    AgentKey::other("description", Shape::TextUpTo(1000), values::read_description, |agent| {
        json!(agent.description)
    })
    .doc(
        "One sentence by which callers choose the agent. Required. Over 300 characters is a \
         warning, over 1,000 an error: every caller pays for it",
    )
    .effect(Effect::None),
    AgentKey::other("session", Shape::Flag, values::read_session, |agent| json!(agent.session))
        .doc("`true`: the conversation continues from call to call")
        .effect(Effect::None),
    AgentKey::other("allowed_callers", Shape::Texts, values::read_callers, show_callers).doc(
        "Callers that may call the agent: `main`, names of Claude Code's own subagents, or `\"*\"` \
         for every caller with a known name",
    ),
    AgentKey::other("model", Shape::Text, values::read_model, |agent| json!(agent.model))
        .doc("Model, as for `claude --model`; without the key, Claude Code's own default")
        .effect(Effect::None)
        .shared(),
    AgentKey::other("effort", Shape::Words(EFFORTS), values::read_effort, |agent| {
        json!(agent.effort)
    })
    .doc("Effort, as for `claude --effort`; without the key, Claude Code's own default")
    .effect(Effect::None)
    .shared(),
    AgentKey::other("cwd", Shape::Text, values::read_cwd, |agent| json!(agent.cwd))
        .doc("Working directory; without the key, the project root"),
    AgentKey::other("add_dirs", Shape::Texts, values::read_add_dirs, |agent| json!(agent.add_dirs))
        .doc("Further directories that its tools may access"),
    AgentKey::other("env", Shape::Map(&Shape::Text), values::read_env, |agent| json!(agent.env))
        .doc(
            "Environment variables; no other variable of yours reaches the agent. An agent's own \
             override those of `defaults.yaml`",
        )
        .shared(),
    AgentKey::other("hooks", hooks::HOOKS, hooks::parse_hooks, show_hooks)
        .doc(
            "Commands that are told of events and may block calls, in Claude Code's format. Hooks \
             of `defaults.yaml` run as well",
        )
        .shared(),
];

const PERMISSION: &[AgentKey] = &[
    AgentKey::dependent("permissions", Shape::Object(PERMISSIONS), show_permissions).doc(
        "Permission rules in Claude Code's syntax: `allow` needs no approval, `ask` needs a \
         person's approval and is denied without one, `deny` takes precedence over both. Built-in \
         tools named in `allow` exist for the agent",
    ),
    AgentKey::dependent("tools", Shape::Texts, |agent| json!(agent.tools)).doc(
        "Further tools that exist for the agent: `builtin:Bash`, `mcp:<server>:<tool>`; `*` and \
         `?` are patterns",
    ),
    AgentKey::dependent("policy", Shape::Object(POLICY), show_policy).doc(
        "Removes tools (`tools`) and whole servers (`mcp`): with `allowed` only these remain, \
         those in `exclude` are removed. `mcp_servers.<name>.trust: true`: the tools of the server \
         need no approval",
    ),
    AgentKey::other(
        "may_change_project_config",
        Shape::Flag,
        values::read_may_change_project_config,
        |agent| json!(agent.may_change_project_config),
    )
    .doc(
        "`true`: `Write`, `Edit` and `NotebookEdit` may change the control files (agent files, \
         gateway rules, hooks, settings), and `Read`, `Grep` and `Glob` may read those of Adjutant; \
         `check` warns about it",
    )
    .effect(Effect::Widens),
    AgentKey::other("sandbox", SANDBOX, read_sandbox, show_sandbox).doc(
        "Sandbox of the agent's processes: `workspace` (the project is writable, without the control \
         files), `read-only`, or a mapping. Needs bubblewrap; a run without it is refused. See \
         [how-to/sandbox.md](how-to/sandbox.md)",
    ),
    AgentKey::dependent("mcp_servers", servers::SERVERS, |agent| json!(agent.servers))
        .doc("Private MCP servers, and shared servers by name"),
];

const OUTPUT: &[AgentKey] = &[
    AgentKey::dependent("output_format", Shape::Words(&["text", "json"]), |agent| {
        json!(agent.output.format)
    })
    .doc("Format of the answer; with an `output_schema` the default is `json`"),
    AgentKey::dependent(
        "output_schema",
        Shape::OneOf(&[Shape::Text, Shape::Map(&Shape::Any)]),
        |agent| json!(agent.output.schema),
    )
    .doc(
        "JSON Schema (draft 2020-12) that the answer must match, or the name of a file beside \
         `agent.md`; nothing is fetched",
    ),
    AgentKey::number("output_retries", 0..=10, |agent| &mut agent.output.retries)
        .doc("How often the agent is told what is wrong with its answer and asked again")
        .shared(),
    // Claude Code limits tool results to 500,000 characters.
    AgentKey::number("max_output_chars", 1..=500_000, |agent| &mut agent.limits.max_output_chars)
        .doc("Characters of the answer that reach the caller; the rest is stored in a file")
        .shared(),
];

const LIMITS: &[AgentKey] = &[
    AgentKey::number("timeout_ms", 1..=DAY_MS, |agent| &mut agent.limits.timeout)
        .doc("Timeout of a call, in milliseconds")
        .shared(),
    AgentKey::number("idle_timeout_ms", 1..=DAY_MS, |agent| &mut agent.limits.idle_timeout)
        .doc("Longest time without activity, in milliseconds; without the key, no limit")
        .shared(),
    AgentKey::number("approval_timeout_ms", 1..=DAY_MS, |agent| &mut agent.limits.approval_timeout)
        .doc("Time that a person has to answer an approval request, in milliseconds")
        .shared(),
    AgentKey::number("max_turns", 1..=10_000, |agent| &mut agent.limits.max_turns)
        .doc("Turns per call; without the key, no limit")
        .shared(),
    AgentKey::dollars("max_budget_usd", |agent| &mut agent.limits.max_budget_usd)
        .doc("US dollars per call; without the key, no limit")
        .shared(),
    AgentKey::number("max_concurrent", 1..=10_000, |agent| &mut agent.limits.max_concurrent)
        .doc("Concurrent runs of one agent; without the key, only `max_runs` limits them")
        .shared(),
    AgentKey::number("warm", 0..=64, |agent| &mut agent.warm)
        .doc("Processes per agent that are started before a call needs them")
        .effect(Effect::None)
        .shared(),
    AgentKey::number("keep_alive_ms", 0..=DAY_MS, |agent| &mut agent.keep_alive)
        .doc(
            "Time that `adjutant serve` keeps the process of a session after a turn, in \
             milliseconds; `0` stops it at once",
        )
        .effect(Effect::None)
        .shared(),
];

/// All keys, by section of `docs/agent-file.md`.
pub(crate) const SECTIONS: [(&str, &[AgentKey]); 4] =
    [("identity", IDENTITY), ("permissions", PERMISSION), ("output", OUTPUT), ("limits", LIMITS)];

/// Returns all keys.
pub(crate) fn agent_keys() -> impl Iterator<Item = &'static AgentKey> {
    SECTIONS.into_iter().flat_map(|(_, keys)| keys)
}

/// Returns the keys that `defaults.yaml` has, too.
pub(crate) fn shared_keys() -> impl Iterator<Item = &'static AgentKey> {
    agent_keys().filter(|key| key.shared)
}

/// JSON Schema of the front matter of `agent.md`.
pub(crate) fn agent_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Adjutant agent",
        "description": "The front matter of `agents/<name>/agent.md`.",
        "type": "object",
        "properties": properties(agent_keys(), Agent::template()),
        "required": ["description"],
        "$defs": { "server": object_schema(server_entry::yaml_properties()) },
    })
}

fn show_callers(agent: &Agent) -> Value {
    match &agent.allowed_callers {
        AllowedCallers::Anyone => json!(["*"]),
        AllowedCallers::Named(names) => json!(names),
    }
}

fn show_hooks(agent: &Agent) -> Value {
    let hooks = agent.hooks.iter();
    hooks
        .map(|hook| json!({"event": hook.event, "matcher": hook.matcher, "command": hook.command}))
        .collect()
}

fn show_permissions(agent: &Agent) -> Value {
    let rules = |rules: &[RuleText]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let permissions = &agent.permissions;
    json!({
        "allow": rules(&permissions.allow),
        "ask": rules(&permissions.ask),
        "deny": rules(&permissions.deny),
    })
}

fn show_policy(agent: &Agent) -> Value {
    let policy = &agent.policy;
    json!({
        "tools": { "allowed": policy.tools_allowed, "exclude": policy.tools_exclude },
        "mcp": { "allowed": policy.mcp_allowed, "excluded": policy.mcp_excluded },
        "trusted": policy.trusted_servers,
    })
}
