//! Forwarding of server notifications into an agent's process.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::watch;

use super::process_control::ActiveRun;
use crate::claude::ClaudeHandle;
use crate::gateway::NotifyFn;

/// Destination of server notifications; closed until the process has answered `initialize`.
#[derive(Default)]
pub(crate) struct NotificationSink(OnceLock<ClaudeHandle>);

impl NotificationSink {
    pub(crate) fn connect(&self, handle: ClaudeHandle) {
        // Set once per process.
        let _ = self.0.set(handle);
    }

    /// Returns the callback that forwards notifications.
    ///
    /// Progress also counts as activity and is shown in the run's status.
    ///
    /// Holds the run weakly: the connections to the servers keep the callback as long as the process lives.
    pub(crate) fn notify_fn(
        self: &Arc<Self>,
        active_run: Option<&Arc<ActiveRun>>,
        last_sign: watch::Sender<Instant>,
    ) -> NotifyFn {
        let sink = Arc::clone(self);
        let active_run = active_run.map_or_else(Weak::new, Arc::downgrade);
        Arc::new(move |server, message| {
            if let Some(words) = format_progress(server, message) {
                last_sign.send_replace(Instant::now());
                if let Some(active_run) = active_run.upgrade() {
                    active_run.tool_progress(&words);
                }
            }
            if let Some(handle) = sink.0.get() {
                handle.send_mcp(server, message);
            }
        })
    }
}

/// Formats a progress notification, such as `books: 3 of 5 pages read`.
fn format_progress(server: &str, message: &Value) -> Option<String> {
    let params = message.get("params").filter(|_| {
        message.get("method").and_then(Value::as_str) == Some("notifications/progress")
    })?;
    // As a floating-point number, 5.0 is printed as 5.
    let number = |name: &str| params.get(name).and_then(Value::as_f64);
    let step = match (number("progress"), number("total")) {
        (Some(done), Some(total)) => format!("{done} of {total}"),
        (Some(done), None) => done.to_string(),
        (None, _) => String::new(),
    };
    let words = params.get("message").and_then(Value::as_str).unwrap_or_default();
    let said = [step.as_str(), words].join(" ");
    Some(format!("{server}: {}", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_case::test_case;

    #[test_case(&json!({ "progress": 3, "total": 5, "message": "pages read" }) => "books: 3 of 5 pages read")]
    #[test_case(&json!({ "progress": 0.5 }) => "books: 0.5")]
    #[test_case(&json!({ "message": "still at it" }) => "books: still at it")]
    fn progress_is_formatted(params: &Value) -> String {
        let message = json!({ "method": "notifications/progress", "params": params });
        format_progress("books", &message).unwrap()
    }
}
