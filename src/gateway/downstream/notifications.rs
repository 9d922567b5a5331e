//! Everything that a server sends unasked: rejected requests, list changes, log messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[expect(deprecated, reason = "servers of today still log this way")]
use rmcp::model::LoggingMessageNotificationParam;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::super::features::ListKind;
use super::log_forwarder::LogForwarder;
use crate::jsonrpc::{Inbound, LineJson, RpcError};
use crate::util::{Mutex, Redactor, one_line, shorten};

/// Lines that one [`ServerLogWriter`] logs per connection; later lines are dropped after one warning.
const MAX_LOGGED_LINES: u32 = 10_000;
const MAX_LOGGED_CHARS: usize = 2_000;
const MAX_STDERR_LINE_BYTES: usize = 8 * 1024;

/// Number of `list_changed` notifications per list of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListChanges {
    pub(crate) tools: u64,
    pub(crate) resources: u64,
    pub(crate) prompts: u64,
}

impl ListChanges {
    /// Returns the lists whose count differs from the one in `before`.
    pub(crate) fn since(self, before: Self) -> impl Iterator<Item = ListKind> {
        ListKind::ALL.into_iter().filter(move |list| self.count(*list) != before.count(*list))
    }

    fn count(self, list: ListKind) -> u64 {
        match list {
            ListKind::Tools => self.tools,
            ListKind::Resources => self.resources,
            ListKind::Prompts => self.prompts,
        }
    }
}

/// Watch channel that counts the `list_changed` notifications of a server.
pub(crate) type ListChangeCounters = watch::Sender<ListChanges>;

/// Handles what a server sends unasked.
///
/// Answers `ping` and rejects all other requests: sampling, elicitation and roots are not available through the
/// gateway.
pub(crate) struct ServerInbox {
    pub(crate) server: Arc<str>,
    pub(crate) changes: Arc<ListChangeCounters>,
    pub(crate) log: ServerLogWriter,
    /// Forwarder of log messages to the client, if the client may receive them.
    pub(crate) forwarder: Option<Arc<LogForwarder>>,
    /// Number of lines that were not MCP messages; logged at powers of two.
    pub(crate) stray_lines: AtomicU64,
    /// Number of rejected requests; logged at powers of two.
    pub(crate) rejections: AtomicU64,
}

impl Inbound for ServerInbox {
    fn request(&self, method: &str) -> Result<LineJson, RpcError> {
        let asked = match method {
            "ping" => return Ok(LineJson::object(&[])),
            "sampling/createMessage" => "sampling",
            "roots/list" => "roots",
            "elicitation/create" => "elicitation",
            _ => "this request",
        };
        let count = self.rejections.fetch_add(1, Ordering::Relaxed) + 1;
        // Powers of two, so that a flood of requests does not flood the log.
        if count.is_power_of_two() {
            let server = &self.server;
            tracing::warn!(%server, count, "refused {asked}, which the server asked for");
        }
        let message = format!("{asked} is not available through the gateway");
        Err(RpcError { code: RpcError::METHOD_NOT_FOUND, message, data: None })
    }

    fn notification(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/tools/list_changed" => {
                self.changes.send_modify(|changes| changes.tools += 1);
            }
            "notifications/resources/list_changed" => {
                self.changes.send_modify(|changes| changes.resources += 1);
            }
            "notifications/prompts/list_changed" => {
                self.changes.send_modify(|changes| changes.prompts += 1);
            }
            "notifications/message" => self.handle_log_message(params),
            other => tracing::debug!(server = %self.server, "notification {}", one_line(other)),
        }
    }

    fn stray_line(&self) {
        let count = self.stray_lines.fetch_add(1, Ordering::Relaxed) + 1;
        // Powers of two, so that a flood of lines does not flood the log.
        if count.is_power_of_two() {
            let server = &self.server;
            tracing::warn!(%server, count, "wrote something on stdout that is no MCP message");
        }
    }
}

impl ServerInbox {
    fn handle_log_message(&self, params: Option<&RawValue>) {
        #[expect(deprecated, reason = "servers of today still log this way")]
        type LogParams = LoggingMessageNotificationParam;
        let message = params.and_then(|raw| serde_json::from_str::<LogParams>(raw.get()).ok());
        let Some(message) = message else { return self.stray_line() };
        self.log.log_message(&message);
        if let Some(forwarder) = &self.forwarder {
            forwarder.forward(&self.server, &message, |text| self.log.redact(text));
        }
    }
}

/// Writes the lines of one server to our log.
///
/// Secrets are redacted. At most 2,000 characters per line and 10,000 lines in total.
#[derive(Clone)]
pub(crate) struct ServerLogWriter {
    server: Arc<str>,
    secrets: Redactor,
    line_count: Arc<AtomicU32>,
}

impl ServerLogWriter {
    pub(crate) fn new(server: Arc<str>, secrets: Redactor) -> Self {
        Self { server, secrets, line_count: Arc::default() }
    }

    /// Returns `text` with the secrets of the server redacted.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.secrets.redact(text)
    }

    /// Logs a `notifications/message`.
    #[expect(deprecated, reason = "servers of today still log this way")]
    pub(crate) fn log_message(&self, message: &LoggingMessageNotificationParam) {
        match &message.data {
            Value::String(text) => self.log_line(text),
            other => self.log_line(&other.to_string()),
        }
    }

    pub(crate) fn log_line(&self, text: &str) {
        let count = self.line_count.fetch_add(1, Ordering::Relaxed);
        let server = &self.server;
        if count < MAX_LOGGED_LINES {
            let text = one_line(&shorten(&self.secrets.redact(text), MAX_LOGGED_CHARS));
            tracing::info!(target: "adjutant::downstream", "[{server}] {text}");
        } else if count == MAX_LOGGED_LINES {
            tracing::warn!(target: "adjutant::downstream", "[{server}] writes too much; the rest is not logged");
        }
    }

    /// Returns a callback that splits stderr into lines and logs them, at most 8 KiB per line.
    pub(crate) fn into_stderr_callback(self) -> impl Fn(&[u8]) + Send + Sync + 'static {
        let line = Mutex::new(Vec::new());
        move |piece: &[u8]| {
            let mut line = line.lock();
            for byte in piece {
                if *byte == b'\n' {
                    self.log_line(&String::from_utf8_lossy(&line));
                    line.clear();
                } else if line.len() < MAX_STDERR_LINE_BYTES {
                    line.push(*byte);
                }
            }
        }
    }
}
