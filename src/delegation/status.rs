//! Live status of a run, for progress notifications, the terminal and `adjutant runs list`.

use std::mem::replace;

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
pub struct StatusSender(watch::Sender<RunStatus>);

impl StatusSender {
    /// Creates the channel with its first receiver.
    pub fn new() -> (Self, watch::Receiver<RunStatus>) {
        let (sender, receiver) = watch::channel(RunStatus::default());
        (Self(sender), receiver)
    }

    pub fn subscribe(&self) -> watch::Receiver<RunStatus> {
        self.0.subscribe()
    }

    pub(crate) fn set_activity(&self, what: &str) {
        let what = shorten(&one_line(what), MAX_ACTIVITY_CHARS);
        self.0.send_if_modified(|status| {
            let before = replace(&mut status.doing, what);
            before != status.doing
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
        self.0.send_if_modified(|status| replace(&mut status.turns, turns) != turns);
    }

    pub(crate) fn add_cost(&self, turns: u64, cost_usd: f64) {
        self.0.send_modify(|status| {
            status.turns = turns;
            status.cost_usd += cost_usd;
        });
    }
}
