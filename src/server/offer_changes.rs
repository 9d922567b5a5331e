//! Says when the resources or prompts that a client can have may have become others.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{Extensions, SubscriptionFilter};
use rmcp::service::{NotificationContext, SubscriptionContext};
use tokio::sync::broadcast::error::RecvError;

use super::guest::Guest;
use super::handler::until_closed;
use crate::gateway::{Gateway, Offer, Who};

const BOTH: [Offer; 2] = [Offer::Resources, Offer::Prompts];

/// Tells of every change that concerns `who`, until `gone` is or nobody listens.
async fn tell<F, R>(gateway: &Gateway, who: &Who, gone: impl Future<Output = ()>, tell: F)
where
    F: Fn(Offer) -> R,
    R: Future<Output = bool>,
{
    let mut announced = gateway.announcements();
    let mut files = gateway.changes();
    tokio::pin!(gone);
    loop {
        let changed = tokio::select! {
            () = &mut gone => return,
            changed = files.changed() => match changed {
                Ok(()) if gateway.has_offers() => BOTH.to_vec(),
                Ok(()) => continue,
                Err(_) => return,
            },
            news = announced.recv() => match news {
                Ok(news) if gateway.may_use_server(who, &news.server) => vec![news.offer],
                Ok(_) => continue,
                Err(RecvError::Lagged(_)) => BOTH.to_vec(),
                Err(RecvError::Closed) => return,
            },
        };
        for offer in changed {
            if !tell(offer).await {
                return;
            }
        }
    }
}

/// Of what a client wants to be told, what it will be.
pub(super) fn accept(requested: &SubscriptionFilter, accepted: &mut SubscriptionFilter) {
    accepted.resources_list_changed = requested.resources_list_changed;
    accepted.prompts_list_changed = requested.prompts_list_changed;
}

/// Tells a client that has shaken hands, until it is gone.
pub(super) fn follow(gateway: &Arc<Gateway>, context: &NotificationContext<RoleServer>) {
    let (gateway, peer) = (Arc::clone(gateway), context.peer.clone());
    let who = sender(&context.extensions);
    tokio::spawn(async move {
        let peer = &peer;
        let tell_peer = |offer| async move {
            match offer {
                Offer::Prompts => peer.notify_prompt_list_changed().await.is_ok(),
                Offer::Resources | Offer::ResourceTemplates => {
                    peer.notify_resource_list_changed().await.is_ok()
                }
            }
        };
        tell(&gateway, &who, until_closed(peer), tell_peer).await;
    });
}

/// Tells a client that has subscribed, until it no longer wants that.
pub(super) async fn listen(gateway: &Gateway, context: &SubscriptionContext) {
    let sink = context.sink();
    let tell_sink = |offer| async move {
        match offer {
            Offer::Prompts => sink.notify_prompt_list_changed().await.is_ok(),
            Offer::Resources | Offer::ResourceTemplates => {
                sink.notify_resource_list_changed().await.is_ok()
            }
        }
    };
    let who = sender(&context.request_context().extensions);
    tell(gateway, &who, context.cancelled(), tell_sink).await;
}

/// Who is told, as far as a token says.
fn sender(extensions: &Extensions) -> Who {
    Who { caller: Guest::caller(extensions), ..Who::default() }
}
