//! A transport that is listened in on: progress goes straight to the call it belongs to, and log
//! messages to whoever may read them, in order; the end of the stream is known at once.
//!
//! rmcp hands every notification to a task of its own, which loses the order, and tells waiting
//! calls about the end only after a pause of up to five seconds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, GetExtensions, GetMeta, JsonRpcMessage, ProgressNotificationParam,
    ProgressToken, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::client_side::ServerLog;
use super::log_relay::Voice;
use super::pace::Pace;

/// Where the progress of one call goes; put into the request's extensions.
#[derive(Clone, Debug)]
pub(super) struct ProgressSink(pub(super) mpsc::Sender<ProgressNotificationParam>);

/// Which call a downstream progress token belongs to.
#[derive(Clone, Default)]
pub(super) struct ProgressBook(Arc<Mutex<HashMap<ProgressToken, ProgressSink>>>);

impl ProgressBook {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<ProgressToken, ProgressSink>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Progress under this token goes to `sink` until the returned value goes.
    pub(super) fn opened(&self, token: ProgressToken, sink: ProgressSink) -> Closing {
        self.with(|book| book.insert(token.clone(), sink));
        self.closing(token)
    }

    /// Forgets the call when the returned value goes: later progress is nobody's.
    pub(super) fn closing(&self, token: ProgressToken) -> Closing {
        Closing { book: self.clone(), token }
    }

    fn open(&self, request: &mut ClientRequest) {
        let Some(sink) = request.extensions_mut().remove::<ProgressSink>() else { return };
        if let Some(token) = request.get_meta().get_progress_token() {
            self.with(|book| book.insert(token, sink));
        }
    }

    /// Whether this was progress; it is dropped where the caller is slower than the server.
    fn take(&self, notification: &ServerNotification) -> bool {
        let ServerNotification::ProgressNotification(progress) = notification else { return false };
        let sink = self.with(|book| book.get(&progress.params.progress_token).cloned());
        if let Some(sink) = sink {
            let _ = sink.0.try_send(progress.params.clone());
        }
        true
    }
}

/// One call's line in the book, struck out when dropped.
pub(super) struct Closing {
    book: ProgressBook,
    token: ProgressToken,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.book.with(|book| book.remove(&self.token));
    }
}

/// Where a server's log messages go: into our log, and to the client that may hear them.
pub(super) struct LogTap {
    pub(super) server: Arc<str>,
    pub(super) log: ServerLog,
    pub(super) voice: Option<Arc<Voice>>,
}

impl LogTap {
    /// Whether this was a log message.
    fn take(&self, notification: &ServerNotification) -> bool {
        let ServerNotification::LoggingMessageNotification(message) = notification else {
            return false;
        };
        self.log.message(&message.params);
        if let Some(voice) = &self.voice {
            voice.say(&self.server, &message.params, |text| self.log.hide(text));
        }
        true
    }
}

/// The transport `inner`, listened in on.
pub(super) struct Tapped<T> {
    pub(super) inner: T,
    pub(super) progress: ProgressBook,
    pub(super) logs: LogTap,
    pub(super) ended: CancellationToken,
    /// What nobody asked for: announcements, questions, progress. A server that says more is read more slowly, and what it writes
    /// waits in its own pipe.
    pub(super) unasked: Pace,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tapped<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &mut item {
            self.progress.open(&mut request.request);
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            self.unasked.keep().await;
            let Some(message) = self.inner.receive().await else {
                self.ended.cancel();
                return None;
            };
            if matches!(message, JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_)) {
                self.unasked.take();
            }
            match &message {
                JsonRpcMessage::Notification(n)
                    if self.progress.take(&n.notification) || self.logs.take(&n.notification) => {}
                _ => return Some(message),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.ended.cancel();
        self.inner.close().await
    }
}

impl<T> Drop for Tapped<T> {
    fn drop(&mut self) {
        // A handshake that failed drops the transport without reading it to its end.
        self.ended.cancel();
    }
}
