//! Keys and parser of `agents/defaults.yaml`. The format is our own, so an unknown key is an error.

use std::path::Path;

use serde_json::{Value, json};

use super::super::diagnostic::Diagnostic;
use super::super::problem::Problems;
use super::agent_keys::shared_keys;
use super::key::{Key, properties, read_keys};
use super::node::{MappingFields, Node};
use super::positions::SourcePositions;
use super::shape::{Property, Shape, names, property, required};
use super::yaml;
use crate::catalog::model::{
    Agent, ArgumentLogging, AuditRule, Budget, IdentityRule, Orchestration,
};
use crate::util::AgentName;

type LimitKey = Key<Orchestration>;

const DAY_MS: u64 = 86_400_000;
const WEEK_MS: u64 = 7 * DAY_MS;
const MAX_MB: u64 = 16_777_216;

const AUDIT_MODE: Shape = Shape::Words(&["required", "best_effort"]);
const AUDIT: &[Property] = &[
    property("mode", AUDIT_MODE, "As `audit`"),
    property(
        "arguments",
        Shape::Words(&["never", "redacted", "full"]),
        "Arguments of calls in the log: none, their names, types and sizes, or all up to 64 KiB",
    ),
];
const BUDGET: &[Property] = &[required("per_day_usd", Shape::Dollars, "US dollars per day (UTC)")];

/// Keys of the orchestrator; the file has the shared keys of agent files, too.
pub(crate) const LIMIT_KEYS: &[LimitKey] = &[
    LimitKey::number("max_runs", 1..=100_000, |limits| &mut limits.max_runs)
        .doc("Concurrent runs of one Adjutant process"),
    LimitKey::number("max_queue", 0..=100_000, |limits| &mut limits.max_queue)
        .doc("Calls that may wait for admission; further calls are rejected"),
    LimitKey::number("max_machine_runs", 1..=100_000, |limits| &mut limits.max_machine_runs)
        .doc("Concurrent runs on this machine; without the key, no limit"),
    LimitKey::number("min_free_memory_mb", 0..=MAX_MB, |limits| &mut limits.min_free_memory_mb)
        .doc("Free memory in MB below which no process is started; `0` disables the check"),
    LimitKey::number("session_wait_ms", 0..=DAY_MS, |limits| &mut limits.session_wait)
        .doc("Longest wait of a call for a session in use, in milliseconds"),
    LimitKey::age("session_retention", |limits| &mut limits.session_retention).doc(
        "Sessions unused for longer are deleted, such as `30d` or `12h`; without the key, never",
    ),
    LimitKey::other(
        "identity",
        Shape::Words(&["required", "optional"]),
        |node, limits| {
            let words =
                [("required", IdentityRule::Required), ("optional", IdentityRule::Optional)];
            limits.identity = node.one_of(&words).unwrap_or(limits.identity);
        },
        |limits| json!(limits.identity),
    )
    .doc(
        "`required`: callers that are not attested are rejected, which in this version are all \
         callers of `run_subagent`",
    ),
    LimitKey::other(
        "audit",
        Shape::OneOf(&[AUDIT_MODE, Shape::Object(AUDIT)]),
        read_audit,
        |limits| json!(limits.audit),
    )
    .doc(
        "When the audit log cannot be written, calls are rejected (`required`) or continue \
         (`best_effort`). `{ mode: required, arguments: redacted }` also logs the names, types and \
         sizes of arguments, `full` the arguments themselves",
    ),
    LimitKey::other("budgets", Shape::Map(&Shape::Object(BUDGET)), read_budgets, |limits| {
        json!(limits.budgets)
    })
    .doc("US dollars per agent and day (UTC): `web-search: { per_day_usd: 5 }`"),
    LimitKey::dollars("session_budget_usd", |limits| &mut limits.session_budget_usd)
        .doc("US dollars for all runs started by one main session; without the key, no limit"),
    LimitKey::number("server_idle_ms", 0..=WEEK_MS, |limits| &mut limits.server_idle)
        .doc("A private MCP server unused for longer is stopped, in milliseconds; `0`: at once"),
    LimitKey::number("max_warm", 0..=1_000, |limits| &mut limits.max_warm)
        .doc("Idle processes, in total"),
    LimitKey::number("max_warm_mb", 0..=MAX_MB, |limits| &mut limits.max_warm_mb)
        .doc("Memory of all idle processes, in MB"),
    LimitKey::number("warm_idle_ms", 1_000..=WEEK_MS, |limits| &mut limits.warm_idle)
        .doc("An idle process unused for longer is stopped, in milliseconds"),
    LimitKey::number("max_live_mb", 1..=MAX_MB, |limits| &mut limits.max_live_mb)
        .doc("The process of a session with more memory, in MB, is stopped after its turn"),
    LimitKey::number("max_live_age_ms", 1_000..=WEEK_MS, |limits| &mut limits.max_live_age)
        .doc("The process of a session that is older, in milliseconds, is stopped after its turn"),
    LimitKey::number("max_line_mb", 1..=MAX_MB, |limits| &mut limits.max_line_mb)
        .doc("Longest output line of an agent, in MB"),
    LimitKey::number("shutdown_grace_ms", 0..=DAY_MS, |limits| &mut limits.shutdown_grace)
        .doc("Time that running calls have to end at shutdown, in milliseconds"),
    LimitKey::number("log_max_mb", 1..=MAX_MB, |limits| &mut limits.log_max_mb)
        .doc("Size in MB at which the audit log and the event log begin a new file"),
    LimitKey::age("log_retention", |limits| &mut limits.log_retention).doc(
        "Full files of the audit log and the event log, and results in `data/results/`, are \
         deleted when they are older, such as `90d`; without the key, never",
    ),
];

