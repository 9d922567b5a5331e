//! Progress of a running turn; also the only data left of a turn without a result.

use serde_json::Value;

use super::frame::{AssistantFrame, MessageBlock, TokenUsage};
use super::result::{ResultFrame, ResultSubtype};
use super::turn_cost::TurnCost;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnProgress {
    /// Session id, once the CLI reported it.
    pub session_id: Option<String>,
    /// Text of the agent in this turn; only the end if it exceeds `max_partial_bytes`.
    pub partial_text: String,
    /// Round trips with the model.
    pub turns: u64,
    /// US dollars of this turn: estimated from tokens until the result arrives, then as the CLI reports.
    pub cost_usd: f64,
    /// Tokens of this turn as reported so far.
    pub usage: TokenUsage,
    /// Last input of the `StructuredOutput` tool, whether or not the CLI accepted it.
    pub structured_output: Option<Value>,
    /// One-line summary of the last requested tool call.
    pub last_tool: Option<String>,
    /// Output lines that were not JSON objects.
    pub skipped_lines: u64,
}

/// Updates a [`TurnProgress`] from frames.
#[derive(Debug)]
pub(crate) struct ProgressTracker {
    pub(crate) progress: TurnProgress,
    /// Text deltas of the current message; replaced by the complete message.
    current_text: String,
    /// API error class reported in this turn.
    api_error: Option<String>,
    last_message_id: String,
    turn_cost: TurnCost,
    /// Cost of this turn according to its result; 0 until that arrives.
    reported_usd: f64,
    /// Cost of the process before this turn.
    previous_turns_usd: f64,
    /// Cost of the session before this process.
    /// Zero after the first result, which shows if `total_cost_usd` includes it.
    previous_session_usd: f64,
    max_partial_bytes: usize,
}

impl ProgressTracker {
    /// `session_cost` is the cost of the session before this process.
    pub(crate) fn new(max_partial_bytes: usize, previous_session_usd: f64) -> Self {
        Self {
            progress: TurnProgress::default(),
            current_text: String::new(),
            api_error: None,
            last_message_id: String::new(),
            turn_cost: TurnCost::default(),
            reported_usd: 0.0,
            previous_turns_usd: 0.0,
            previous_session_usd,
            max_partial_bytes,
        }
    }

    /// Resets everything but the session id.
    pub(crate) fn begin_turn(&mut self) {
        self.previous_turns_usd += std::mem::take(&mut self.reported_usd);
        self.turn_cost = TurnCost::default();
        let session_id = self.progress.session_id.take();
        self.progress = TurnProgress { session_id, ..TurnProgress::default() };
        self.current_text.clear();
        self.api_error = None;
        self.last_message_id.clear();
    }

    /// Records a message of the agent itself; returns true if it started another round trip.
    pub(crate) fn record_message(&mut self, message: &AssistantFrame) -> bool {
        if message.api_error.is_some() {
            // The text is the CLI's report of an API failure; the interrupted deltas are kept as text.
            let broken_off = std::mem::take(&mut self.current_text);
            self.append(&broken_off);
            self.api_error.clone_from(&message.api_error);
            return false;
        }
        self.current_text.clear();
        self.begin_message(None, &message.message_id, &message.model, message.usage);
        for block in &message.blocks {
            if let MessageBlock::Text(text) = block {
                self.append(text);
            }
        }
        if message.message_id == self.last_message_id && !message.message_id.is_empty() {
            return false;
        }
        self.last_message_id.clone_from(&message.message_id);
        self.progress.turns += 1;
        self.progress.usage += message.usage;
        true
    }

    /// Records the start of a message, possibly repeated.
    pub(crate) fn begin_message(
        &mut self,
        parent_tool_use_id: Option<&str>,
        id: &str,
        model: &str,
        usage: TokenUsage,
    ) {
        if parent_tool_use_id.is_none() {
            // A message restarted after a network failure is sent again from its beginning.
            self.current_text.clear();
        }
        self.turn_cost.begin_message(parent_tool_use_id, id, model, usage);
        self.progress.cost_usd = self.turn_cost.total_usd();
    }

    /// Records the end of a message and returns the cost of the turn so far.
    pub(crate) fn end_message(
        &mut self,
        parent_tool_use_id: Option<&str>,
        usage: TokenUsage,
    ) -> f64 {
        self.turn_cost.end_message(parent_tool_use_id, usage);
        self.progress.cost_usd = self.turn_cost.total_usd();
        self.progress.cost_usd
    }

    pub(crate) fn append_delta(&mut self, text: &str) {
        self.current_text.push_str(text);
        truncate_front(&mut self.current_text, self.max_partial_bytes);
    }

    pub(crate) fn record_result(&mut self, result: &mut ResultFrame) {
        result.api_error = self.api_error.take();
        let session_cost = std::mem::take(&mut self.previous_session_usd);
        if includes_session_cost(result) {
            self.previous_turns_usd += session_cost;
        }
        // `total_cost_usd` counts from the start of the process. If it decreased (`/clear`), all of it belongs to this
        // turn.
        let difference = result.total_cost_usd - self.previous_turns_usd;
        if difference >= 0.0 {
            self.progress.cost_usd = difference;
        } else {
            self.previous_turns_usd = 0.0;
            self.progress.cost_usd = result.total_cost_usd;
        }
        self.reported_usd = self.progress.cost_usd;
        // The result of an interrupted turn also counts the messages of the interruption.
        if result.subtype != ResultSubtype::DuringExecution {
            self.progress.turns = self.progress.turns.max(result.num_turns);
        }
        self.progress.usage = result.usage;
    }

