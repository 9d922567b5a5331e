//! Our side of a connection to a server: what it is told about us, and what happens to what it
//! says on its own. Its log messages and progress are taken before, in `tapped`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleClient;
#[expect(deprecated, reason = "servers of today still log this way")]
use rmcp::model::LoggingMessageNotificationParam;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, ErrorCode, ErrorData, Implementation,
    ProtocolVersion, ServerNotification, ServerRequest,
};
use rmcp::service::{NotificationContext, RequestContext, Service};
use serde_json::Value;
use tokio::sync::watch;

use super::secrets::Secrets;
use crate::base::{one_line, shorten};

/// Log lines of one server that are written out whole per connection; later ones are counted.
const LOGGED_LINES: u32 = 10_000;
const LOGGED_CHARACTERS: usize = 2_000;
const LONGEST_LINE: usize = 8 * 1024;

/// What a server announced: how often each of its lists has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ListChanges {
    pub(super) tools: u64,
    pub(super) resources: u64,
    pub(super) prompts: u64,
}

/// Where a server's announcements are counted.
pub(super) type Changes = watch::Sender<ListChanges>;

/// Answers a server. It may ask nothing of us: no sampling, no questions to a person, no roots.
pub(super) struct ClientSide {
    pub(super) server: Arc<str>,
    pub(super) changes: Arc<Changes>,
    pub(super) log: ServerLog,
}

impl Service<RoleClient> for ClientSide {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let asked = match request {
            ServerRequest::PingRequest(_) => return Ok(ClientResult::empty(())),
            ServerRequest::CreateMessageRequest(_) => "sampling",
            ServerRequest::ListRootsRequest(_) => "roots",
            ServerRequest::ElicitRequest(_) => "elicitation",
            _ => "this request",
        };
        self.log.refused(asked);
        let message = format!("{asked} is not available through the gateway");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        match notification {
            ServerNotification::ToolListChangedNotification(_) => {
                self.changes.send_modify(|changes| changes.tools += 1);
            }
            ServerNotification::ResourceListChangedNotification(_) => {
                self.changes.send_modify(|changes| changes.resources += 1);
            }
            ServerNotification::PromptListChangedNotification(_) => {
                self.changes.send_modify(|changes| changes.prompts += 1);
            }
            other => tracing::debug!(server = %self.server, ?other, "notification"),
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("adjutant", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

/// A server's words in our log, with its name before them, and never more than a fair share.
#[derive(Clone)]
pub(super) struct ServerLog {
    server: Arc<str>,
    secrets: Secrets,
    lines: Arc<AtomicU32>,
    refusals: Arc<AtomicU32>,
}

impl ServerLog {
    pub(super) fn new(server: Arc<str>, secrets: Secrets) -> Self {
        Self { server, secrets, lines: Arc::default(), refusals: Arc::default() }
    }

    /// Notes that the server asked for something that it does not get: the first time, the second, the fourth, …
    fn refused(&self, asked: &str) {
        let count = self.refusals.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if count.is_power_of_two() {
            tracing::warn!(server = %self.server, count, "refused {asked}, which the server asked for");
        }
    }

    /// A text without the server's secrets.
    pub(super) fn hide(&self, text: &str) -> String {
        self.secrets.hide(text)
    }

    /// A log message of the protocol.
    #[expect(deprecated, reason = "servers of today still log this way")]
    pub(super) fn message(&self, message: &LoggingMessageNotificationParam) {
        match &message.data {
            Value::String(text) => self.line(text),
            other => self.line(&other.to_string()),
        }
    }

    pub(super) fn line(&self, text: &str) {
        let count = self.lines.fetch_add(1, Ordering::Relaxed);
        let server = &self.server;
        if count < LOGGED_LINES {
            let text = one_line(&shorten(&self.secrets.hide(text), LOGGED_CHARACTERS));
            tracing::info!(target: "adjutant::downstream", "[{server}] {text}");
        } else if count == LOGGED_LINES {
            tracing::warn!(target: "adjutant::downstream", "[{server}] writes too much; the rest is not logged");
        }
    }
}

impl ServerLog {
    /// Takes a server's stderr in pieces and logs it by lines.
    pub(super) fn tap(self) -> impl Fn(&[u8]) + Send + Sync + 'static {
        let line = Mutex::new(Vec::new());
        move |piece: &[u8]| {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            for byte in piece {
                if *byte == b'\n' {
                    self.line(&String::from_utf8_lossy(&line));
                    line.clear();
                } else if line.len() < LONGEST_LINE {
                    // What is beyond the longest line is neither kept nor logged.
                    line.push(*byte);
                }
            }
        }
    }
}
