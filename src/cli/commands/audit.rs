//! `adjutant audit`: shows the audit log, or verifies its hash chain.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use crate::audit::{ArgumentDetail, AuditOptions, Verification, upgrade_line, verify};
use crate::catalog::{ArgumentLogging, AuditRule, Snapshot};
use crate::cli::format::{format_duration, plural};
use crate::cli::log_view::{LogView, MatchedLine, age};
use crate::cli::table::wrap_line;
use crate::cli::{CliCommand, CommandError, CommandResult, ExitStatus, output, store_unavailable};
use crate::config::{GatewayFiles, Settings};
use crate::store::LockError;
use crate::util::{Timestamp, now, one_line, shorten};

/// Show the audit log, or check that it is as it was written
///
/// Exit code 0; 1 if `--verify` finds that it is not; 4 if it cannot be read.
#[expect(clippy::struct_excessive_bools, reason = "a command line is made of switches")]
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant audit --follow\n  adjutant audit --verify")]
pub(crate) struct AuditArguments {
    /// Check that no line was changed, removed, moved or cut off
    #[arg(long)]
    pub(crate) verify: bool,

    /// Go on showing lines as they are written
    #[arg(long, short, conflicts_with = "verify")]
    pub(crate) follow: bool,

    /// Print the entries as JSON, one a line, or the result of `--verify` as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Only this agent's requests
    #[arg(long, value_name = "NAME", help_heading = "Which lines")]
    pub(crate) agent: Option<String>,

    /// Only requests to this server
    #[arg(long, value_name = "NAME", help_heading = "Which lines")]
    pub(crate) server: Option<String>,

    /// Only requests for this tool
    #[arg(long, value_name = "NAME", help_heading = "Which lines")]
    pub(crate) tool: Option<String>,

    /// Only this operation, such as `execute_tool`
    #[arg(long, value_name = "NAME", help_heading = "Which lines")]
    pub(crate) operation: Option<String>,

    /// Only what was refused
    #[arg(long, help_heading = "Which lines")]
    pub(crate) denied: bool,

    /// Only what is not older, such as `30m`, `12h` or `7d`
    #[arg(long, value_name = "AGE", value_parser = age, help_heading = "Which lines")]
    pub(crate) since: Option<Duration>,

    /// At most this many, the newest
    #[arg(long, value_name = "N", default_value_t = 50, help_heading = "Which lines")]
    pub(crate) limit: usize,

    /// The log [default: $GATEWAY_AUDIT_LOG, or data/audit.jsonl]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Fields of an audit entry in the text output; `--json` prints whole lines.
#[derive(Deserialize)]
struct AuditRow {
    seq: u64,
    time: Timestamp,
    caller: Option<AuditCaller>,
    operation: String,
    #[serde(default)]
    server: String,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    decision: String,
    #[serde(default)]
    reason: String,
    duration_ms: Option<u64>,
    #[serde(default)]
    code: String,
}

#[derive(Deserialize)]
struct AuditCaller {
    name: String,
    known_by: String,
}

impl AuditRow {
    fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(&upgrade_line(line)).ok()
    }

    fn caller_name(&self) -> &str {
        self.caller.as_ref().map_or("", |caller| &caller.name)
    }
}

impl CliCommand for AuditArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let path = self.file.clone().unwrap_or_else(|| GatewayFiles::locate(settings).audit_log);
        if self.verify {
            return run_verify(&path, self.json);
        }
        let view = LogView { path: &path, limit: self.limit, follow: self.follow };
        let judge = |line: &str| {
            let shown = AuditRow::parse(line)?;
            Some(MatchedLine { sequence: shown.seq, is_match: matches_filter(&shown, self) })
        };
        let shown = view.print(
            |each| {
                read_lines(&path, |line| {
                    if let Some(judged) = judge(line) {
                        each(line, judged);
                    }
                })
            },
            judge,
            |line| print_line(line, self.json),
        );
        shown.map_err(|error| unreadable(&path, error))?;
        Ok(ExitStatus::Success)
    }
}

