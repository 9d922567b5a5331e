//! The gateway's two files as they hold now: each is read on its own, and one that does not parse
//! leaves the last good one of the same file in force.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::server_config::ServerSet;
use super::verdicts::Verdicts;
use crate::base::{ReadRefused, Timestamp, now, read_bounded};
use crate::catalog::public_servers;
use crate::config::GatewayFiles;
use crate::policy::{GatewayRules, RuleProblem, unknown_servers};

const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// What is in force: a request takes one of these at its start and never looks again.
#[derive(Clone)]
pub struct InForce {
    /// The servers.
    pub servers: Arc<ServerSet>,
    /// The same servers, shared: what the pool is asked for.
    pub rules: Arc<GatewayRules>,
    /// Where both were read from.
    pub files: Arc<GatewayFiles>,
    /// What these rules have said so far.
    pub(super) verdicts: Arc<Verdicts>,
    /// How the reading went.
    pub report: ReloadReport,
}

/// How the reading of both files went, in the shape that `get_gateway_status` shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReloadReport {
    /// `.mcp.json`.
    pub mcp_config: FileReport,
    /// `.mcp-gateway-rules.json`.
    pub gateway_rules: FileReport,
}

/// How the reading of one file went.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileReport {
    /// When it was last read.
    pub last_attempt: Option<Timestamp>,
    /// When it was last in order.
    pub last_success: Option<Timestamp>,
    /// What was wrong the last time, if anything was.
    pub last_error: Option<String>,
    /// How often it was read.
    pub attempt_count: u64,
    /// How often it was in order.
    pub success_count: u64,
    /// What is odd about it.
    pub last_warnings: Vec<String>,
}

impl FileReport {
    fn note<T>(&mut self, outcome: Result<(T, Vec<String>), String>) -> Option<T> {
        let at = now();
        self.last_attempt = Some(at);
        self.attempt_count += 1;
        match outcome {
            Ok((value, warnings)) => {
                self.last_success = Some(at);
                self.success_count += 1;
                self.last_error = None;
                self.last_warnings = warnings;
                Some(value)
            }
            Err(error) => {
                self.last_error = Some(error);
                None
            }
        }
    }
}

impl InForce {
    /// Reads both files for the first time.
    pub(super) fn read(files: &GatewayFiles) -> Self {
        let nothing = Self {
            servers: Arc::default(),
            rules: Arc::new(GatewayRules::deny_all(&files.rules.path)),
            files: Arc::new(files.clone()),
            verdicts: Arc::default(),
            report: ReloadReport::default(),
        };
        nothing.again()
    }

    /// Reads both files again, wherever they are now; what does not parse stays as it was.
    pub(super) fn again(&self) -> Self {
        let files = Arc::new(self.files.again());
        let mut next = Self { verdicts: Arc::default(), files: Arc::clone(&files), ..self.clone() };
        let servers = read_servers(&files.mcp_config.path, &files.root);
        if let Some(servers) = next.report.mcp_config.note(servers) {
            next.servers = Arc::new(servers);
        }
        let rules = read_rules(&files.rules.path, &next.servers);
        if let Some(rules) = next.report.gateway_rules.note(rules) {
            next.rules = Arc::new(rules);
        }
        say(&next.report.mcp_config, &files.mcp_config.path);
        say(&next.report.gateway_rules, &files.rules.path);
        next
    }
}

const MISSING: &str = "there is no such file";

fn say(report: &FileReport, path: &Path) {
    let path = path.display();
    if let Some(error) = &report.last_error {
        tracing::error!("{path}: {error}; the last good version stays in force");
    }
    for warning in &report.last_warnings {
        // A project need not have these files; it is only to be seen by whoever looks for it.
        if warning.starts_with(MISSING) {
            tracing::info!("{path}: {warning}");
        } else {
            tracing::warn!("{path}: {warning}");
        }
    }
}

/// The servers of `.mcp.json` and the public ones of extensions; the file's own keep their names.
fn read_servers(path: &Path, root: &Path) -> Result<(ServerSet, Vec<String>), String> {
    let (mut set, missing) = match read_text(path)? {
        Some(text) => (ServerSet::parse(&text).map_err(|error| error.to_string())?, None),
        None => (ServerSet::default(), Some(format!("{MISSING}: no servers"))),
    };
    let taken = set.names().map(str::to_owned).collect();
    for (name, entry) in public_servers(root, &taken) {
        set.add(&name, &entry);
    }
    let remarks = set.remarks.iter().map(|remark| remark.sentence.clone());
    let warnings = missing.into_iter().chain(remarks).collect();
    Ok((set, warnings))
}

fn read_rules(path: &Path, servers: &ServerSet) -> Result<(GatewayRules, Vec<String>), String> {
    let Some(text) = read_text(path)? else {
        let said = format!("{MISSING}: nobody is allowed anything");
        return Ok((GatewayRules::deny_all(path), vec![said]));
    };
    let (rules, mut warnings) = GatewayRules::parse(&text, path).map_err(|problems| {
        let said = |problem: &RuleProblem| format!("line {}: {}", problem.line, problem.message);
        problems.iter().map(said).collect::<Vec<_>>().join("; ")
    })?;
    warnings.extend(unknown_servers(&rules, servers.written_names()));
    let mut said: Vec<String> = warnings
        .iter()
        .map(|warning| format!("line {}: {}", warning.line, warning.message))
        .collect();
    said.dedup();
    Ok((rules, said))
}

/// The text of one of the gateway's files; `None` if there is none.
pub fn read_text(path: &Path) -> Result<Option<String>, String> {
    match read_bounded(path, MAX_BYTES) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "it is no UTF-8".to_owned()),
        Err(ReadRefused::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
