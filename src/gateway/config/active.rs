//! The configuration files of the gateway that are in force: `.mcp.json` and the gateway rules.
//!
//! Each file is read on its own. If a file is invalid, its last good version stays in force.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::super::authorize::VerdictCache;
use super::servers::ServerSet;
use crate::catalog::public_servers;
use crate::config::{GatewayFiles, PLACEHOLDER_TEXT};
use crate::policy::{GatewayRules, RuleProblem, evaluate, unknown_servers};
use crate::store::{BoundedReadError, read_bounded};
use crate::util::{Timestamp, now, one_line, shorten};

const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// Immutable configuration. A request loads it once at its start and is not affected by a reload.
#[derive(Clone)]
pub struct ActiveConfig {
    pub servers: Arc<ServerSet>,
    /// Gateway rules; deny everything while `no_rules` is set.
    pub rules: Arc<GatewayRules>,
    pub files: Arc<GatewayFiles>,
    /// Reason why no rules are in force, if so.
    pub(crate) no_rules: Option<NoRules>,
    /// Cache of verdicts, replaced on every reload.
    pub(crate) verdict_cache: Arc<VerdictCache>,
    /// Outcome of the last reads.
    pub report: ReloadReport,
}

/// Reason why no rules are in force; everything is denied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRules {
    #[error("there are no rules (`{}`), so nobody is allowed anything", path.display())]
    Missing {
        /// Expected path.
        path: PathBuf,
    },
    /// The file was never valid since the gateway started.
    #[error("the rules `{}` cannot be read, so nobody is allowed anything: {why}", path.display())]
    Unreadable {
        path: PathBuf,
        /// First problem, on one line.
        why: String,
    },
}

impl NoRules {
    /// Returns advice for the caller. The files are watched, so a restart is not necessary.
    pub(crate) fn help(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "A person must write them; they count from then on.",
            Self::Unreadable { .. } => {
                "A person must mend the file; `adjutant check` shows what is wrong."
            }
        }
    }
}

/// Outcome of reading both files, in the format of `get_gateway_status`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReloadReport {
    pub mcp_config: ConfigFileReport,
    pub gateway_rules: ConfigFileReport,
}

/// Outcome of reading one file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ConfigFileReport {
    pub last_attempt: Option<Timestamp>,
    pub last_success: Option<Timestamp>,
    /// Error of the last read, if it failed.
    pub last_error: Option<String>,
    pub attempt_count: u64,
    pub success_count: u64,
    pub last_warnings: Vec<String>,
}

impl ConfigFileReport {
    /// Returns true if the file did not exist at the last read.
    pub(crate) fn is_missing(&self) -> bool {
        self.last_warnings.iter().any(|warning| warning.starts_with(MISSING_FILE))
    }

