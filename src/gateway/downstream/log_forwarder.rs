//! What servers log, on its way to the one client that may hear it.
//!
//! A log message does not say which call it belongs to. It is passed on only where one client is alone with the servers,
//! over stdio, and only from those that this client has called; everything is in our own log besides.

#![expect(deprecated, reason = "servers of today still log this way")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::watch;

use super::pace::Pace;

/// So many messages of one server are passed on in a second.
const IN_A_SECOND: u32 = 50;
const SECOND: Duration = Duration::from_secs(1);
/// Longer ones are not.
const LONGEST: usize = 64 << 10;

/// Takes the `params` of a message; `false` where there is no room for it.
type Listener = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// The way of log messages to the client; closed until somebody listens.
#[derive(Default)]
pub struct LogRelay {
    listener: OnceLock<Listener>,
    /// The least that the client wants to hear; `None` leaves that to the servers.
    level: watch::Sender<Option<LoggingLevel>>,
}

impl LogRelay {
    /// From now on messages go to `listener`. The first one stays: there is one client.
    pub fn open(&self, listener: impl Fn(&str) -> bool + Send + Sync + 'static) {
        let _ = self.listener.set(Box::new(listener));
    }

    /// Whether anybody listens.
    pub fn is_open(&self) -> bool {
        self.listener.get().is_some()
    }

    /// The least that the client wants to hear from now on; servers that know levels are told.
    pub fn set_level(&self, level: LoggingLevel) {
        self.level.send_replace(Some(level));
    }
}

/// What one server logs, as far as the client may hear it.
pub(super) struct Voice {
    relay: Arc<LogRelay>,
    /// Whether the client has made an allowed call since the rules became what they are.
    called: AtomicBool,
    said: Mutex<Said>,
}

impl Voice {
    pub(super) fn new(relay: Arc<LogRelay>) -> Self {
        let said = Said { pace: Pace::new(IN_A_SECOND, SECOND), dropped: 0 };
        Self { relay, called: AtomicBool::new(false), said: Mutex::new(said) }
    }

    /// The client makes an allowed call.
    pub(super) fn note_call(&self) {
        // Looked at first: most calls are not the first one, and a write would take the line from other threads.
        if !self.called.load(Ordering::Relaxed) {
            self.called.store(true, Ordering::Relaxed);
        }
    }

    /// The rules have changed: what was allowed may not be any more.
    pub(super) fn forget_calls(&self) {
        self.called.store(false, Ordering::Relaxed);
    }

    /// Which level the client wants, now and later.
    pub(super) fn level(&self) -> watch::Receiver<Option<LoggingLevel>> {
        self.relay.level.subscribe()
    }

    /// Passes a message on, without what `hide` takes out, if the client may and wants to hear it; what is too much is counted.
    pub(super) fn say(
        &self,
        server: &str,
        message: &LoggingMessageNotificationParam,
        hide: impl Fn(&str) -> String,
    ) {
        let Some(listener) = self.relay.listener.get() else { return };
        let least = *self.relay.level.borrow();
        let is_wanted = least.is_none_or(|least| message.level as u8 >= least as u8);
        if !is_wanted || !self.called.load(Ordering::Relaxed) {
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is_passed =
            said.pace.take() && params(server, message, hide).is_some_and(|said| listener(&said));
        if !is_passed {
            said.drop_one(server);
        }
    }
}

/// The `params` of a message as the client gets them; `None` where they are too long.
fn params(
    server: &str,
    message: &LoggingMessageNotificationParam,
    hide: impl Fn(&str) -> String,
) -> Option<String> {
    let logger = match &message.logger {
        Some(own) => format!("{server}/{own}"),
        None => server.to_owned(),
    };
    let params = json!({ "level": message.level, "logger": logger, "data": message.data });
    let params = hide(&params.to_string());
    // A secret that holds signs of JSON could tear it apart.
    let is_whole = serde_json::from_str::<IgnoredAny>(&params).is_ok();
    (params.len() <= LONGEST && is_whole).then_some(params)
}

/// What a server has said lately.
struct Said {
    pace: Pace,
    dropped: u64,
}

impl Said {
    fn drop_one(&mut self, server: &str) {
        self.dropped += 1;
        // Powers of two: a server that floods cannot flood our log too.
        if self.dropped.is_power_of_two() {
            let count = self.dropped;
            tracing::warn!(
                server,
                count,
                "log messages were not passed on to the client: too many, too long, or it does not read"
            );
        }
    }
}
