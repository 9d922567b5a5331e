//! What can be seen of a conversation while it goes on.

use serde_json::Value;

use super::frame::Init;
use crate::base::{one_line, shorten};

const SUMMARY_CHARS: usize = 120;

/// Something that happened. Borrowed: whoever wants to keep it copies what it needs.
#[derive(Clone, Copy, Debug)]
pub enum Observation<'a> {
    /// A turn began with these tools and servers, in this session.
    SessionStarted(&'a Init),
    /// The agent wrote something.
    Text(&'a str),
    /// The agent wants to use a tool; hooks and permissions come after this.
    ToolStarted {
        /// The call.
        tool_use_id: &'a str,
        /// The tool.
        name: &'a str,
        /// Its arguments.
        input: &'a Value,
        /// One line for people, such as `Bash: curl -s example.org`.
        summary: &'a str,
    },
    /// A tool gave a result, or was refused.
    ToolFinished {
        /// The call.
        tool_use_id: &'a str,
        /// Whether it failed or was refused.
        is_error: bool,
        /// What the model is told.
        text: &'a str,
    },
    /// A further round trip with the model began.
    Turn {
        /// How many this turn has had.
        turns: u64,
    },
    /// A message began; it ends with [`Observation::Spent`]. The tools it asks for may be asked about before that.
    MessageStarted,
    /// Something is being written: a sign of life.
    Writing,
    /// A message is over; what the turn has cost by now, counted from its tokens.
    Spent {
        /// Dollars of this turn.
        cost_usd: f64,
        /// Whether the message asks for tools, so that more will be spent.
        goes_on: bool,
    },
    /// The API did not answer and is asked again.
    ApiRetry {
        /// Which attempt failed, from 1.
        attempt: u64,
        /// After how many the CLI gives up.
        max_retries: u64,
        /// How long it waits.
        delay_ms: u64,
        /// The HTTP status, where there was one.
        status: Option<u64>,
        /// `overloaded`, `authentication_failed`, ….
        error: &'a str,
    },
    /// The CLI refused a call without asking.
    PermissionDenied {
        /// The tool.
        tool_name: &'a str,
        /// What the model was told.
        message: &'a str,
    },
    /// The turn is over; its result is about to be returned.
    TurnFinished {
        /// Dollars of this turn.
        cost_usd: f64,
        /// Round trips of this turn.
        turns: u64,
    },
    /// A result came that no turn was waiting for; it was thrown away.
    StaleResult,
}

/// One line that says what a tool call is about: its most telling argument.
pub fn summarize_tool(name: &str, input: &Value) -> String {
    const TELLING: [&str; 9] = [
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
    let told = TELLING.iter().find_map(|key| input.get(key)?.as_str());
    let first = || input.as_object()?.values().find_map(Value::as_str);
    match told.or_else(first) {
        // Only the beginning is shown, and an argument may have megabytes.
        Some(text) => {
            let beginning: String = text.chars().take(4 * SUMMARY_CHARS).collect();
            shorten(&format!("{}: {}", plain_name(name), one_line(&beginning)), SUMMARY_CHARS)
        }
        None => shorten(&plain_name(name), SUMMARY_CHARS),
    }
}

/// `mcp__brave__search` as `brave/search`.
fn plain_name(name: &str) -> String {
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
    #[test_case("Bash", &json!({"command": "a\u{1b}[2J"}) => "Bash: a [2J"; "nothing moves the cursor")]
    fn summaries(name: &str, input: &Value) -> String {
        summarize_tool(name, input)
    }

    #[test]
    fn a_summary_is_short() {
        let input = json!({"command": "x".repeat(5_000_000)});
        assert_eq!(summarize_tool("Bash", &input).chars().count(), SUMMARY_CHARS);
    }
}
