//! The `result` frame: how a turn ended. It alone says whether a run was good.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fields::{Fields, objects, texts};
use super::frame::Usage;

/// A `result` frame.
///
/// `subtype: success` with `is_error: true` is a failure. What both versions were seen to send:
///
/// | what happened | subtype | else |
/// |---|---|---|
/// | HTTP 400, 401, 429, 500, 529 | `success` | `is_error`, `api_error_status`, `result` has the text |
/// | `--max-turns` | `error_max_turns` | `errors`, no `result`; the next turn works |
/// | `--max-budget-usd` | `error_max_budget_usd` | `errors`, no `result` |
/// | interrupt | `error_during_execution` | `terminal_reason` begins with `aborted` |
/// | unknown session | `error_during_execution` | `errors`, before `initialize` is answered; exit 1 |
/// | a call was refused | as if not | `permission_denials` has it: by a hook, a deny rule, or us |
/// | a tool that `--tools` leaves out | as if not | *not* among the denials: the tool does not exist |
///
/// All of those statuses, 401 too, are first tried again ten times over minutes, unless
/// `CLAUDE_CODE_MAX_RETRIES` says otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultFrame {
    /// What kind of end it was.
    pub subtype: ResultSubtype,
    /// Whether it failed; to be believed over the subtype.
    pub is_error: bool,
    /// The answer, or the message of an API error.
    pub result: Option<String>,
    /// The answer that `--json-schema` asked for; absent when the model wrote plain text.
    pub structured_output: Option<Value>,
    /// What went wrong, in the CLI's words.
    pub errors: Vec<String>,
    /// The CLI's word for an API error (`rate_limit`, `billing_error`, …), which the message before the result had.
    pub api_error: Option<String>,
    /// The HTTP status of an API error.
    pub api_error_status: Option<u64>,
    /// `completed`, `aborted_streaming`, `aborted_tools`, `max_turns`, ….
    pub terminal_reason: Option<String>,
    /// The conversation.
    pub session_id: String,
    /// What began the turn, where it was no prompt: `task-notification` when a command that the
    /// agent left in the background came to its end.
    pub origin: Option<String>,
    /// Dollars since the *process* began, not the turn; with 2.1.325, since the session began.
    pub total_cost_usd: f64,
    /// Round trips with the model in this turn.
    pub num_turns: u64,
    /// How long the turn took.
    pub duration_ms: u64,
    /// How long the API took, since the process began.
    pub duration_api_ms: u64,
    /// Tokens of this turn.
    pub usage: Usage,
    /// Tokens and cost by model, since the process began.
    pub model_usage: BTreeMap<String, ModelUsage>,
    /// Calls that were refused in this turn, by a hook, a rule or the parent.
    pub permission_denials: Vec<Denial>,
}

/// The kinds of end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResultSubtype {
    /// The turn came to its end; look at `is_error`.
    Success,
    /// More round trips than `--max-turns`.
    MaxTurns,
    /// More dollars than `--max-budget-usd`.
    MaxBudget,
    /// The model never kept to `--json-schema`.
    MaxStructuredOutputRetries,
    /// Interrupted, an unknown session, or a failure of the CLI itself.
    DuringExecution,
    /// One that this version of Adjutant does not know.
    Other(String),
    /// The frame had none.
    #[default]
    Missing,
}

/// What one model used, since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelUsage {
    /// Tokens.
    pub usage: Usage,
    /// Dollars.
    pub cost_usd: f64,
}

/// A tool call that was refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Denial {
    /// The tool.
    pub tool_name: String,
    /// The call.
    pub tool_use_id: String,
    /// What it was asked to do.
    pub tool_input: Value,
}

impl ResultFrame {
    /// Whether this is the one way to succeed.
    pub fn is_success(&self) -> bool {
        self.subtype == ResultSubtype::Success && !self.is_error
    }

    /// Whether the CLI began this turn itself; then nobody waits for its result.
    pub fn is_unasked(&self) -> bool {
        self.origin.as_deref() == Some("task-notification")
    }

    /// Whether the turn was cut off by an interrupt.
    pub fn is_aborted(&self) -> bool {
        self.terminal_reason.as_deref().is_some_and(|reason| reason.starts_with("aborted"))
    }

    pub(super) fn take_from(mut map: Map<String, Value>) -> Self {
        Self {
            subtype: ResultSubtype::named(map.text("subtype").as_deref()),
            // A frame that does not say it is good is not.
            is_error: map.get("is_error").and_then(Value::as_bool).unwrap_or(true),
            result: map.text("result"),
            structured_output: map.value("structured_output"),
            errors: texts(map.list("errors")),
            api_error: None,
            api_error_status: map.whole("api_error_status"),
            terminal_reason: map.text("terminal_reason"),
            session_id: map.text_or_empty("session_id"),
            origin: map.object("origin").text("kind"),
            total_cost_usd: map.number("total_cost_usd").unwrap_or(0.0),
            num_turns: map.whole("num_turns").unwrap_or(0),
            duration_ms: map.whole("duration_ms").unwrap_or(0),
            duration_api_ms: map.whole("duration_api_ms").unwrap_or(0),
            usage: Usage::take_from(&map.object("usage")),
            model_usage: model_usage(map.object("modelUsage")),
            permission_denials: denials(map.list("permission_denials")),
        }
    }
}

impl ResultSubtype {
    fn named(name: Option<&str>) -> Self {
        match name {
            Some("success") => Self::Success,
            Some("error_max_turns") => Self::MaxTurns,
            Some("error_max_budget_usd") => Self::MaxBudget,
            Some("error_max_structured_output_retries") => Self::MaxStructuredOutputRetries,
            Some("error_during_execution") => Self::DuringExecution,
            Some(other) => Self::Other(other.to_owned()),
            None => Self::Missing,
        }
    }
}

impl Usage {
    pub(super) fn take_from(map: &Map<String, Value>) -> Self {
        Self {
            input_tokens: map.whole("input_tokens").unwrap_or(0),
            output_tokens: map.whole("output_tokens").unwrap_or(0),
            cache_read_input_tokens: map.whole("cache_read_input_tokens").unwrap_or(0),
            cache_creation_input_tokens: map.whole("cache_creation_input_tokens").unwrap_or(0),
        }
    }
}

fn model_usage(map: Map<String, Value>) -> BTreeMap<String, ModelUsage> {
    map.into_iter()
        .filter_map(|(model, value)| {
            let fields = value.as_object()?;
            let usage = Usage {
                input_tokens: fields.whole("inputTokens").unwrap_or(0),
                output_tokens: fields.whole("outputTokens").unwrap_or(0),
                cache_read_input_tokens: fields.whole("cacheReadInputTokens").unwrap_or(0),
                cache_creation_input_tokens: fields.whole("cacheCreationInputTokens").unwrap_or(0),
            };
            Some((model, ModelUsage { usage, cost_usd: fields.number("costUSD").unwrap_or(0.0) }))
        })
        .collect()
}

fn denials(list: Vec<Value>) -> Vec<Denial> {
    objects(list)
        .map(|mut map| Denial {
            tool_name: map.text_or_empty("tool_name"),
            tool_use_id: map.text_or_empty("tool_use_id"),
            tool_input: map.value("tool_input").unwrap_or_default(),
        })
        .collect()
}
