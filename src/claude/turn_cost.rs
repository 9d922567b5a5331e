//! What a turn has cost so far, from the tokens that the API tells with every message.

use std::collections::BTreeMap;

use super::frame::Usage;
use super::price::cost_usd;

/// The messages of a turn: those that are over, and the one that each speaker is writing.
#[derive(Debug, Default)]
pub(super) struct Spending {
    closed_usd: f64,
    /// By the tool call that a native subagent answers; the agent itself has none.
    open: BTreeMap<Option<String>, Message>,
}

#[derive(Debug, Default)]
struct Message {
    id: String,
    model: String,
    usage: Usage,
}

impl Spending {
    /// A message was begun, or told again.
    pub(super) fn begin(&mut self, speaker: Option<&str>, id: &str, model: &str, usage: Usage) {
        let open = self.open.entry(speaker.map(str::to_owned)).or_default();
        if open.id == id {
            open.usage.rise_to(usage);
            return;
        }
        self.closed_usd += cost_usd(&open.model, open.usage);
        *open = Message { id: id.to_owned(), model: model.to_owned(), usage };
    }

    /// The message that was begun last is over, and this is what it took in all.
    pub(super) fn end(&mut self, speaker: Option<&str>, usage: Usage) {
        if let Some(open) = self.open.get_mut(&speaker.map(str::to_owned)) {
            open.usage.rise_to(usage);
        }
    }

    /// Dollars.
    pub(super) fn so_far(&self) -> f64 {
        let open = self.open.values().map(|message| cost_usd(&message.model, message.usage));
        self.closed_usd + open.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
        Usage { input_tokens, output_tokens, ..Usage::default() }
    }

    #[test]
    fn each_message_counts_once_with_the_most_that_was_told() {
        let mut spending = Spending::default();
        spending.begin(None, "a", "claude-opus-4-8", usage(1_000, 1));
        spending.begin(None, "a", "claude-opus-4-8", usage(1_000, 1));
        spending.end(None, usage(0, 2_000));
        assert!((spending.so_far() - 0.055).abs() < 1e-9);
        spending.begin(Some("toolu_1"), "b", "claude-haiku-4-5", usage(1_000_000, 0));
        spending.begin(None, "c", "claude-opus-4-8", usage(1_000, 0));
        assert!((spending.so_far() - 1.06).abs() < 1e-9, "{}", spending.so_far());
    }
}
