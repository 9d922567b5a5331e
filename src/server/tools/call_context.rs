//! Context of an MCP call for its runs, and the progress notifications of a run.
//!
//! The context outlives the first request: an elicitation over several requests keeps it and replaces the progress sink.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{Extensions, ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::super::callers::RequestContext;
use crate::delegation::{ApprovalPrompt, RunStatus};
use crate::identity::Caller;

/// Caller, approval prompt, cancellation and progress sink of one MCP call.
#[derive(Clone)]
pub(crate) struct CallContext {
    pub(crate) caller: Caller,
    /// Asks the person at the client.
    pub(crate) approval_prompt: Arc<dyn ApprovalPrompt>,
    /// Cancelled when the client cancels the call.
    pub(crate) cancellation: CancellationToken,
    /// Sink of the current request; `None` if it wants no progress, or while no request is open.
    pub(crate) progress_sink: watch::Receiver<Option<ProgressSink>>,
    /// Extensions of the first request; those of an HTTP request contain its `HttpCaller`.
    pub(crate) extensions: Extensions,
}

impl CallContext {
    /// The context of a call that consists of one request.
    pub(crate) fn from_request(
        caller: Caller,
        approval_prompt: Arc<dyn ApprovalPrompt>,
        context: &RequestContext,
    ) -> Self {
        let (_, progress_sink) = watch::channel(ProgressSink::from_request(context));
        let (cancellation, extensions) = (context.ct.clone(), context.extensions.clone());
        Self { caller, approval_prompt, cancellation, progress_sink, extensions }
    }
}

/// Longest time without a notification: Claude Code cancels calls that are silent for long.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(8);

/// The peer and progress token of a request that asked for progress.
#[derive(Clone)]
pub(crate) struct ProgressSink {
    peer: Peer<RoleServer>,
    token: ProgressToken,
}

impl ProgressSink {
    /// Returns the sink of a request; `None` without a progress token.
    pub(crate) fn from_request(context: &RequestContext) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Self { peer: context.peer.clone(), token })
    }
}

/// Sends progress to the current sink until the run's `StatusSender` is dropped or sending fails.
pub(crate) async fn report_progress(
    listeners: watch::Receiver<Option<ProgressSink>>,
    mut status: watch::Receiver<RunStatus>,
) {
    let mut life = interval(KEEP_ALIVE_INTERVAL);
    life.set_missed_tick_behavior(MissedTickBehavior::Delay);
    life.reset();
    let mut count = 0.0;
    loop {
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            _ = life.tick() => {}
        }
        let line = status.borrow_and_update().summary();
        count += 1.0;
        let Some(ProgressSink { peer, token }) = listeners.borrow().clone() else { continue };
        let news = ProgressNotificationParam::new(token, count).with_message(line);
        if peer.notify_progress(news).await.is_err() {
            return;
        }
        life.reset();
    }
}
