//! Shutdown and reload signals of long-running commands.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Shutdown in three stages, and reloads. Clones share their state.
#[derive(Clone, Debug)]
pub struct Shutdown {
    stopping: CancellationToken,
    ending: CancellationToken,
    killing: CancellationToken,
    grace: Duration,
    reloads: watch::Sender<u64>,
}

impl Shutdown {
    /// Creates a shutdown without signal handlers.
    pub fn new(grace: Duration) -> Self {
        let reloads = watch::Sender::new(0);
        let killing = CancellationToken::new();
        Self {
            stopping: CancellationToken::new(),
            ending: CancellationToken::new(),
            killing,
            grace,
            reloads,
        }
    }

    /// Creates a shutdown that begins on SIGTERM or SIGINT, and that counts each SIGHUP as a reload.
    pub fn on_signals(grace: Duration) -> io::Result<Self> {
        let shutdown = Self::new(grace);
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            tokio::spawn(shutdown.clone().begin_on(signal(kind)?));
        }
        tokio::spawn(shutdown.clone().count_reloads_on(signal(SignalKind::hangup())?));
        Ok(shutdown)
    }

    /// Stage 1: no new work is accepted; current runs continue.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Stage 2, after the grace period: current runs are stopped gracefully.
    pub fn ending(&self) -> &CancellationToken {
        &self.ending
    }

    /// Stage 3, at the second request: everything is killed.
    pub fn now(&self) -> &CancellationToken {
        &self.killing
    }

    /// Returns a receiver that changes at each SIGHUP.
    pub fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// Begins the shutdown; a second call skips the grace period. Also called when the client disconnects.
    pub fn begin(&self) {
        if self.stopping.is_cancelled() {
            self.ending.cancel();
            self.killing.cancel();
            return;
        }
        self.stopping.cancel();
        let (ending, grace) = (self.ending.clone(), self.grace);
        tokio::spawn(async move {
            sleep(grace).await;
            ending.cancel();
        });
    }

    async fn begin_on(self, mut signals: Signal) {
        while signals.recv().await.is_some() {
            self.begin();
        }
    }

    async fn count_reloads_on(self, mut signals: Signal) {
        while signals.recv().await.is_some() {
            self.reloads.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ending_follows_the_grace_period() {
        let grace = Duration::from_millis(50);
        let shutdown = Shutdown::new(grace);
        let started = std::time::Instant::now();
        shutdown.begin();
        assert!(shutdown.stopping().is_cancelled() && !shutdown.ending().is_cancelled());
        shutdown.ending().cancelled().await;
        assert!(started.elapsed() >= grace);
        assert!(!shutdown.now().is_cancelled(), "nobody asked twice");
    }

    #[tokio::test]
    async fn a_second_request_skips_the_grace_period() {
        let shutdown = Shutdown::new(Duration::from_hours(1));
        shutdown.begin();
        shutdown.begin();
        assert!(shutdown.ending().is_cancelled() && shutdown.now().is_cancelled());
    }
}
