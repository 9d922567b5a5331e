//! Records the end of main sessions whose `claude` was killed.
//!
//! Claude Code reports the end of a session by a hook. A killed `claude` runs no hook, so a server that it started
//! records the end after its stdin closes, or a later process does.

use std::thread;
use std::time::{Duration, Instant};

use crate::catalog::Orchestration;
use crate::config::Settings;
use crate::delegation::event_log;
use crate::events::{ClaudeProcess, EndDetection, ProcessLiveness};
use crate::identity::claude_ancestor;

/// Wait between the end of stdin and the exit of a killed `claude`.
///
/// Short, because a `claude` that exits normally waits for this process meanwhile.
const CLAUDE_EXIT_TIMEOUT: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Records the end of killed sessions. A failure is logged; a later call tries again.
pub(crate) fn record_killed_sessions(settings: &Settings, noticed: EndDetection) {
    let log = event_log(settings, &Orchestration::load(settings));
    if let Err(error) = log.end_killed_sessions(noticed) {
        tracing::warn!(%error, "the end of a session could not be recorded");
    }
}

/// Watches the main session that started this process.
#[derive(Debug)]
pub(crate) struct MainSessionWatch {
    claude: Option<ClaudeProcess>,
    settings: Settings,
}

impl MainSessionWatch {
    /// Starts the watch, and records sessions that were killed earlier on a background thread.
    pub(crate) fn start(settings: &Settings) -> Self {
        let settings = settings.clone();
        let claude = claude_ancestor().map(ClaudeProcess::of);
        let earlier = settings.clone();
        thread::spawn(move || record_killed_sessions(&earlier, EndDetection::Later));
        Self { claude, settings }
    }

    /// Records the end of the session if its `claude` was killed. Waits at most 200 ms for its exit.
    pub(crate) fn finish(self) {
        let log = event_log(&self.settings, &Orchestration::load(&self.settings));
        // If the files cannot be read, there may be one.
        let may_be_open = |claude: &ClaudeProcess| log.has_open_session_of(claude).unwrap_or(true);
        let Some(claude) = self.claude.filter(may_be_open) else { return };
        let began = Instant::now();
        while claude.liveness() == ProcessLiveness::Alive && began.elapsed() < CLAUDE_EXIT_TIMEOUT {
            thread::sleep(POLL_INTERVAL);
        }
        record_killed_sessions(&self.settings, EndDetection::Immediate);
    }
}
