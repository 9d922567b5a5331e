//! The effective contract of an agent: every setting, with where it came from.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::front_matter;
use super::hooks::Hook;
use super::load::{read_text, relative};
use super::model::{Agent, Callers};
use super::positions::Positions;
use super::problem::Problems;
use super::stamp::Stamps;
use crate::config::Settings;

/// One setting of an agent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The key it has in `agent.md`.
    pub key: &'static str,
    /// What holds; variables as they were written.
    pub value: Value,
    /// Where it was said.
    pub source: Source,
}

/// Where a setting came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum Source {
    /// A file says so.
    File {
        /// Relative to the project's root.
        file: PathBuf,
        /// The line of the key.
        line: usize,
    },
    /// No file says otherwise.
    BuiltIn,
}

/// Every setting of an agent, in the order of `docs/agent-file.md`.
pub fn contract(settings: &Settings, agent: &Agent) -> Vec<Setting> {
    let own = Lines::of_agent(settings, agent);
    let common = Lines::of_defaults(settings);
    let mut all = Vec::new();
    for (key, value) in values(agent) {
        let source = own.source(key).or_else(|| common.source(key)).unwrap_or(Source::BuiltIn);
        all.push(Setting { key, value, source });
    }
    all
}

/// The line of a rule in an agent's file, such as `policy.tools.exclude[1]`, or of what stands around it.
pub fn rule_line(settings: &Settings, agent: &Agent, path: &str) -> Option<u32> {
    let positions = Lines::of_agent(settings, agent).positions;
    let top = path.split(['.', '[']).next().unwrap_or(path);
    positions.line_of(top)?;
    u32::try_from(positions.value(path).line).ok()
}

/// The lines of a file's top-level keys.
struct Lines {
    file: PathBuf,
    positions: Positions,
}

impl Lines {
    fn of_agent(settings: &Settings, agent: &Agent) -> Self {
        let file = relative(&settings.root, &agent.file);
        let text = read_text(&settings.root, &agent.file, &file, &mut Stamps::default());
        let text = text.ok().flatten().unwrap_or_default();
        let positions = front_matter::split(&text, &mut Problems::default())
            .map(|parts| Positions::of(parts.yaml, parts.first_line));
        Self { file, positions: positions.unwrap_or_default() }
    }

    fn of_defaults(settings: &Settings) -> Self {
        let path = settings.defaults_file();
        let file = relative(&settings.root, &path);
        let text = read_text(&settings.root, &path, &file, &mut Stamps::default());
        let text = text.ok().flatten().unwrap_or_default();
        Self { file, positions: Positions::of(&text, 1) }
    }

    fn source(&self, key: &str) -> Option<Source> {
        let line = self.positions.line_of(key)?;
        Some(Source::File { file: self.file.clone(), line })
    }
}

fn values(agent: &Agent) -> Vec<(&'static str, Value)> {
    let mut all = what_it_is(agent);
    all.extend(what_it_may(agent));
    all.extend(how_it_answers(agent));
    all.extend(its_limits(agent));
    all
}

fn what_it_is(agent: &Agent) -> Vec<(&'static str, Value)> {
    vec![
        ("name", json!(agent.name)),
        ("display_name", json!(agent.display_name)),
        ("description", json!(agent.description)),
        ("session", json!(agent.session)),
        ("allowed_callers", callers(&agent.allowed_callers)),
        ("model", json!(agent.model)),
        ("effort", json!(agent.effort)),
        ("cwd", json!(agent.cwd)),
        ("add_dirs", json!(agent.add_dirs)),
        ("env", json!(agent.env)),
        ("hooks", hooks(&agent.hooks)),
    ]
}

fn what_it_may(agent: &Agent) -> Vec<(&'static str, Value)> {
    let rules = |rules: &[super::model::RuleText]| -> Vec<String> {
        rules.iter().map(ToString::to_string).collect()
    };
    let permissions = &agent.permissions;
    let policy = &agent.policy;
    vec![
        (
            "permissions",
            json!({
                "allow": rules(&permissions.allow),
                "ask": rules(&permissions.ask),
                "deny": rules(&permissions.deny),
            }),
        ),
        ("tools", json!(agent.tools)),
        (
            "policy",
            json!({
                "tools": { "allowed": policy.tools_allowed, "exclude": policy.tools_exclude },
                "mcp": { "allowed": policy.mcp_allowed, "excluded": policy.mcp_excluded },
                "trusted": policy.trusted_servers,
            }),
        ),
        ("mcp_servers", json!(agent.servers)),
    ]
}

fn how_it_answers(agent: &Agent) -> Vec<(&'static str, Value)> {
    vec![
        ("output_format", json!(agent.output.format)),
        ("output_schema", json!(agent.output.schema)),
        ("output_retries", json!(agent.output.retries)),
        ("max_output_chars", json!(agent.limits.max_output_chars)),
    ]
}

fn its_limits(agent: &Agent) -> Vec<(&'static str, Value)> {
    let limits = &agent.limits;
    vec![
        ("timeout_ms", milliseconds(limits.timeout)),
        ("idle_timeout_ms", limits.idle_timeout.map_or(Value::Null, milliseconds)),
        ("approval_timeout_ms", milliseconds(limits.approval_timeout)),
        ("max_turns", json!(limits.max_turns)),
        ("max_budget_usd", json!(limits.max_budget_usd)),
        ("max_concurrent", json!(limits.max_concurrent)),
        ("warm", json!(agent.warm)),
        ("keep_alive_ms", milliseconds(agent.keep_alive)),
    ]
}

fn hooks(hooks: &[Hook]) -> Value {
    hooks
        .iter()
        .map(
            |hook| json!({ "event": hook.event, "matcher": hook.matcher, "command": hook.command }),
        )
        .collect()
}

fn callers(callers: &Callers) -> Value {
    match callers {
        Callers::Anyone => json!(["*"]),
        Callers::Named(names) => json!(names),
    }
}

fn milliseconds(time: Duration) -> Value {
    json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
