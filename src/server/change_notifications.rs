//! Says when the tools, resources or prompts that a client can have may have become others.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{NotificationContext, SubscriptionContext};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::guest::Guest;
use super::handler::until_closed;
use crate::gateway::{Gateway, List};
use crate::identity::Caller;

/// How long it is quiet after a client was told something: what changes meanwhile is told once, however often it does.
const QUIET: Duration = Duration::from_millis(250);

/// Tells of every change that concerns whoever a connection is for, until `gone` is or nobody listens.
async fn tell<F, R>(
    gateway: &Gateway,
    connection: Option<Caller>,
    gone: impl Future<Output = ()>,
    tell: F,
) where
    F: Fn(List) -> R,
    R: Future<Output = bool>,
{
    let mut announced = gateway.announcements();
    let mut files = gateway.changes();
    let mut had_offers = gateway.has_offers();
    let mut changed: Vec<List> = Vec::new();
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
                next = Instant::now() + QUIET;
                continue;
            }
            file = files.changed() => match file {
                Ok(()) => {
                    let has_offers = gateway.has_offers();
                    let concerns = std::mem::replace(&mut had_offers, has_offers) || has_offers;
                    List::ALL.into_iter().filter(|_| concerns).collect()
                }
                Err(_) => return,
            },
            news = announced.recv() => match news {
                Ok(news) if gateway.may_hear_of(connection.as_ref(), &news.server) => vec![news.list],
                Ok(_) => continue,
                Err(RecvError::Lagged(_)) => List::ALL.to_vec(),
                Err(RecvError::Closed) => return,
            },
        };
        changed.extend(news);
        changed.sort_unstable();
        changed.dedup();
    }
}

/// Of what a client wants to be told, what it will be.
pub(super) fn accept(requested: &SubscriptionFilter, accepted: &mut SubscriptionFilter) {
    accepted.tools_list_changed = requested.tools_list_changed;
    accepted.resources_list_changed = requested.resources_list_changed;
    accepted.prompts_list_changed = requested.prompts_list_changed;
}

/// Tells a client that has shaken hands, until it is gone.
pub(super) fn follow(gateway: &Arc<Gateway>, context: &NotificationContext<RoleServer>) {
    let (gateway, peer) = (Arc::clone(gateway), context.peer.clone());
    let connection = Guest::caller(&context.extensions);
    tokio::spawn(async move {
        let peer = &peer;
        let tell_peer = |list| async move {
            let told = match list {
                List::Tools => peer.notify_tool_list_changed().await,
                List::Prompts => peer.notify_prompt_list_changed().await,
                List::Resources => peer.notify_resource_list_changed().await,
            };
            told.is_ok()
        };
        tell(&gateway, connection, until_closed(peer), tell_peer).await;
    });
}

/// Tells a client that has subscribed, until it no longer wants that.
pub(super) async fn listen(gateway: &Gateway, context: &SubscriptionContext) {
    let (sink, accepted) = (context.sink(), context.accepted());
    let tell_sink = |list| async move {
        let wanted = match list {
            List::Tools => accepted.tools_list_changed,
            List::Prompts => accepted.prompts_list_changed,
            List::Resources => accepted.resources_list_changed,
        };
        if wanted != Some(true) {
            return true;
        }
        let told = match list {
            List::Tools => sink.notify_tool_list_changed().await,
            List::Prompts => sink.notify_prompt_list_changed().await,
            List::Resources => sink.notify_resource_list_changed().await,
        };
        told.is_ok()
    };
    let connection = Guest::caller(&context.request_context().extensions);
    tell(gateway, connection, context.cancelled(), tell_sink).await;
}
