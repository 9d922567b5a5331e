//! What is known of a turn while it runs, and what is left of it when it does not end well.

use serde_json::Value;

use super::frame::{Assistant, Block, Usage};
use super::result::ResultFrame;
use super::spending::Spending;

/// How far a turn has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The conversation, as soon as the CLI named it.
    pub session_id: Option<String>,
    /// What the agent has written in this turn; the end of it where that was very much.
    pub partial: String,
    /// Round trips with the model.
    pub turns: u64,
    /// Dollars of this turn: counted from the tokens until the turn is over, then as the CLI counts them.
    pub cost_usd: f64,
    /// Tokens of this turn, as far as the API told.
    pub usage: Usage,
    /// The answer that was given last through the CLI's own tool for `--json-schema`, whether or not it was taken.
    pub structured: Option<Value>,
    /// The tool that was asked for last, as one line for people.
    pub last_tool: Option<String>,
    /// Lines that were no JSON.
    pub skipped_lines: u64,
}

/// Keeps [`Progress`] up to date.
#[derive(Debug)]
pub(super) struct Tracker {
    pub(super) progress: Progress,
    /// Text of the message that is being written now; replaced by the whole one.
    streaming: String,
    /// The kind of the API's failure that the turn came to.
    api_error: Option<String>,
    last_message: String,
    spending: Spending,
    /// What the result said that this turn cost, when it has come.
    told_usd: f64,
    /// Dollars of the process before this turn.
    cost_before: f64,
    /// Dollars of the session before this process, until the first result told whether they count.
    session_cost: f64,
    limit: usize,
}

impl Tracker {
    /// `session_cost` is what the session had cost before this process.
    pub(super) fn new(limit: usize, session_cost: f64) -> Self {
        Self {
            progress: Progress::default(),
            streaming: String::new(),
            api_error: None,
            last_message: String::new(),
            spending: Spending::default(),
            told_usd: 0.0,
            cost_before: 0.0,
            session_cost,
            limit,
        }
    }

    /// Forgets the turn before.
    pub(super) fn begin_turn(&mut self) {
        self.cost_before += std::mem::take(&mut self.told_usd);
        self.spending = Spending::default();
        let session_id = self.progress.session_id.take();
        self.progress = Progress { session_id, ..Progress::default() };
        self.streaming.clear();
        self.api_error = None;
        self.last_message.clear();
    }

    /// Notes the agent's own message; true where it began a further round trip.
    pub(super) fn note_message(&mut self, message: &Assistant) -> bool {
        if message.api_error.is_some() {
            // The CLI's own words about a failure of the API: what the agent was writing breaks off here.
            let broken_off = std::mem::take(&mut self.streaming);
            self.append(&broken_off);
            self.api_error.clone_from(&message.api_error);
            return false;
        }
        self.streaming.clear();
        self.begin_spending(None, &message.message_id, &message.model, message.usage);
        for block in &message.blocks {
            if let Block::Text(text) = block {
                self.append(text);
            }
        }
        if message.message_id == self.last_message && !message.message_id.is_empty() {
            return false;
        }
        self.last_message.clone_from(&message.message_id);
        self.progress.turns += 1;
        self.progress.usage += message.usage;
        true
    }

    /// A message was begun, or told again.
    pub(super) fn begin_spending(
        &mut self,
        speaker: Option<&str>,
        id: &str,
        model: &str,
        usage: Usage,
    ) {
        if speaker.is_none() {
            // A message that is begun again after a failure of the network is written anew.
            self.streaming.clear();
        }
        self.spending.begin(speaker, id, model, usage);
        self.progress.cost_usd = self.spending.so_far();
    }

    /// A message is over: what the turn has cost by now.
    pub(super) fn end_spending(&mut self, speaker: Option<&str>, usage: Usage) -> f64 {
        self.spending.end(speaker, usage);
        self.progress.cost_usd = self.spending.so_far();
        self.progress.cost_usd
    }

    pub(super) fn note_delta(&mut self, text: &str) {
        self.streaming.push_str(text);
        keep_end(&mut self.streaming, self.limit);
    }

    pub(super) fn note_result(&mut self, result: &mut ResultFrame) {
        result.api_error = self.api_error.take();
        let session_cost = std::mem::take(&mut self.session_cost);
        if counts_the_session(result) {
            self.cost_before += session_cost;
        }
        // `total_cost_usd` counts from the start of the process. Where it went back (`/clear`),
        // the whole of it is this turn's.
        let difference = result.total_cost_usd - self.cost_before;
        if difference >= 0.0 {
            self.progress.cost_usd = difference;
        } else {
            self.cost_before = 0.0;
            self.progress.cost_usd = result.total_cost_usd;
        }
        self.told_usd = self.progress.cost_usd;
        self.progress.turns = self.progress.turns.max(result.num_turns);
        self.progress.usage = result.usage;
    }

