//! Estimated cost of the running turn, from the token counts of its messages.

use std::collections::BTreeMap;

use super::frame::TokenUsage;
use super::price::cost_usd;

/// Messages of a turn: the finished ones as a sum, the current one of each speaker.
#[derive(Debug, Default)]
pub(crate) struct TurnCost {
    finished_usd: f64,
    /// Current message by the tool call that a native subagent answers; `None` for the agent itself.
    current: BTreeMap<Option<String>, MessageCost>,
}

#[derive(Debug, Default)]
struct MessageCost {
    id: String,
    model: String,
    usage: TokenUsage,
}

impl TurnCost {
    /// Records the start of a message, possibly repeated with higher counts.
    pub(crate) fn begin_message(
        &mut self,
        parent_tool_use_id: Option<&str>,
        id: &str,
        model: &str,
        usage: TokenUsage,
    ) {
        let open = self.current.entry(parent_tool_use_id.map(str::to_owned)).or_default();
        if open.id == id {
            open.usage.raise_to(usage);
            return;
        }
        self.finished_usd += cost_usd(&open.model, open.usage);
        *open = MessageCost { id: id.to_owned(), model: model.to_owned(), usage };
    }

    /// Records the final token counts of the current message.
    pub(crate) fn end_message(&mut self, parent_tool_use_id: Option<&str>, usage: TokenUsage) {
        if let Some(open) = self.current.get_mut(&parent_tool_use_id.map(str::to_owned)) {
            open.usage.raise_to(usage);
        }
    }

    /// US dollars.
    pub(crate) fn total_usd(&self) -> f64 {
        let open = self.current.values().map(|message| cost_usd(&message.model, message.usage));
        self.finished_usd + open.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input_tokens: u64, output_tokens: u64) -> TokenUsage {
        TokenUsage { input_tokens, output_tokens, ..TokenUsage::default() }
    }

    #[test]
    fn each_message_counts_once_with_its_highest_token_counts() {
        let mut turn_cost = TurnCost::default();
        turn_cost.begin_message(None, "a", "claude-opus-4-8", usage(1_000, 1));
        turn_cost.begin_message(None, "a", "claude-opus-4-8", usage(1_000, 1));
        turn_cost.end_message(None, usage(0, 2_000));
        assert!((turn_cost.total_usd() - 0.055).abs() < 1e-9);
        turn_cost.begin_message(Some("toolu_1"), "b", "claude-haiku-4-5", usage(1_000_000, 0));
        turn_cost.begin_message(None, "c", "claude-opus-4-8", usage(1_000, 0));
        assert!((turn_cost.total_usd() - 1.06).abs() < 1e-9, "{}", turn_cost.total_usd());
    }
}
