//! What an agent's servers say unasked, on its way into the agent's process.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde_json::Value;
use tokio::sync::watch;

use super::bridge::Errand;
use crate::claude::Handle;
use crate::gateway::Tell;

/// The way into one process; closed until that has answered `initialize`.
#[derive(Default)]
pub(super) struct Outlet(OnceLock<Handle>);

impl Outlet {
    pub(super) fn open(&self, handle: Handle) {
        // A process is opened once.
        let _ = self.0.set(handle);
    }

    /// Passes a server's words on. Progress is also a sign of life, and is shown to whoever watches the run.
    pub(super) fn tell(
        self: &Arc<Self>,
        errand: Option<Arc<Errand>>,
        last_sign: watch::Sender<Instant>,
    ) -> Tell {
        let outlet = Arc::clone(self);
        Arc::new(move |server, message| {
            if let Some(words) = progress(server, message) {
                last_sign.send_replace(Instant::now());
                if let Some(errand) = &errand {
                    errand.tool_says(&words);
                }
            }
            if let Some(handle) = outlet.0.get() {
                handle.send_mcp(server, message);
            }
        })
    }
}

/// `books: 3 of 5 pages read`, for a person.
fn progress(server: &str, message: &Value) -> Option<String> {
    let params = message.get("params").filter(|_| {
        message.get("method").and_then(Value::as_str) == Some("notifications/progress")
    })?;
    // Printed as a floating-point number, 5.0 is 5.
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
    fn progress_is_told_in_words(params: &Value) -> String {
        let message = json!({ "method": "notifications/progress", "params": params });
        progress("books", &message).unwrap()
    }
}
