//! Notifications to clients: `notifications/*/list_changed` for tools, resources and prompts, and log messages of
//! downstream servers.
//!
//! Log messages go to a stdio client that does not share the servers, and only after a handshake: in revision 2026-07-28
//! they belong to a request, which rmcp does not support.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{CustomRequest, ErrorCode, ErrorData};
use rmcp::service::{NotificationContext, SubscriptionContext};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::handler::wait_until_closed;
use crate::gateway::{Gateway, ListKind, LogSubscription};
use crate::identity::Caller;
use crate::jsonrpc::{Frame, FrameWriter};
use crate::server::http::HttpCaller;

/// Minimum time between notifications to one client; changes in between are merged.
const DEBOUNCE_INTERVAL: Duration = Duration::from_millis(250);

/// Calls `tell` for each changed list that the connection may observe, until `gone` resolves or `tell` returns `false`.
///
/// If announcements were missed because the receiver lagged, all three lists are reported.
async fn notify_changes<F, R>(
    gateway: &Gateway,
    connection: Option<Caller>,
    gone: impl Future<Output = ()>,
    tell: F,
) where
    F: Fn(ListKind) -> R,
    R: Future<Output = bool>,
{
    let mut announced = gateway.subscribe_list_changes();
    let mut files = gateway.subscribe_visibility_changes();
    let mut had_offers = gateway.any_server_usable();
    let mut changed: Vec<ListKind> = Vec::new();
    let mut next = Instant::now();
    tokio::pin!(gone);
    loop {
        let news = tokio::select! {
            () = &mut gone => return,
            () = sleep_until(next), if !changed.is_empty() => {
                for list in changed.drain(..) {
                    if !tell(list).await {
                        return;
                    }
                }
                next = Instant::now() + DEBOUNCE_INTERVAL;
                continue;
            }
            file = files.changed() => match file {
                Ok(()) => {
                    let has_offers = gateway.any_server_usable();
                    let concerns = std::mem::replace(&mut had_offers, has_offers) || has_offers;
                    ListKind::ALL.into_iter().filter(|_| concerns).collect()
                }
                Err(_) => return,
            },
            news = announced.recv() => match news {
                Ok(news) if gateway.may_observe(connection.as_ref(), &news.server) => vec![news.list],
                Ok(_) => continue,
                Err(RecvError::Lagged(_)) => ListKind::ALL.to_vec(),
                Err(RecvError::Closed) => return,
            },
        };
        changed.extend(news);
        changed.sort_unstable();
        changed.dedup();
    }
}

/// Spawns the task that notifies an initialized client until it disconnects.
pub(crate) fn spawn_notifications(
    gateway: &Arc<Gateway>,
    context: &NotificationContext<RoleServer>,
) {
    let (gateway, peer) = (Arc::clone(gateway), context.peer.clone());
    let connection = HttpCaller::caller(&context.extensions);
    tokio::spawn(async move {
        let peer = &peer;
        let tell_peer = |list| async move {
            let told = match list {
                ListKind::Tools => peer.notify_tool_list_changed().await,
                ListKind::Prompts => peer.notify_prompt_list_changed().await,
                ListKind::Resources => peer.notify_resource_list_changed().await,
            };
            told.is_ok()
        };
        notify_changes(&gateway, connection, wait_until_closed(peer), tell_peer).await;
    });
}

/// Notifies a subscribed client (`subscriptions/listen`) until the request is cancelled.
pub(crate) async fn serve_subscription(gateway: &Gateway, context: &SubscriptionContext) {
    let (sink, accepted) = (context.sink(), context.accepted());
    let tell_sink = |list| async move {
        let wanted = match list {
            ListKind::Tools => accepted.tools_list_changed,
            ListKind::Prompts => accepted.prompts_list_changed,
            ListKind::Resources => accepted.resources_list_changed,
        };
        if wanted != Some(true) {
            return true;
        }
        let told = match list {
            ListKind::Tools => sink.notify_tool_list_changed().await,
            ListKind::Prompts => sink.notify_prompt_list_changed().await,
            ListKind::Resources => sink.notify_resource_list_changed().await,
        };
        told.is_ok()
    };
    let connection = HttpCaller::caller(&context.request_context().extensions);
    notify_changes(gateway, connection, context.cancelled(), tell_sink).await;
}

const SET_LEVEL: &str = "logging/setLevel";
const LEVELS: &str = "debug, info, notice, warning, error, critical, alert or emergency";

/// Forwards log messages to the client from now on; messages are dropped while the output queue is full.
pub(crate) fn forward_to_client(relay: &LogSubscription, writer: FrameWriter) {
    relay.subscribe(move |params| {
        let frame = Frame::notification("notifications/message", params);
        writer.has_room() && writer.push(&frame).is_ok()
    });
}

/// Returns the subscription of an initialized client; otherwise the method `logging/setLevel` does not exist.
pub(crate) fn open_log_subscription(
    relay: Option<&LogSubscription>,
) -> Result<&LogSubscription, ErrorData> {
    let open = relay.filter(|relay| relay.is_subscribed());
    open.ok_or_else(|| ErrorData::new(ErrorCode::METHOD_NOT_FOUND, SET_LEVEL, None))
}

/// The error for a method that rmcp does not know. A `logging/setLevel` with an invalid level arrives here too.
pub(crate) fn unknown_method(relay: Option<&LogSubscription>, request: CustomRequest) -> ErrorData {
    if request.method == SET_LEVEL && open_log_subscription(relay).is_ok() {
        let said = format!("`level` must be {LEVELS}");
        return ErrorData::new(ErrorCode::INVALID_PARAMS, said, None);
    }
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)
}
