//! Live status of a run, for progress notifications, the terminal and `adjutant runs list`.

use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::util::{one_line, shorten};

const MAX_ACTIVITY_CHARS: usize = 120;

/// Current status of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunStatus {
    /// Current activity, at most 120 characters on one line.
    pub doing: String,
    /// Last tool used, at most 120 characters on one line.
    pub last_tool: Option<String>,
    pub turns: u64,
    /// Cost of completed turns, in US dollars.
    pub cost_usd: f64,
}

impl RunStatus {
    /// Formats the status: `Bash: curl … · 3 turns · $0.020`.
    pub fn summary(&self) -> String {
        let mut line = self.doing.clone();
        if self.turns > 0 {
            let plural = if self.turns == 1 { "turn" } else { "turns" };
            line.push_str(&format!(" · {} {plural}", self.turns));
        }
        if self.cost_usd > 0.0 {
            line.push_str(&format!(" · ${:.3}", self.cost_usd));
        }
        line
    }
}

/// Sender of a run's status; readers subscribe. Owned by the run: the channel closes with it.
#[derive(Debug)]
pub struct StatusSender(Arc<watch::Sender<RunStatus>>);

impl StatusSender {
    /// Creates the channel with its first receiver.
    pub fn new() -> (Self, watch::Receiver<RunStatus>) {
        let (sender, receiver) = watch::channel(RunStatus::default());
        (Self(Arc::new(sender)), receiver)
    }

    /// Returns a reference for what may outlive the run, such as its process and requests in progress.
    pub(crate) fn downgrade(&self) -> WeakStatusSender {
        WeakStatusSender(Arc::downgrade(&self.0))
    }

    pub fn subscribe(&self) -> watch::Receiver<RunStatus> {
        self.0.subscribe()
    }

    pub(crate) fn set_activity(&self, what: &str) {
        let what = shorten(&one_line(what), MAX_ACTIVITY_CHARS);
        self.0.send_if_modified(|status| {
            let news = status.doing != what;
            status.doing = what;
            news
        });
    }

    /// Sets the running tool.
    pub(crate) fn set_tool(&self, summary: &str) {
        self.set_activity(summary);
        let summary = shorten(&one_line(summary), MAX_ACTIVITY_CHARS);
        self.0.send_if_modified(|status| {
            status.last_tool = Some(summary);
            false
        });
    }

    /// Sets the activity, followed by the last tool: many tools end before a reader could see them.
    pub(crate) fn set_activity_after_tool(&self, what: &str) {
        let last = self.0.borrow().last_tool.clone();
        match last {
            Some(tool) => self.set_activity(&format!("{what}, after {tool}")),
            None => self.set_activity(what),
        }
    }

    pub(crate) fn set_turns(&self, turns: u64) {
        self.0.send_if_modified(|status| {
            let news = status.turns != turns;
            status.turns = turns;
            news
        });
    }

    pub(crate) fn add_cost(&self, turns: u64, cost_usd: f64) {
        self.0.send_modify(|status| {
            status.turns = turns;
            status.cost_usd += cost_usd;
        });
    }
}

/// Reference to a [`StatusSender`] that does not keep the channel open.
#[derive(Clone, Debug)]
pub(crate) struct WeakStatusSender(Weak<watch::Sender<RunStatus>>);

impl WeakStatusSender {
    /// Returns the sender; `None` once the run has ended.
    pub(crate) fn upgrade(&self) -> Option<StatusSender> {
        self.0.upgrade().map(StatusSender)
    }
}
