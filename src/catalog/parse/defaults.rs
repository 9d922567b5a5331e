//! Parser of `agents/defaults.yaml`. The format is our own, so an unknown key is an error.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_yaml::Value;

use super::super::diagnostic::Diagnostic;
use super::super::problem::Problems;
use super::node::{MappingFields, Node};
use super::positions::SourcePositions;
use super::{limits, yaml};
use crate::catalog::model::{
    ArgumentLogging, AuditRule, Budget, Defaults, IdentityRule, Orchestration,
};
use crate::util::{AgentName, parse_age};

/// All keys of the file.
pub(crate) const DEFAULTS_KEYS: &[&str] = &[
    "timeout_ms",
    "idle_timeout_ms",
    "model",
    "effort",
    "max_turns",
    "max_budget_usd",
    "max_output_chars",
    "max_concurrent",
    "output_retries",
    "warm",
    "keep_alive_ms",
    "approval_timeout_ms",
    "env",
    "hooks",
    "max_runs",
    "max_queue",
    "max_machine_runs",
    "min_free_memory_mb",
    "session_wait_ms",
    "session_retention",
    "identity",
    "audit",
    "budgets",
    "session_budget_usd",
    "max_warm",
    "max_warm_mb",
    "warm_idle_ms",
    "max_live_mb",
    "max_live_age_ms",
    "server_idle_ms",
    "max_line_mb",
    "shutdown_grace_ms",
    "log_max_mb",
    "log_retention",
];

const DAY_MS: u64 = 86_400_000;
const WEEK_MS: u64 = 7 * DAY_MS;

/// Parses the file. If there are errors, affected values are the built-in ones and must not be used.
pub(crate) fn parse_defaults(
    text: &str,
    file: &Path,
) -> (Defaults, Orchestration, Vec<Diagnostic>) {
    let mut problems = Problems::default();
    let (mut defaults, mut orchestration) = (Defaults::default(), Orchestration::default());
    if let Some(mapping) = yaml::parse_mapping(text, 1, &mut problems) {
        let fields = MappingFields::new(&mapping, &mut problems);
        fields.reject_unknown(DEFAULTS_KEYS, &mut problems);
        limits::parse_shared_keys(&fields, &mut defaults, &mut problems);
        read_orchestration(&fields, &mut orchestration, &mut problems);
    }
    let diagnostics = if problems.found.is_empty() {
        Vec::new()
    } else {
        problems.locate(file, &SourcePositions::parse(text, 1))
    };
    (defaults, orchestration, diagnostics)
}

fn read_orchestration(
    fields: &MappingFields<'_>,
    into: &mut Orchestration,
    problems: &mut Problems,
) {
    read_runs(fields, into, problems);
    read_sessions(fields, into, problems);
    read_kept_processes(fields, into, problems);
    read_trust(fields, into, problems);
    read_log(fields, into, problems);
}

fn read_runs(fields: &MappingFields<'_>, into: &mut Orchestration, problems: &mut Problems) {
    let mut number = |key, into: &mut u32, low| {
        set_if_some(
            into,
            fields.get(key).and_then(|node| node.integer_u32(low..=100_000, problems)),
        );
    };
    number("max_runs", &mut into.max_runs, 1);
    number("max_queue", &mut into.max_queue, 0);
    if let Some(node) = fields.get("max_machine_runs") {
        into.max_machine_runs = node.integer_u32(1..=100_000, problems);
    }
    set_if_some(&mut into.min_free_memory_mb, megabytes(fields, "min_free_memory_mb", 0, problems));
    set_if_some(&mut into.max_line_mb, megabytes(fields, "max_line_mb", 1, problems));
    set_if_some(&mut into.shutdown_grace, time(fields, "shutdown_grace_ms", 0..=DAY_MS, problems));
    set_if_some(&mut into.server_idle, time(fields, "server_idle_ms", 0..=WEEK_MS, problems));
}

fn read_sessions(fields: &MappingFields<'_>, into: &mut Orchestration, problems: &mut Problems) {
    set_if_some(&mut into.session_wait, time(fields, "session_wait_ms", 0..=DAY_MS, problems));
    if let Some(node) = fields.get("session_retention") {
        into.session_retention = age(&node, problems);
    }
}

fn read_kept_processes(
    fields: &MappingFields<'_>,
    into: &mut Orchestration,
    problems: &mut Problems,
) {
    if let Some(count) =
        fields.get("max_warm").and_then(|node| node.integer_u32(0..=1_000, problems))
    {
        into.max_warm = count;
    }
    set_if_some(&mut into.max_warm_mb, megabytes(fields, "max_warm_mb", 0, problems));
    set_if_some(&mut into.max_live_mb, megabytes(fields, "max_live_mb", 1, problems));
    set_if_some(&mut into.warm_idle, time(fields, "warm_idle_ms", 1_000..=WEEK_MS, problems));
    set_if_some(&mut into.max_live_age, time(fields, "max_live_age_ms", 1_000..=WEEK_MS, problems));
}

fn read_trust(fields: &MappingFields<'_>, into: &mut Orchestration, problems: &mut Problems) {
    let identity = [("required", IdentityRule::Required), ("optional", IdentityRule::Optional)];
    set_if_some(
        &mut into.identity,
        fields.get("identity").and_then(|node| node.one_of(&identity, problems)),
    );
    if let Some(node) = fields.get("audit") {
        read_audit(&node, into, problems);
    }
    if let Some(node) = fields.get("budgets") {
        into.budgets = budgets(&node, problems);
    }
    if let Some(node) = fields.get("session_budget_usd") {
        into.session_budget_usd = node.dollars(problems);
    }
}

