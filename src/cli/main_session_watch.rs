//! The sessions of Claude Code in the record, while a server of ours runs below one of them.

use std::thread;
use std::time::{Duration, Instant};

use crate::config::Settings;
use crate::identity::claude_above;
use crate::record::{ClaudeStamp, EventLog, EventOptions, Life, Noticed};

/// Between the end of our stdin and the moment at which a killed `claude` is surely seen as gone. One that ends in
/// order waits for us meanwhile, so it is short.
const PATIENCE: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(5);

/// Ends in the record what killed sessions have left open. What cannot be written now is written by the next one.
pub(super) fn end_killed(settings: &Settings, noticed: Noticed) {
    let log = EventLog::new(&settings.data_dir(), EventOptions::default());
    if let Err(error) = log.end_killed_sessions(noticed) {
        tracing::warn!(%error, "the end of a session could not be recorded");
    }
}

/// Watches over the session that this process was started for.
#[derive(Debug)]
pub(super) struct Watch {
    claude: Option<ClaudeStamp>,
    settings: Settings,
}

impl Watch {
    /// Begins with what earlier sessions have left; nobody waits for that.
    pub(super) fn begin(settings: &Settings) -> Self {
        let settings = settings.clone();
        let claude = claude_above().map(ClaudeStamp::of);
        let earlier = settings.clone();
        thread::spawn(move || end_killed(&earlier, Noticed::Later));
        Self { claude, settings }
    }

    /// Our client is gone. Where the whole of it was killed, nobody else says so.
    pub(super) fn end(self) {
        let log = EventLog::new(&self.settings.data_dir(), EventOptions::default());
        let Some(claude) = self.claude.filter(|claude| log.has_session_of(claude)) else { return };
        let began = Instant::now();
        while claude.life() == Life::Lives && began.elapsed() < PATIENCE {
            thread::sleep(LOOK);
        }
        end_killed(&self.settings, Noticed::AtOnce);
    }
}