/// Parses the file: a template for all agents, and the limits of the orchestrator.
///
/// If there are errors, affected values are the built-in ones and must not be used.
pub(crate) fn parse_defaults(text: &str, file: &Path) -> (Agent, Orchestration, Vec<Diagnostic>) {
    let problems = Problems::default();
    let (mut template, mut limits) = (Agent::template(), Orchestration::default());
    if let Some(mapping) = yaml::parse_mapping(text, 1, &problems) {
        let fields = MappingFields::new(&mapping, &problems);
        let known: Vec<&str> = shared_keys()
            .map(|key| key.name)
            .chain(LIMIT_KEYS.iter().map(|key| key.name))
            .collect();
        fields.reject_unknown(&known);
        read_keys(shared_keys(), &fields, &mut template);
        read_keys(LIMIT_KEYS.iter(), &fields, &mut limits);
    }
    let diagnostics = problems.locate(file, || SourcePositions::parse(text, 1));
    (template, limits, diagnostics)
}

/// JSON Schema of the file.
pub(crate) fn defaults_schema() -> Value {
    let mut all = properties(shared_keys(), Agent::template());
    all.extend(properties(LIMIT_KEYS.iter(), Orchestration::default()));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Adjutant defaults",
        "description": "`agents/defaults.yaml`: defaults for all agents, and the limits of the orchestrator.",
        "type": "object",
        "properties": all,
        "additionalProperties": false,
    })
}

/// `audit: best_effort`, or `audit: { mode: best_effort, arguments: redacted }`.
fn read_audit(node: &Node<'_>, limits: &mut Orchestration) {
    let modes = [("required", AuditRule::Required), ("best_effort", AuditRule::BestEffort)];
    if !matches!(node.value, serde_yaml::Value::Mapping(_)) {
        limits.audit = node.one_of(&modes).unwrap_or(limits.audit);
        return;
    }
    let details = [
        ("never", ArgumentLogging::Never),
        ("redacted", ArgumentLogging::Redacted),
        ("full", ArgumentLogging::Full),
    ];
    let Some(fields) = node.fields() else { return };
    fields.reject_unknown(&names(AUDIT));
    limits.audit = fields.choose("mode", &modes).unwrap_or(limits.audit);
    limits.audit_arguments = fields.choose("arguments", &details).unwrap_or(limits.audit_arguments);
}

fn read_budgets(node: &Node<'_>, limits: &mut Orchestration) {
    let Some(fields) = node.fields() else { return };
    for (agent, node) in fields.iter() {
        if let Err(error) = agent.parse::<AgentName>() {
            node.key_error("invalid-name", error.to_string());
        }
        let Some(inside) = node.fields() else { continue };
        inside.reject_unknown(&names(BUDGET));
        let Some(amount) = inside.get("per_day_usd") else {
            node.key_error("missing-key", format!("`{}` says no amount", node.path))
                .help(format!("write `{agent}: {{ per_day_usd: 5 }}`"));
            continue;
        };
        if let Some(per_day_usd) = amount.dollars() {
            limits.budgets.insert(agent.to_owned(), Budget { per_day_usd });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::catalog::model::Limits;

    #[test]
    fn file_values_override_built_in_defaults() {
        let text = "timeout_ms: 60000\nmodel: haiku\nmax_runs: 3\nidentity: required\n\
                    session_retention: 30d\nbudgets: { web-search: { per_day_usd: 5 } }\n";
        let (defaults, orchestration, found) = parse_defaults(text, Path::new("defaults.yaml"));
        assert_eq!(found, []);
        assert_eq!(
            defaults,
            Agent {
                limits: Limits { timeout: Duration::from_mins(1), ..Agent::template().limits },
                model: Some("haiku".to_owned()),
                ..Agent::template()
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

    #[test]
    fn all_mistakes_are_reported_at_once_each_with_its_line() {
        let text = "timeout_ms: soon\nmax_runs: 0\nidentity: maybe\naudit: { mode: lax, x: 1 }\n\
                    budgets:\n  a: { per_day_usd: -1 }\n  b: {}\nsession_retention: long\n\
                    env: { \"a b\": 1 }\nhooks: { Nothing: [] }\nmax_run: 3\n";
        let (.., found) = parse_defaults(text, Path::new("d.yaml"));
        let found: Vec<_> = found.iter().map(|found| (found.line, found.code)).collect();
        assert_eq!(
            found,
            [
                (1, "wrong-type"),
                (2, "out-of-range"),
                (3, "wrong-value"),
                (4, "wrong-value"),
                (4, "unknown-key"),
                (6, "out-of-range"),
                (7, "missing-key"),
                (8, "wrong-value"),
                (9, "wrong-type"),
                (10, "unknown-key"),
                (11, "unknown-key"),
            ]
        );
    }
}
