//! `adjutant audit`: what was asked for, what was decided, and whether the log is as it was written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use super::exit::Exit;
use super::log_view::{Judged, LogView, age};
use super::{problems, render};
use crate::base::{LockBusy, Timestamp, now, one_line, shorten};
use crate::catalog::{AuditRule, KeptArguments, Snapshot};
use crate::config::{GatewayFiles, Settings};
use crate::record::{ArgumentDetail, AuditOptions, Verification, verify};

/// `adjutant audit`.
#[expect(clippy::struct_excessive_bools, reason = "a command line is made of switches")]
#[derive(Debug, Args)]
pub(super) struct AuditArguments {
    /// Check that no line was changed, removed, moved or cut off
    #[arg(long)]
    pub(super) verify: bool,

    /// Go on showing lines as they are written
    #[arg(long, short, conflicts_with = "verify")]
    pub(super) follow: bool,

    /// The lines as they stand in the log, or the result of `--verify` as JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Only this agent's requests
    #[arg(long, value_name = "NAME", help_heading = "Which lines")]
    pub(super) agent: Option<String>,

    /// Only requests to this server
    #[arg(long, value_name = "NAME", help_heading = "Which lines")]
    pub(super) server: Option<String>,

    /// Only requests for this tool
    #[arg(long, value_name = "NAME", help_heading = "Which lines")]
    pub(super) tool: Option<String>,

    /// Only this operation, such as `execute_tool`
    #[arg(long, value_name = "NAME", help_heading = "Which lines")]
    pub(super) operation: Option<String>,

    /// Only what was refused
    #[arg(long, help_heading = "Which lines")]
    pub(super) denied: bool,

    /// Only what is not older, such as `30m`, `12h` or `7d`
    #[arg(long, value_name = "AGE", value_parser = age, help_heading = "Which lines")]
    pub(super) since: Option<Duration>,

    /// At most this many, the newest
    #[arg(long, value_name = "N", default_value_t = 50, help_heading = "Which lines")]
    pub(super) limit: usize,

    /// The log [default: $GATEWAY_AUDIT_LOG, or data/audit.jsonl]
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

/// What is shown of a line; the rest is for `--json`.
#[derive(Deserialize)]
struct Shown {
    seq: u64,
    time: Timestamp,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    known_by: String,
    operation: String,
    #[serde(default)]
    server: String,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    decision: String,
    #[serde(default)]
    reason: String,
    latency_us: Option<u64>,
    #[serde(default)]
    error: String,
}

pub(super) fn run(settings: &Settings, arguments: &AuditArguments) -> Exit {
    let path = arguments.file.clone().unwrap_or_else(|| GatewayFiles::locate(settings).audit_log);
    if arguments.verify {
        return check(&path, arguments.json);
    }
    let view = LogView { path: &path, limit: arguments.limit, follow: arguments.follow };
    let judge = |line: &str| {
        let shown = serde_json::from_str::<Shown>(line).ok()?;
        Some(Judged { number: shown.seq, is_wanted: is_wanted(&shown, arguments) })
    };
    let shown = view.show(
        |each| read(&path, |line| judge(line).into_iter().for_each(|judged| each(line, judged))),
        judge,
        |line| print(line, arguments.json),
    );
    shown.map_or_else(|error| cannot_read(&path, error), |()| Exit::Success)
}

/// How the log is kept, as `agents/defaults.yaml` says.
pub(super) fn audit_options(settings: &Settings) -> AuditOptions {
    let snapshot = Snapshot::load(settings);
    let common = snapshot.orchestration();
    AuditOptions {
        fail_closed: common.audit == AuditRule::Required,
        rotate_bytes: common.log_max_mb.saturating_mul(1 << 20),
        retention: common.log_retention,
        arguments: match common.audit_arguments {
            KeptArguments::Never => ArgumentDetail::Never,
            KeptArguments::Redacted => ArgumentDetail::Redacted,
            KeptArguments::Full => ArgumentDetail::Full,
        },
    }
}

fn check(path: &Path, json: bool) -> Exit {
    if !path.exists() && !crate::base::note_path(path).exists() {
        return cannot_read(path, "there is no log yet");
    }
    let found = match verify(path, |_| {}) {
        Ok(found) => found,
        Err(error) => return cannot_read(path, error),
    };
    if json {
        render::json(&found);
    } else {
        say(path, &found);
    }
    if found.problems.is_empty() { Exit::Success } else { Exit::Failure }
}

fn say(path: &Path, found: &Verification) {
    for problem in &found.problems {
        let line = if problem.line == 0 { String::new() } else { format!(":{}", problem.line) };
        render::data(format_args!("{}{line}: {}", problem.file.display(), problem.message));
    }
    let verdict = match found.problems.len() {
        0 => "as they were written".to_owned(),
        1 => "1 problem".to_owned(),
        many => format!("{many} problems"),
    };
    render::data(format_args!(
        "{}: {}, {verdict}",
        path.display(),
        problems::plural(usize::try_from(found.lines).unwrap_or(usize::MAX), "line")
    ));
    render::data(format_args!("newest hash {}", found.newest_hash));
}

/// Gives out every line, and says so where the log is not as it was written.
fn read(path: &Path, each: impl FnMut(&str)) -> Result<(), LockBusy> {
    if !verify(path, each)?.problems.is_empty() {
        render::talk("warning: the log is not as it was written; see `adjutant audit --verify`");
    }
    Ok(())
}

fn is_wanted(shown: &Shown, arguments: &AuditArguments) -> bool {
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|w| w == found);
    let recent =
        arguments.since.is_none_or(|age| now().duration_since(shown.time).unsigned_abs() <= age);
    recent
        && is(&arguments.agent, &shown.agent)
        && is(&arguments.server, &shown.server)
        && is(&arguments.tool, &shown.tool)
        && is(&arguments.operation, &shown.operation)
        && (!arguments.denied || shown.decision == "deny")
}

fn print(line: &str, json: bool) {
    if json {
        return render::data(line);
    }
    let Ok(shown) = serde_json::from_str::<Shown>(line) else { return };
    render::data(one_line(&sentence(&shown)));
}

/// `#12 2026-01-31T12:00:00Z dev (asserted) execute_tool db/query allow 1.5 ms`.
fn sentence(shown: &Shown) -> String {
    let name = |text: &str| shorten(text, 60);
    let time = shown.time.strftime("%Y-%m-%dT%H:%M:%SZ");
    let mut words = vec![format!("#{}", shown.seq), time.to_string()];
    if !shown.agent.is_empty() {
        words.push(format!("{} ({})", name(&shown.agent), shown.known_by));
    }
    words.push(name(&shown.operation));
    match (shown.server.as_str(), shown.tool.as_str()) {
        ("", "") => {}
        ("", tool) => words.push(name(tool)),
        (server, "") => words.push(name(server)),
        (server, tool) => words.push(format!("{}/{}", name(server), name(tool))),
    }
    words.push(shown.decision.clone());
    words.extend(shown.latency_us.map(milliseconds));
    words.push(shown.error.clone());
    if shown.decision == "deny" || shown.decision.is_empty() {
        words.push(format!("– {}", shorten(&shown.reason, 300)));
    }
    words.retain(|word| !word.is_empty() && word != "– ");
    words.join(" ")
}

fn milliseconds(micros: u64) -> String {
    format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
}

fn cannot_read(path: &Path, error: impl std::fmt::Display) -> Exit {
    let path: PathBuf = path.to_path_buf();
    render::problem(format_args!("the audit log `{}` cannot be read: {error}", path.display()));
    Exit::Usage
}
