//! Events of a running turn, for progress and the event log.

use serde_json::Value;

use super::frame::InitFrame;
use crate::util::{one_line, shorten};

const MAX_SUMMARY_CHARS: usize = 120;

/// An event of a running turn. Borrowed: observers copy the parts they keep.
#[derive(Clone, Copy, Debug)]
pub enum Observation<'a> {
    /// A turn began; with its session, tools and servers.
    SessionStarted(&'a InitFrame),
    /// Text of the agent.
    Text(&'a str),
    /// The model requested a tool call; hooks and permission checks follow.
    ToolStarted {
        tool_use_id: &'a str,
        name: &'a str,
        input: &'a Value,
        /// One line for people, such as `Bash: curl -s example.org`.
        summary: &'a str,
    },
    /// A tool call returned a result or was denied.
    ToolFinished {
        tool_use_id: &'a str,
        /// The call failed or was denied.
        is_error: bool,
        /// Text shown to the model.
        text: &'a str,
    },
    /// Another round trip with the model began.
    Turn {
        /// Round trips of this turn, including this one.
        turns: u64,
    },
    /// A message began; it ends with [`Observation::MessageEnded`].
    /// Its tool calls may be checked before that.
    MessageStarted,
    /// Partial content arrived: counts as activity.
    PartialContent,
    /// A message ended; the cost of the turn so far is estimated from its tokens.
    MessageEnded {
        /// US dollars of this turn.
        cost_usd: f64,
        /// The message requests tools, so the turn continues and costs more.
        continues: bool,
    },
    /// An API request failed and is retried.
    ApiRetry {
        /// Failed attempt, counted from 1.
        attempt: u64,
        /// Maximum number of retries.
        max_retries: u64,
        /// Delay before the retry.
        delay_ms: u64,
        /// HTTP status, if there was a response.
        status: Option<u64>,
        /// `overloaded`, `authentication_failed`, ….
        error: &'a str,
    },
    /// The CLI denied a call without a control request.
    PermissionDenied {
        tool_name: &'a str,
        /// Message shown to the model.
        message: &'a str,
    },
    /// The turn ended; its result is about to be returned.
    TurnFinished {
        /// US dollars of this turn.
        cost_usd: f64,
        /// Round trips of this turn.
        turns: u64,
    },
    /// A result arrived while no turn was running, or for a turn without a prompt; it was discarded.
    StaleResult,
}

/// One-line summary of a tool call: the tool and its most informative argument, at most 120 characters.
pub(crate) fn summarize_tool(name: &str, input: &Value) -> String {
    const SUMMARY_KEYS: [&str; 9] = [
        "command",
        "file_path",
        "notebook_path",
        "path",
        "url",
        "query",
        "pattern",
        "prompt",
        "description",
    ];
    let described = SUMMARY_KEYS.iter().find_map(|key| input.get(key)?.as_str());
    let first = || input.as_object()?.values().find_map(Value::as_str);
    match described.or_else(first) {
        // Only the beginning is shown, and an argument may have megabytes.
        Some(text) => {
            let beginning: String = text.chars().take(4 * MAX_SUMMARY_CHARS).collect();
            shorten(&format!("{}: {}", display_name(name), one_line(&beginning)), MAX_SUMMARY_CHARS)
        }
        None => shorten(&display_name(name), MAX_SUMMARY_CHARS),
    }
}

/// `mcp__brave__search` as `brave/search`.
fn display_name(name: &str) -> String {
    match name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
        Some((server, tool)) => one_line(&format!("{server}/{tool}")),
        None => one_line(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use test_case::test_case;

    #[test_case("Bash", &json!({"description": "d", "command": "curl\n-s x"}) => "Bash: curl -s x")]
    #[test_case("Read", &json!({"file_path": "/a"}) => "Read: /a")]
    #[test_case("mcp__brave__search", &json!({"n": 3, "q": "rust"}) => "brave/search: rust")]
    #[test_case("TodoRead", &json!({}) => "TodoRead")]
    #[test_case("Bash", &json!({"command": "a\u{1b}[2J"}) => "Bash: a"; "nothing moves the cursor")]
    fn summaries(name: &str, input: &Value) -> String {
        summarize_tool(name, input)
    }

    #[test]
    fn summaries_are_truncated() {
        let input = json!({"command": "x".repeat(5_000_000)});
        assert_eq!(summarize_tool("Bash", &input).chars().count(), MAX_SUMMARY_CHARS);
    }
}