/// `audit: best_effort`, or `audit: { mode: best_effort, arguments: redacted }`.
fn read_audit(node: &Node<'_>, into: &mut Orchestration, problems: &mut Problems) {
    let modes = [("required", AuditRule::Required), ("best_effort", AuditRule::BestEffort)];
    if !matches!(node.value, Value::Mapping(_)) {
        return set_if_some(&mut into.audit, node.one_of(&modes, problems));
    }
    let details = [
        ("never", ArgumentLogging::Never),
        ("redacted", ArgumentLogging::Redacted),
        ("full", ArgumentLogging::Full),
    ];
    let Some(fields) = node.fields(problems) else { return };
    fields.reject_unknown(&["mode", "arguments"], problems);
    set_if_some(&mut into.audit, fields.get("mode").and_then(|node| node.one_of(&modes, problems)));
    let arguments = fields.get("arguments").and_then(|node| node.one_of(&details, problems));
    set_if_some(&mut into.audit_arguments, arguments);
}

fn read_log(fields: &MappingFields<'_>, into: &mut Orchestration, problems: &mut Problems) {
    set_if_some(&mut into.log_max_mb, megabytes(fields, "log_max_mb", 1, problems));
    if let Some(node) = fields.get("log_retention") {
        into.log_retention = age(&node, problems);
    }
}

fn budgets(node: &Node<'_>, problems: &mut Problems) -> BTreeMap<String, Budget> {
    let mut all = BTreeMap::new();
    let Some(fields) = node.fields(problems) else { return all };
    for (agent, node) in fields.iter() {
        if let Err(error) = agent.parse::<AgentName>() {
            problems.error("invalid-name", node.at_key(), error.to_string());
        }
        let Some(inside) = node.fields(problems) else { continue };
        inside.reject_unknown(&["per_day_usd"], problems);
        let Some(amount) = inside.get("per_day_usd") else {
            problems
                .error("missing-key", node.at_key(), format!("`{}` says no amount", node.path))
                .help(format!("write `{agent}: {{ per_day_usd: 5 }}`"));
            continue;
        };
        if let Some(per_day_usd) = amount.dollars(problems) {
            all.insert(agent.to_owned(), Budget { per_day_usd });
        }
    }
    all
}

fn age(node: &Node<'_>, problems: &mut Problems) -> Option<Duration> {
    let text = node.text(problems)?;
    let age = parse_age(text);
    if age.is_none() {
        problems
            .error("wrong-value", node.at(), format!("`{}` is no age: `{text}`", node.path))
            .help("write a number and a unit: `30d`, `12h`, `45m` or `10s`");
    }
    age
}

fn megabytes(
    fields: &MappingFields<'_>,
    key: &str,
    low: u64,
    problems: &mut Problems,
) -> Option<u64> {
    fields.get(key)?.integer(low..=16_777_216, problems)
}

fn time(
    fields: &MappingFields<'_>,
    key: &str,
    range: std::ops::RangeInclusive<u64>,
    problems: &mut Problems,
) -> Option<Duration> {
    fields.get(key)?.milliseconds(range, problems)
}

fn set_if_some<T>(into: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *into = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_values_override_built_in_defaults() {
        let text = "timeout_ms: 60000\nmodel: haiku\nmax_runs: 3\nidentity: required\n\
                    session_retention: 30d\nbudgets: { web-search: { per_day_usd: 5 } }\n";
        let (defaults, orchestration, found) = parse_defaults(text, Path::new("defaults.yaml"));
        assert_eq!(found, []);
        assert_eq!(
            defaults,
            Defaults {
                timeout: Duration::from_mins(1),
                model: Some("haiku".to_owned()),
                ..Defaults::default()
            }
        );
        let budget = Budget { per_day_usd: 5.0 };
        assert_eq!(
            orchestration,
            Orchestration {
                max_runs: 3,
                identity: IdentityRule::Required,
                session_retention: Some(Duration::from_hours(24 * 30)),
                budgets: BTreeMap::from([("web-search".to_owned(), budget)]),
                ..Orchestration::default()
            }
        );
    }

    #[test]
    fn audit_is_a_word_or_a_mapping() {
        let read = |text: &str| {
            let (_, orchestration, found) = parse_defaults(text, Path::new("d.yaml"));
            (orchestration.audit, orchestration.audit_arguments, found.len())
        };
        let (required, lax) = (AuditRule::Required, AuditRule::BestEffort);
        assert_eq!(read("audit: best_effort\n"), (lax, ArgumentLogging::Never, 0));
        assert_eq!(
            read("audit: { arguments: redacted }\n"),
            (required, ArgumentLogging::Redacted, 0)
        );
        assert_eq!(
            read("audit: { mode: best_effort, arguments: full }\n"),
            (lax, ArgumentLogging::Full, 0)
        );
        assert_eq!(read("audit: { argument: full }\n"), (required, ArgumentLogging::Never, 1));
    }

    #[test]
    fn an_unknown_key_is_an_error_with_its_line() {
        let (.., found) = parse_defaults("model: haiku\nmax_run: 3\n", Path::new("d.yaml"));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].to_string(),
            "d.yaml:2:1: unknown key `max_run` (did you mean `max_runs`?)"
        );
    }
}
