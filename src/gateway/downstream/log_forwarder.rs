//! Forwards log messages of servers to the client.
//!
//! A log message does not name the call that caused it. It is forwarded only to the single client of a stdio
//! connection, and only from servers that this client has called. All messages are also in our own log.

#![expect(deprecated, reason = "servers of today still log this way")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use serde_json::json;
use tokio::sync::watch;

use crate::jsonrpc::LineJson;
use crate::util::{Mutex, RateLimiter};

/// Messages per second and server that are forwarded.
const MAX_MESSAGES_PER_SECOND: u32 = 50;
const RATE_WINDOW: Duration = Duration::from_secs(1);
/// Longer messages, in bytes, are not forwarded.
const MAX_PARAMS_BYTES: usize = 64 << 10;

/// Receives the `params` of a message; returns false if its queue is full.
type LogSink = Box<dyn Fn(&LineJson) -> bool + Send + Sync>;

/// Log subscription of the client; inactive until [`Self::subscribe`].
#[derive(Default)]
pub struct LogSubscription {
    sink: OnceLock<LogSink>,
    /// Minimum level set by the client; `None` until then.
    level: watch::Sender<Option<LoggingLevel>>,
}

impl LogSubscription {
    /// Sends messages to `listener` from now on; later calls have no effect, since there is one client.
    pub fn subscribe(&self, listener: impl Fn(&LineJson) -> bool + Send + Sync + 'static) {
        let _ = self.sink.set(Box::new(listener));
    }

    /// Returns true after [`Self::subscribe`].
    pub fn is_subscribed(&self) -> bool {
        self.sink.get().is_some()
    }

    /// Sets the minimum level and forwards it to servers with the `logging` capability.
    pub fn set_level(&self, level: LoggingLevel) {
        self.level.send_replace(Some(level));
    }
}

/// Forwards the log messages of one server, filtered by permission, level and rate.
pub(crate) struct LogForwarder {
    subscription: Arc<LogSubscription>,
    /// Set by an allowed call of the client, cleared when the rules change.
    is_called: AtomicBool,
    recent: Mutex<RecentLogs>,
}

impl LogForwarder {
    pub(crate) fn new(subscription: Arc<LogSubscription>) -> Self {
        let rate_limiter = RateLimiter::new(MAX_MESSAGES_PER_SECOND, RATE_WINDOW);
        let recent = Mutex::new(RecentLogs { rate_limiter, dropped: 0 });
        Self { subscription, is_called: AtomicBool::new(false), recent }
    }

    /// Notes an allowed call of the client.
    pub(crate) fn allow_forwarding(&self) {
        // Load before store: usually the flag is set, and a store would invalidate the cache line of other threads.
        if !self.is_called.load(Ordering::Relaxed) {
            self.is_called.store(true, Ordering::Relaxed);
        }
    }

    /// Stops forwarding until the next allowed call, after a change of the rules.
    pub(crate) fn stop_forwarding(&self) {
        self.is_called.store(false, Ordering::Relaxed);
    }

    /// Returns a receiver for the level that the client wants.
    pub(crate) fn subscribe_level(&self) -> watch::Receiver<Option<LoggingLevel>> {
        self.subscription.level.subscribe()
    }

    /// Forwards a message, redacted by `hide`, if the client may receive it and its level is high enough.
    ///
    /// Counts messages that are dropped because of rate, size or a full queue.
    pub(crate) fn forward(
        &self,
        server: &str,
        message: &LoggingMessageNotificationParam,
        hide: impl Fn(&str) -> String,
    ) {
        let Some(listener) = self.subscription.sink.get() else { return };
        let min_level = *self.subscription.level.borrow();
        let is_wanted = min_level.is_none_or(|least| message.level as u8 >= least as u8);
        if !is_wanted || !self.is_called.load(Ordering::Relaxed) {
            return;
        }
        let mut said = self.recent.lock();
        let is_passed = said.rate_limiter.try_acquire()
            && params(server, message, hide).is_some_and(|said| listener(&said));
        said.dropped += u64::from(!is_passed);
        // Powers of two, so that a flood of messages does not flood our log.
        if !is_passed && said.dropped.is_power_of_two() {
            tracing::warn!(
                server,
                count = said.dropped,
                "log messages were not passed on to the client: too many, too long, or it does not read"
            );
        }
    }
}

/// Returns the redacted `params`; `None` above 64 KiB.
fn params(
    server: &str,
    message: &LoggingMessageNotificationParam,
    hide: impl Fn(&str) -> String,
) -> Option<LineJson> {
    let logger = match &message.logger {
        Some(own) => format!("{server}/{own}"),
        None => server.to_owned(),
    };
    let params = json!({ "level": message.level, "logger": logger, "data": message.data });
    let params = hide(&params.to_string());
    // Redacting a secret that contains JSON punctuation can leave invalid JSON, which is dropped.
    (params.len() <= MAX_PARAMS_BYTES).then(|| LineJson::parse(params).ok()).flatten()
}

/// Rate limiter and drop count of one server.
struct RecentLogs {
    rate_limiter: RateLimiter,
    dropped: u64,
}