    /// The progress so far, with the text that is still being written.
    pub(super) fn snapshot(&self) -> Progress {
        let mut progress = self.progress.clone();
        join(&mut progress.partial, &self.streaming);
        progress
    }

    fn append(&mut self, text: &str) {
        join(&mut self.progress.partial, text);
        keep_end(&mut self.progress.partial, self.limit);
    }
}

/// 2.1.325 goes on counting where a resumed session had stopped, 2.1.197 begins at nothing. In the
/// first case the models have written more than this turn has.
fn counts_the_session(result: &ResultFrame) -> bool {
    let written: u64 = result.model_usage.values().map(|model| model.usage.output_tokens).sum();
    written > result.usage.output_tokens
}

fn join(whole: &mut String, text: &str) {
    if !whole.is_empty() && !text.is_empty() {
        whole.push_str("\n\n");
    }
    whole.push_str(text);
}

/// What was written last is worth the most.
fn keep_end(text: &mut String, limit: usize) {
    if text.len() > limit {
        let cut = text.ceil_char_boundary(text.len() - limit);
        text.drain(..cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claude::ModelUsage;

    fn message(id: &str, text: &str) -> Assistant {
        let blocks = vec![Block::Text(text.to_owned())];
        Assistant { message_id: id.to_owned(), blocks, ..Assistant::default() }
    }

    #[test]
    fn blocks_of_one_message_are_one_round_trip() {
        let mut tracker = Tracker::new(100, 0.0);
        assert!(tracker.note_message(&message("a", "one")));
        assert!(!tracker.note_message(&message("a", "two")));
        assert!(tracker.note_message(&message("b", "three")));
        assert_eq!(tracker.progress.turns, 2);
        assert_eq!(tracker.progress.partial, "one\n\ntwo\n\nthree");
    }

    #[test]
    fn text_being_written_counts_until_the_whole_message_comes() {
        let mut tracker = Tracker::new(100, 0.0);
        tracker.note_delta("hal");
        tracker.note_delta("f");
        assert_eq!(tracker.snapshot().partial, "half");
        tracker.note_message(&message("a", "half and all"));
        assert_eq!(tracker.snapshot().partial, "half and all");
    }

    #[test]
    fn what_the_network_breaks_off_is_kept_once() {
        let mut tracker = Tracker::new(100, 0.0);
        tracker.begin_spending(None, "a", "m", Usage::default());
        tracker.note_delta("half");
        tracker.begin_spending(None, "b", "m", Usage::default());
        tracker.note_delta("half again");
        let failed =
            Assistant { api_error: Some("server_error".to_owned()), ..message("c", "API Error") };
        assert!(!tracker.note_message(&failed));
        assert_eq!(tracker.snapshot().partial, "half again");
        let mut result = ResultFrame::default();
        tracker.note_result(&mut result);
        assert_eq!(result.api_error.as_deref(), Some("server_error"));
    }

    #[test]
    fn much_text_keeps_its_end_and_its_characters() {
        let mut tracker = Tracker::new(5, 0.0);
        tracker.note_message(&message("a", "äöüß"));
        assert_eq!(tracker.progress.partial, "üß");
    }

    #[test]
    fn the_cost_of_a_turn_is_the_difference() {
        let mut tracker = Tracker::new(5, 0.0);
        let total = |total_cost_usd| ResultFrame { total_cost_usd, ..ResultFrame::default() };
        tracker.begin_turn();
        tracker.note_result(&mut total(0.5));
        tracker.begin_turn();
        tracker.note_result(&mut total(0.75));
        assert_eq!(tracker.progress.cost_usd.to_string(), "0.25");
        tracker.begin_turn();
        tracker.note_result(&mut total(0.125));
        assert_eq!(tracker.progress.cost_usd.to_string(), "0.125", "the count began anew");
        tracker.begin_turn();
        tracker.note_result(&mut total(0.25));
        assert_eq!(tracker.progress.cost_usd.to_string(), "0.125");
    }

    #[test]
    fn a_resumed_session_does_not_pay_twice() {
        let result = |written| {
            let usage = Usage { output_tokens: written, ..Usage::default() };
            let model = ModelUsage { usage, cost_usd: 0.75 };
            ResultFrame {
                total_cost_usd: 0.75,
                usage: Usage { output_tokens: 5, ..Usage::default() },
                model_usage: [("m".to_owned(), model)].into(),
                ..ResultFrame::default()
            }
        };
        let cost = |written| {
            let mut tracker = Tracker::new(5, 0.5);
            tracker.begin_turn();
            tracker.note_result(&mut result(written));
            tracker.progress.cost_usd.to_string()
        };
        assert_eq!(cost(10), "0.25", "as 2.1.325 counts");
        assert_eq!(cost(5), "0.75", "as 2.1.197 counts");
    }
}
