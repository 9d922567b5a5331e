//! What a run is doing, for whoever watches: a caller's progress, a terminal's line, `adjutant runs list`.

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::base::{one_line, shorten};

const MAX_DOING: usize = 120;

/// The newest state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// What it is doing, on one short line.
    pub doing: String,
    /// The tool that was used last, on one short line.
    pub last_tool: Option<String>,
    /// Turns the model has taken.
    pub turns: u64,
    /// What it has cost so far, as far as that is known.
    pub cost_usd: f64,
}

impl Status {
    /// `Bash: curl … · 3 turns · $0.020`.
    pub fn line(&self) -> String {
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

/// Where a run says what it is doing; whoever wants to know looks at the other end.
#[derive(Clone, Debug)]
pub struct StatusBoard(watch::Sender<Status>);

impl StatusBoard {
    /// A board and its first reader.
    pub fn new() -> (Self, watch::Receiver<Status>) {
        let (sender, receiver) = watch::channel(Status::default());
        (Self(sender), receiver)
    }

    /// One more reader.
    pub fn subscribe(&self) -> watch::Receiver<Status> {
        self.0.subscribe()
    }

    pub(super) fn doing(&self, what: &str) {
        let what = shorten(&one_line(what), MAX_DOING);
        self.0.send_if_modified(|status| {
            let news = status.doing != what;
            status.doing = what;
            news
        });
    }

    /// A tool is at work.
    pub(super) fn tool(&self, summary: &str) {
        self.doing(summary);
        let summary = shorten(&one_line(summary), MAX_DOING);
        self.0.send_if_modified(|status| {
            status.last_tool = Some(summary);
            false
        });
    }

    /// No tool is at work. Still says which one was: many are over before anybody could read it.
    pub(super) fn now(&self, what: &str) {
        let last = self.0.borrow().last_tool.clone();
        match last {
            Some(tool) => self.doing(&format!("{what}, after {tool}")),
            None => self.doing(what),
        }
    }

    pub(super) fn turns(&self, turns: u64) {
        self.0.send_if_modified(|status| {
            let news = status.turns != turns;
            status.turns = turns;
            news
        });
    }

    pub(super) fn spent(&self, turns: u64, cost_usd: f64) {
        self.0.send_modify(|status| {
            status.turns = turns;
            status.cost_usd += cost_usd;
        });
    }
}
