//! How a long-running command is told to stop, and to look at its files again.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// What SIGTERM, SIGINT and SIGHUP mean, in three steps. Clones mean the same.
#[derive(Clone, Debug)]
pub struct Shutdown {
    stopping: CancellationToken,
    ending: CancellationToken,
    now: CancellationToken,
    grace: Duration,
    reloads: watch::Sender<u64>,
}

impl Shutdown {
    /// One that no signal reaches; `begin` starts it.
    pub fn new(grace: Duration) -> Self {
        let reloads = watch::Sender::new(0);
        let now = CancellationToken::new();
        Self {
            stopping: CancellationToken::new(),
            ending: CancellationToken::new(),
            now,
            grace,
            reloads,
        }
    }

    /// One that listens to the signals of this process.
    pub fn on_signals(grace: Duration) -> io::Result<Self> {
        let shutdown = Self::new(grace);
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            tokio::spawn(shutdown.clone().stop_on(signal(kind)?));
        }
        tokio::spawn(shutdown.clone().reload_on(signal(SignalKind::hangup())?));
        Ok(shutdown)
    }

    /// First: nothing new is accepted; what runs may end by itself.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Then, after the grace: what still runs is ended, politely.
    pub fn ending(&self) -> &CancellationToken {
        &self.ending
    }

    /// At a second request: everything ends at once.
    pub fn now(&self) -> &CancellationToken {
        &self.now
    }

    /// Changes at each SIGHUP.
    pub fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// Asks for the end; a second time skips the grace. The client going away asks like this too.
    pub fn begin(&self) {
        if self.stopping.is_cancelled() {
            self.ending.cancel();
            self.now.cancel();
            return;
        }
        self.stopping.cancel();
        let (ending, grace) = (self.ending.clone(), self.grace);
        tokio::spawn(async move {
            sleep(grace).await;
            ending.cancel();
        });
    }

    async fn stop_on(self, mut signals: Signal) {
        while signals.recv().await.is_some() {
            self.begin();
        }
    }

    async fn reload_on(self, mut signals: Signal) {
        while signals.recv().await.is_some() {
            self.reloads.send_modify(|count| *count += 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_comes_after_the_grace() {
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
    async fn a_second_request_skips_the_grace() {
        let shutdown = Shutdown::new(Duration::from_hours(1));
        shutdown.begin();
        shutdown.begin();
        assert!(shutdown.ending().is_cancelled() && shutdown.now().is_cancelled());
    }
}
