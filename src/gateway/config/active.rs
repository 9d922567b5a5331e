//! The gateway's two files as they hold now: each is read on its own, and one that does not parse
//! leaves the last good one of the same file in force.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::server_config::ServerSet;
use super::verdicts::Verdicts;
use crate::base::{ReadRefused, Timestamp, now, one_line, read_bounded, shorten};
use crate::catalog::public_servers;
use crate::config::GatewayFiles;
use crate::policy::{GatewayRules, RuleProblem, evaluate, unknown_servers};

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
    /// Why there are no rules, if there are none: `rules` then allows nobody anything.
    pub(super) gap: Option<RulesGap>,
    /// What these rules have said so far.
    pub(super) verdicts: Arc<Verdicts>,
    /// How the reading went.
    pub report: ReloadReport,
}

/// Why no rules are in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesGap {
    /// There is no such file.
    #[error("there are no rules (`{}`), so nobody is allowed anything", path.display())]
    Missing {
        /// Where they would be.
        path: PathBuf,
    },
    /// The file was never in order.
    #[error("the rules `{}` cannot be read, so nobody is allowed anything: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong, on one line.
        why: String,
    },
}

impl RulesGap {
    /// What to do; the files are followed, so nothing has to be started again.
    pub(super) fn way_out(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "A person must write them; they count from then on.",
            Self::Unreadable { .. } => {
                "A person must mend the file; `adjutant check` shows what is wrong."
            }
        }
    }
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
    /// Whether there was no such file the last time.
    pub(super) fn is_missing(&self) -> bool {
        self.last_warnings.iter().any(|warning| warning.starts_with(MISSING))
    }

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
            gap: Some(RulesGap::Missing { path: files.rules.path.clone() }),
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
        next.read_rules();
        let no_servers = next.report.mcp_config.success_count == 0;
        let meaning = if no_servers { "there are no servers" } else { LAST_GOOD };
        say(&next.report.mcp_config, &files.mcp_config.path, meaning);
        let meaning = if next.gap.is_some() { NOBODY } else { LAST_GOOD };
        say(&next.report.gateway_rules, &files.rules.path, meaning);
        next
    }

    fn read_rules(&mut self) {
        let path = &self.files.rules.path;
        let rules = read_rules(path, &self.servers);
        let path = path.clone();
        match self.report.gateway_rules.note(rules) {
            Some(Some(rules)) => {
                self.rules = Arc::new(rules);
                self.gap = None;
            }
            Some(None) => {
                self.rules = Arc::new(GatewayRules::deny_all(&path));
                self.gap = Some(RulesGap::Missing { path });
            }
            // Where there were good ones, they stay.
            None if self.gap.is_none() => {}
            None => {
                let why = self.report.gateway_rules.last_error.as_deref().unwrap_or_default();
                let why = shorten(&one_line(why.lines().next().unwrap_or_default()), 300);
                self.gap = Some(RulesGap::Unreadable { path, why });
            }
        }
    }

    /// Whether there is an agent in the rules that may use this server.
    pub(super) fn anybody_may_use(&self, server: &str) -> bool {
        let mut agents = self.rules.agents();
        agents.any(|agent| evaluate(&self.rules, agent, server, None).is_allowed())
    }
}

const MISSING: &str = "there is no such file";
const LAST_GOOD: &str = "the last good version stays in force";
const NOBODY: &str = "nobody is allowed anything";

/// `meaning` is what holds where the file is broken.
fn say(report: &FileReport, path: &Path, meaning: &str) {
    let path = path.display();
    if let Some(error) = &report.last_error {
        tracing::error!("{path}: {error}; {meaning}");
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

/// The rules; `None` if there is no such file.
fn read_rules(
    path: &Path,
    servers: &ServerSet,
) -> Result<(Option<GatewayRules>, Vec<String>), String> {
    let Some(text) = read_text(path)? else {
        return Ok((None, vec![format!("{MISSING}: {NOBODY}")]));
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
    Ok((Some(rules), said))
}

/// The text of one of the gateway's files; `None` if there is none.
pub fn read_text(path: &Path) -> Result<Option<String>, String> {
    match read_bounded(path, MAX_BYTES) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "it is no UTF-8".to_owned()),
        Err(ReadRefused::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
