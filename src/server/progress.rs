//! Progress for a caller that asked for it: news at once, and a sign of life every few seconds.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::Peer;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::call::Status;

/// Claude Code gives up on a call that is silent for long; people sooner.
const SIGN_OF_LIFE: Duration = Duration::from_secs(8);

/// Sends progress until the run is over and its board is gone.
pub(super) async fn report(
    peer: Peer<RoleServer>,
    token: ProgressToken,
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
        let news = ProgressNotificationParam::new(token.clone(), count).with_message(line);
        if peer.notify_progress(news).await.is_err() {
            return;
        }
        life.reset();
    }
}
