//! Effective settings of an agent, each with its source.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::load::{display_path, read_text};
use super::problem::Problems;
use crate::catalog::model::{Agent, AllowedCallers, UserHook};
use crate::catalog::parse::{SourcePositions, front_matter};
use crate::config::Settings;
use crate::store::FileDependencies;

/// A setting with its effective value and source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct EffectiveSetting {
    /// Key in `agent.md`.
    pub key: &'static str,
    /// Effective value; variables as written.
    pub value: Value,
    pub source: SettingSource,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub(crate) enum SettingSource {
    /// Set in a file.
    File {
        /// Relative to the project root.
        file: PathBuf,
        /// Line of the key.
        line: usize,
    },
    /// Built-in default.
    BuiltIn,
}

/// Returns all settings of an agent, in the order of `docs/agent-file.md`.
pub(crate) fn effective_settings(settings: &Settings, agent: &Agent) -> Vec<EffectiveSetting> {
    let own = KeyLines::of_agent(settings, agent);
    let common = KeyLines::of_defaults(settings);
    let mut all = Vec::new();
    for (key, value) in setting_values(agent) {
        let source =
            own.source(key).or_else(|| common.source(key)).unwrap_or(SettingSource::BuiltIn);
        all.push(EffectiveSetting { key, value, source });
    }
    all
}

/// Returns the line of a rule such as `policy.tools.exclude[1]`, or of its nearest ancestor.
pub(crate) fn rule_line(settings: &Settings, agent: &Agent, path: &str) -> Option<u32> {
    let positions = KeyLines::of_agent(settings, agent).positions;
    let top = path.split(['.', '[']).next().unwrap_or(path);
    positions.line_of(top)?;
    u32::try_from(positions.value_position(path).line).ok()
}

/// Lines of the top-level keys of one file.
struct KeyLines {
    file: PathBuf,
    positions: SourcePositions,
}

impl KeyLines {
    fn of_agent(settings: &Settings, agent: &Agent) -> Self {
        let file = display_path(&settings.root, &agent.file);
        let text = read_text(&settings.root, &agent.file, &file, &mut FileDependencies::default());
        let text = text.ok().flatten().unwrap_or_default();
        let positions = front_matter::split(&text, &mut Problems::default())
            .map(|parts| SourcePositions::parse(parts.yaml, parts.first_line));
        Self { file, positions: positions.unwrap_or_default() }
    }

    fn of_defaults(settings: &Settings) -> Self {
        let path = settings.defaults_file();
        let file = display_path(&settings.root, &path);
        let text = read_text(&settings.root, &path, &file, &mut FileDependencies::default());
        let text = text.ok().flatten().unwrap_or_default();
        Self { file, positions: SourcePositions::parse(&text, 1) }
    }

    fn source(&self, key: &str) -> Option<SettingSource> {
        let line = self.positions.line_of(key)?;
        Some(SettingSource::File { file: self.file.clone(), line })
    }
}

fn setting_values(agent: &Agent) -> Vec<(&'static str, Value)> {
    let mut all = identity_settings(agent);
    all.extend(permission_settings(agent));
    all.extend(output_settings(agent));
    all.extend(limit_settings(agent));
    all
}

fn identity_settings(agent: &Agent) -> Vec<(&'static str, Value)> {
    vec![
        ("name", json!(agent.name)),
        ("display_name", json!(agent.display_name)),
        ("description", json!(agent.description)),
        ("session", json!(agent.session)),
        ("allowed_callers", callers_json(&agent.allowed_callers)),
        ("model", json!(agent.model)),
        ("effort", json!(agent.effort)),
        ("cwd", json!(agent.cwd)),
        ("add_dirs", json!(agent.add_dirs)),
        ("env", json!(agent.env)),
        ("hooks", hooks_json(&agent.hooks)),
    ]
}

fn permission_settings(agent: &Agent) -> Vec<(&'static str, Value)> {
    let rules = |rules: &[crate::catalog::model::RuleText]| -> Vec<String> {
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
        ("may_change_project_config", json!(agent.may_change_project_config)),
        ("mcp_servers", json!(agent.servers)),
    ]
}

fn output_settings(agent: &Agent) -> Vec<(&'static str, Value)> {
    vec![
        ("output_format", json!(agent.output.format)),
        ("output_schema", json!(agent.output.schema)),
        ("output_retries", json!(agent.output.retries)),
        ("max_output_chars", json!(agent.limits.max_output_chars)),
    ]
}

fn limit_settings(agent: &Agent) -> Vec<(&'static str, Value)> {
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

fn hooks_json(hooks: &[UserHook]) -> Value {
    hooks
        .iter()
        .map(
            |hook| json!({ "event": hook.event, "matcher": hook.matcher, "command": hook.command }),
        )
        .collect()
}

fn callers_json(callers: &AllowedCallers) -> Value {
    match callers {
        AllowedCallers::Anyone => json!(["*"]),
        AllowedCallers::Named(names) => json!(names),
    }
}

fn milliseconds(time: Duration) -> Value {
    json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