/// Returns the audit settings of `agents/defaults.yaml`.
pub(crate) fn audit_options(settings: &Settings) -> AuditOptions {
    let snapshot = Snapshot::load(settings);
    let common = snapshot.orchestration();
    AuditOptions {
        fail_closed: common.audit == AuditRule::Required,
        rotate_bytes: common.log_max_mb.saturating_mul(1 << 20),
        retention: common.log_retention,
        arguments: match common.audit_arguments {
            ArgumentLogging::Never => ArgumentDetail::Never,
            ArgumentLogging::Redacted => ArgumentDetail::Redacted,
            ArgumentLogging::Full => ArgumentDetail::Full,
        },
    }
}

fn run_verify(path: &Path, json: bool) -> CommandResult {
    if !path.exists() && !crate::store::head_path(path).exists() {
        return Err(unreadable(path, "there is no log yet"));
    }
    let found = verify(path, |_| {}).map_err(|error| unreadable(path, error))?;
    output::print_result(json, &found.to_object(), || format_verification(path, &found));
    Ok(ExitStatus::success_if(found.problems.is_empty()))
}

fn format_verification(path: &Path, found: &Verification) -> String {
    let mut text = String::new();
    for problem in &found.problems {
        let line = if problem.line == 0 { String::new() } else { format!(":{}", problem.line) };
        text += &format!("{}{line}: {}\n", problem.file.display(), problem.message);
    }
    let verdict = match found.problems.len() {
        0 => "as they were written".to_owned(),
        problems => plural(problems, "problem"),
    };
    let (path, lines) = (path.display(), plural(found.lines, "line"));
    text + &format!("{path}: {lines}, {verdict}\nnewest hash {}", found.newest_hash)
}

/// Passes every line to `each` and warns if verification finds a problem.
fn read_lines(path: &Path, each: impl FnMut(&str)) -> Result<(), LockError> {
    if !verify(path, each)?.problems.is_empty() {
        output::print_message(
            "warning: the log is not as it was written; see `adjutant audit --verify`",
        );
    }
    Ok(())
}

fn matches_filter(shown: &AuditRow, arguments: &AuditArguments) -> bool {
    let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|w| w == found);
    let recent =
        arguments.since.is_none_or(|age| now().duration_since(shown.time).unsigned_abs() <= age);
    recent
        && is(&arguments.agent, shown.caller_name())
        && is(&arguments.server, &shown.server)
        && is(&arguments.tool, &shown.tool)
        && is(&arguments.operation, &shown.operation)
        && (!arguments.denied || shown.decision == "deny")
}

fn print_line(line: &str, json: bool) {
    if json {
        return output::print_raw(upgrade_line(line));
    }
    let Some(shown) = AuditRow::parse(line) else { return };
    output::print(wrap_line(&one_line(&format_entry(&shown))));
}

/// Formats an entry: `#12 2026-01-31T12:00:00Z dev (asserted) execute_tool db/query allow 12 ms`.
fn format_entry(shown: &AuditRow) -> String {
    let name = |text: &str| shorten(text, 60);
    let time = shown.time.strftime("%Y-%m-%dT%H:%M:%SZ");
    let mut words = vec![format!("#{}", shown.seq), time.to_string()];
    if let Some(caller) = &shown.caller {
        words.push(format!("{} ({})", name(&caller.name), caller.known_by));
    }
    words.push(name(&shown.operation));
    match (shown.server.as_str(), shown.tool.as_str()) {
        ("", "") => {}
        ("", tool) => words.push(name(tool)),
        (server, "") => words.push(name(server)),
        (server, tool) => words.push(format!("{}/{}", name(server), name(tool))),
    }
    words.push(shown.decision.clone());
    words.extend(shown.duration_ms.map(format_duration));
    words.push(shown.code.clone());
    if shown.decision == "deny" || shown.decision.is_empty() {
        words.push(format!("– {}", shorten(&shown.reason, 300)));
    }
    words.retain(|word| !word.is_empty() && word != "– ");
    words.join(" ")
}

fn unreadable(path: &Path, error: impl Display) -> CommandError {
    store_unavailable(format_args!("the audit log `{}` cannot be read: {error}", path.display()))
}
