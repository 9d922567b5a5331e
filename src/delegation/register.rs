//! A run on the board: other terminals see it there, and can stop it.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::orchestrator::Orchestrator;
use super::status::Status;
use super::steps::Call;
use crate::worker::Posting;

impl Call {
    /// Puts the run on the board, where other terminals see it and can stop it.
    pub(super) fn post(
        &self,
        shared: &Orchestrator,
        agent: &str,
        transcript: PathBuf,
    ) -> Option<Arc<Posting>> {
        let caller = &self.caller.name;
        let posted = shared.runs.post_with_transcript(self.run, agent, caller, transcript);
        let posting = match posted {
            Ok(posting) => Arc::new(posting),
            Err(error) => {
                tracing::warn!(%error, "the run cannot be shown in `adjutant runs list`");
                return None;
            }
        };
        tokio::spawn(keep_posted(
            Arc::clone(&posting),
            self.board.subscribe(),
            self.cancel.clone(),
        ));
        Some(posting)
    }
}

/// Carries the status to the board, and a stop from there to the run, until the run is over.
async fn keep_posted(
    posting: Arc<Posting>,
    mut status: watch::Receiver<Status>,
    cancel: CancellationToken,
) {
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            () = posting.stop_requested() => return cancel.cancel(),
            changed = status.changed() => if changed.is_err() { return },
        }
        let now = status.borrow_and_update().clone();
        posting.update(|progress| {
            progress.doing = now.doing;
            progress.turns = u32::try_from(now.turns).unwrap_or(u32::MAX);
            progress.cost_usd = now.cost_usd;
        });
    }
}
