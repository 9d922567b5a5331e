//! Progress for a caller that asked for it: news at once, and a sign of life every few seconds.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::call::Status;

/// Claude Code gives up on a call that is silent for long; people sooner.
const SIGN_OF_LIFE: Duration = Duration::from_secs(8);

/// Who asked for progress, and under which token.
#[derive(Clone)]
pub(super) struct Listener {
    peer: Peer<RoleServer>,
    token: ProgressToken,
}

impl Listener {
    /// The sender of a request, if it wants progress.
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        let token = context.meta.get_progress_token()?;
        Some(Self { peer: context.peer.clone(), token })
    }
}

/// Sends progress to whoever listens at the moment, until the run is over and its board is gone.
pub(super) async fn report(
    listeners: watch::Receiver<Option<Listener>>,
    mut status: watch::Receiver<Status>,
) {
    let mut life = interval(SIGN_OF_LIFE);
    life.set_missed_tick_behavior(MissedTickBehavior::Delay);
    life.reset();
    let mut count = 0.0;
    loop {
        tokio::select! {
            changed = status.changed() => if changed.is_err() { return },
            _ = life.tick() => {}
        }
        let line = status.borrow_and_update().line();
        count += 1.0;
        let Some(Listener { peer, token }) = listeners.borrow().clone() else { continue };
        let news = ProgressNotificationParam::new(token, count).with_message(line);
        if peer.notify_progress(news).await.is_err() {
            return;
        }
        life.reset();
    }
}