    /// Returns the progress including the text of the current message.
    pub(crate) fn snapshot(&self) -> TurnProgress {
        let mut progress = self.progress.clone();
        append_paragraph(&mut progress.partial_text, &self.current_text);
        progress
    }

    fn append(&mut self, text: &str) {
        append_paragraph(&mut self.progress.partial_text, text);
        truncate_front(&mut self.progress.partial_text, self.max_partial_bytes);
    }
}

/// True if `total_cost_usd` includes the cost of a resumed session: 2.1.325 does, 2.1.197 starts at 0.
/// In the first case the per-model output tokens exceed those of this turn.
fn includes_session_cost(result: &ResultFrame) -> bool {
    let written: u64 = result.model_usage.values().map(|model| model.usage.output_tokens).sum();
    written > result.usage.output_tokens
}

fn append_paragraph(whole: &mut String, text: &str) {
    if !whole.is_empty() && !text.is_empty() {
        whole.push_str("\n\n");
    }
    whole.push_str(text);
}

/// Keeps the last `limit` bytes, cut at a character boundary.
fn truncate_front(text: &mut String, limit: usize) {
    if text.len() > limit {
        let cut = text.ceil_char_boundary(text.len() - limit);
        text.drain(..cut);
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::ModelUsage;
    use super::*;

    fn message(id: &str, text: &str) -> AssistantFrame {
        let blocks = vec![MessageBlock::Text(text.to_owned())];
        AssistantFrame { message_id: id.to_owned(), blocks, ..AssistantFrame::default() }
    }

    #[test]
    fn blocks_of_one_message_are_one_round_trip() {
        let mut tracker = ProgressTracker::new(100, 0.0);
        assert!(tracker.record_message(&message("a", "one")));
        assert!(!tracker.record_message(&message("a", "two")));
        assert!(tracker.record_message(&message("b", "three")));
        assert_eq!(tracker.progress.turns, 2);
        assert_eq!(tracker.progress.partial_text, "one\n\ntwo\n\nthree");
    }

    #[test]
    fn complete_message_replaces_its_deltas() {
        let mut tracker = ProgressTracker::new(100, 0.0);
        tracker.append_delta("hal");
        tracker.append_delta("f");
        assert_eq!(tracker.snapshot().partial_text, "half");
        tracker.record_message(&message("a", "half and all"));
        assert_eq!(tracker.snapshot().partial_text, "half and all");
    }

    #[test]
    fn text_interrupted_by_an_api_error_is_kept_once() {
        let mut tracker = ProgressTracker::new(100, 0.0);
        tracker.begin_message(None, "a", "m", TokenUsage::default());
        tracker.append_delta("half");
        tracker.begin_message(None, "b", "m", TokenUsage::default());
        tracker.append_delta("half again");
        let failed = AssistantFrame {
            api_error: Some("server_error".to_owned()),
            ..message("c", "API Error")
        };
        assert!(!tracker.record_message(&failed));
        assert_eq!(tracker.snapshot().partial_text, "half again");
        let mut result = ResultFrame::default();
        tracker.record_result(&mut result);
        assert_eq!(result.api_error.as_deref(), Some("server_error"));
    }

    #[test]
    fn long_text_is_truncated_at_the_front_at_a_char_boundary() {
        let mut tracker = ProgressTracker::new(5, 0.0);
        tracker.record_message(&message("a", "äöüß"));
        assert_eq!(tracker.progress.partial_text, "üß");
    }

    #[test]
    fn turn_cost_is_the_difference_of_process_totals() {
        let mut tracker = ProgressTracker::new(5, 0.0);
        let total = |total_cost_usd| ResultFrame { total_cost_usd, ..ResultFrame::default() };
        tracker.begin_turn();
        tracker.record_result(&mut total(0.5));
        tracker.begin_turn();
        tracker.record_result(&mut total(0.75));
        assert_eq!(tracker.progress.cost_usd.to_string(), "0.25");
        tracker.begin_turn();
        tracker.record_result(&mut total(0.125));
        assert_eq!(tracker.progress.cost_usd.to_string(), "0.125", "the count began anew");
        tracker.begin_turn();
        tracker.record_result(&mut total(0.25));
        assert_eq!(tracker.progress.cost_usd.to_string(), "0.125");
    }

    #[test]
    fn cost_of_a_resumed_session_is_not_counted_twice() {
        let result = |written| {
            let usage = TokenUsage { output_tokens: written, ..TokenUsage::default() };
            let model = ModelUsage { usage, cost_usd: 0.75 };
            ResultFrame {
                total_cost_usd: 0.75,
                usage: TokenUsage { output_tokens: 5, ..TokenUsage::default() },
                model_usage: [("m".to_owned(), model)].into(),
                ..ResultFrame::default()
            }
        };
        let cost = |written| {
            let mut tracker = ProgressTracker::new(5, 0.5);
            tracker.begin_turn();
            tracker.record_result(&mut result(written));
            tracker.progress.cost_usd.to_string()
        };
        assert_eq!(cost(10), "0.25", "as 2.1.325 counts");
        assert_eq!(cost(5), "0.75", "as 2.1.197 counts");
    }
}