    fn record_outcome<T>(&mut self, outcome: Result<(T, Vec<String>), String>) -> Option<T> {
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

impl ActiveConfig {
    /// Reads both files for the first time.
    pub(crate) fn read(files: &GatewayFiles) -> Self {
        let nothing = Self {
            servers: Arc::default(),
            rules: Arc::new(GatewayRules::deny_all(&files.rules.path)),
            no_rules: Some(NoRules::Missing { path: files.rules.path.clone() }),
            files: Arc::new(files.clone()),
            verdict_cache: Arc::default(),
            report: ReloadReport::default(),
        };
        nothing.reload()
    }

    /// Locates and reads both files again; keeps the last good version of an invalid file.
    pub(crate) fn reload(&self) -> Self {
        let files = Arc::new(self.files.relocate());
        let mut next =
            Self { verdict_cache: Arc::default(), files: Arc::clone(&files), ..self.clone() };
        let servers = read_servers(&files.mcp_config.path, &files.root);
        if let Some(servers) = next.report.mcp_config.record_outcome(servers) {
            next.servers = Arc::new(servers);
        }
        next.read_rules();
        let no_servers = next.report.mcp_config.success_count == 0;
        let meaning = if no_servers { "there are no servers" } else { LAST_GOOD_IN_FORCE };
        log_report(&next.report.mcp_config, &files.mcp_config.path, meaning);
        let meaning = if next.no_rules.is_some() { DENY_ALL } else { LAST_GOOD_IN_FORCE };
        log_report(&next.report.gateway_rules, &files.rules.path, meaning);
        next
    }

    fn read_rules(&mut self) {
        let path = &self.files.rules.path;
        let rules = read_rules(path, &self.servers);
        let path = path.clone();
        match self.report.gateway_rules.record_outcome(rules) {
            Some(Some(rules)) => {
                self.rules = Arc::new(rules);
                self.no_rules = None;
            }
            Some(None) => {
                self.rules = Arc::new(GatewayRules::deny_all(&path));
                self.no_rules = Some(NoRules::Missing { path });
            }
            // The last good rules stay in force.
            None if self.no_rules.is_none() => {}
            None => {
                let why = self.report.gateway_rules.last_error.as_deref().unwrap_or_default();
                let why = shorten(&one_line(why.lines().next().unwrap_or_default()), 300);
                self.no_rules = Some(NoRules::Unreadable { path, why });
            }
        }
    }

    /// Returns true if the rules allow any agent to use this server.
    pub(crate) fn any_agent_may_use(&self, server: &str) -> bool {
        let mut agents = self.rules.agents();
        agents.any(|agent| evaluate(&self.rules, agent, server, None).is_allowed())
    }
}

const MISSING_FILE: &str = "there is no such file";
const LAST_GOOD_IN_FORCE: &str = "the last good version stays in force";
const DENY_ALL: &str = "nobody is allowed anything";

/// Logs errors and warnings of a read. `meaning` says what is in force if the file is invalid.
fn log_report(report: &ConfigFileReport, path: &Path, meaning: &str) {
    let path = path.display();
    if let Some(error) = &report.last_error {
        tracing::error!("{path}: {error}; {meaning}");
    }
    for warning in &report.last_warnings {
        // Both files are optional, so a missing file is logged at level `info`.
        if warning.starts_with(MISSING_FILE) {
            tracing::info!("{path}: {warning}");
        } else {
            tracing::warn!("{path}: {warning}");
        }
    }
}

/// Returns the servers of `.mcp.json` and the public servers of extensions.
///
/// On equal names `.mcp.json` wins.
fn read_servers(path: &Path, root: &Path) -> Result<(ServerSet, Vec<String>), String> {
    let (mut set, missing) = match read_text(path)? {
        Some(text) => (ServerSet::parse(&text).map_err(|error| error.to_string())?, None),
        None => (ServerSet::default(), Some(format!("{MISSING_FILE}: no servers"))),
    };
    let taken = set.names().map(str::to_owned).collect();
    for (name, entry) in public_servers(root, &taken) {
        set.add(&name, &entry);
    }
    let remarks = set.findings.iter().map(|remark| remark.message.clone());
    let warnings = missing.into_iter().chain(remarks).collect();
    Ok((set, warnings))
}

/// Returns the rules; `None` if the file does not exist.
fn read_rules(
    path: &Path,
    servers: &ServerSet,
) -> Result<(Option<GatewayRules>, Vec<String>), String> {
    let Some(text) = read_text(path)? else {
        return Ok((None, vec![format!("{MISSING_FILE}: {DENY_ALL}")]));
    };
    let (rules, mut warnings) = GatewayRules::parse(&text, path).map_err(|problems| {
        let said = |problem: &RuleProblem| format!("line {}: {}", problem.line, problem.message);
        problems.iter().map(said).collect::<Vec<_>>().join("; ")
    })?;
    warnings.extend(unknown_servers(&rules, servers.all_names()));
    let mut said: Vec<String> = warnings
        .iter()
        .map(|warning| format!("line {}: {}", warning.line, warning.message))
        .collect();
    said.dedup();
    Ok((Some(rules), said))
}

/// Reads a configuration file of at most 8 MiB; `None` if it does not exist, or is a placeholder of a sandbox.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, String> {
    match read_bounded(path, MAX_BYTES) {
        Ok(bytes) if bytes == PLACEHOLDER_TEXT.as_bytes() => Ok(None),
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "it is no UTF-8".to_owned()),
        Err(BoundedReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
