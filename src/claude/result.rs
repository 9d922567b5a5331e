//! `result` frame: the end of a turn, and the only authority on its success.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::field_access::{FieldAccess, objects, texts};
use super::frame::TokenUsage;

/// A `result` frame.
///
/// `subtype: success` with `is_error: true` is a failure. Observed in both versions:
///
/// | cause | subtype | fields |
/// |---|---|---|
/// | HTTP 400, 401, 429, 500, 529 | `success` | `is_error`, `api_error_status`, `result` has the text |
/// | `--max-turns` | `error_max_turns` | `errors`, no `result`; the next turn works |
/// | `--max-budget-usd` | `error_max_budget_usd` | `errors`, no `result` |
/// | interrupt | `error_during_execution` | `terminal_reason` begins with `aborted` |
/// | unknown session | `error_during_execution` | `errors`, before `initialize` is answered; exit 1 |
/// | call denied by a hook, a deny rule or us | unchanged | listed in `permission_denials` |
/// | tool left out by `--tools` | unchanged | *not* in `permission_denials`: the tool does not exist |
///
/// All of these HTTP statuses, 401 included, are first retried ten times over minutes unless `CLAUDE_CODE_MAX_RETRIES`
/// is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultFrame {
    pub subtype: ResultSubtype,
    /// Takes precedence over the subtype.
    pub is_error: bool,
    /// The answer, or the message of an API error.
    pub result: Option<String>,
    /// Answer to `--json-schema`; absent if the model wrote plain text.
    pub structured_output: Option<Value>,
    pub errors: Vec<String>,
    /// Error class of the CLI (`rate_limit`, `billing_error`, …), taken from the message before the result.
    pub api_error: Option<String>,
    /// HTTP status of an API error.
    pub api_error_status: Option<u64>,
    /// `completed`, `aborted_streaming`, `aborted_tools`, `max_turns`, ….
    pub terminal_reason: Option<String>,
    pub session_id: String,
    /// Origin of a turn without a prompt: `task-notification` when a background command of the agent exits.
    pub origin: Option<String>,
    /// US dollars since the *process* started, not the turn; in 2.1.325 since the session started.
    pub total_cost_usd: f64,
    /// Round trips with the model in this turn.
    pub num_turns: u64,
    /// Duration of the turn.
    pub duration_ms: u64,
    /// Time spent in API requests since the process started.
    pub duration_api_ms: u64,
    /// Tokens of this turn.
    pub usage: TokenUsage,
    /// Tokens and cost by model since the process started.
    pub model_usage: BTreeMap<String, ModelUsage>,
    /// Calls denied in this turn by a hook, a rule or a [`ControlHandler`](super::ControlHandler).
    pub permission_denials: Vec<PermissionDenial>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResultSubtype {
    /// The turn completed; `is_error` decides.
    Success,
    /// `--max-turns` exceeded.
    MaxTurns,
    /// `--max-budget-usd` exceeded.
    MaxBudget,
    /// No answer matched `--json-schema` within the CLI's retries.
    MaxStructuredOutputRetries,
    /// Interrupt, unknown session, or failure of the CLI itself.
    DuringExecution,
    /// Unknown subtype.
    Other(String),
    /// The frame has no subtype.
    #[default]
    Missing,
}

/// Usage of one model since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelUsage {
    pub usage: TokenUsage,
    /// US dollars.
    pub cost_usd: f64,
}

/// A denied tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PermissionDenial {
    pub tool_name: String,
    pub tool_use_id: String,
    pub tool_input: Value,
}

impl ResultFrame {
    pub fn is_success(&self) -> bool {
        self.subtype == ResultSubtype::Success && !self.is_error
    }

    /// True if the CLI started this turn without a prompt; no caller waits for its result.
    pub fn is_background_turn(&self) -> bool {
        self.origin.as_deref() == Some("task-notification")
    }

    /// True after an interrupt.
    pub fn is_aborted(&self) -> bool {
        self.terminal_reason.as_deref().is_some_and(|reason| reason.starts_with("aborted"))
    }

    pub(crate) fn from_map(mut map: Map<String, Value>) -> Self {
        Self {
            subtype: ResultSubtype::from_name(map.text("subtype").as_deref()),
            // A missing `is_error` counts as an error.
            is_error: map.get("is_error").and_then(Value::as_bool).unwrap_or(true),
            result: map.text("result"),
            structured_output: map.value("structured_output"),
            errors: texts(map.list("errors")),
            api_error: None,
            api_error_status: map.integer("api_error_status"),
            terminal_reason: map.text("terminal_reason"),
            session_id: map.text_or_empty("session_id"),
            origin: map.object("origin").text("kind"),
            total_cost_usd: map.number("total_cost_usd").unwrap_or(0.0),
            num_turns: map.integer("num_turns").unwrap_or(0),
            duration_ms: map.integer("duration_ms").unwrap_or(0),
            duration_api_ms: map.integer("duration_api_ms").unwrap_or(0),
            usage: TokenUsage::from_map(&map.object("usage")),
            model_usage: parse_model_usage(map.object("modelUsage")),
            permission_denials: parse_denials(map.list("permission_denials")),
        }
    }
}

impl ResultSubtype {
    fn from_name(name: Option<&str>) -> Self {
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

impl TokenUsage {
    pub(crate) fn from_map(map: &Map<String, Value>) -> Self {
        Self {
            input_tokens: map.integer("input_tokens").unwrap_or(0),
            output_tokens: map.integer("output_tokens").unwrap_or(0),
            cache_read_input_tokens: map.integer("cache_read_input_tokens").unwrap_or(0),
            cache_creation_input_tokens: map.integer("cache_creation_input_tokens").unwrap_or(0),
        }
    }
}

fn parse_model_usage(map: Map<String, Value>) -> BTreeMap<String, ModelUsage> {
    map.into_iter()
        .filter_map(|(model, value)| {
            let fields = value.as_object()?;
            let usage = TokenUsage {
                input_tokens: fields.integer("inputTokens").unwrap_or(0),
                output_tokens: fields.integer("outputTokens").unwrap_or(0),
                cache_read_input_tokens: fields.integer("cacheReadInputTokens").unwrap_or(0),
                cache_creation_input_tokens: fields
                    .integer("cacheCreationInputTokens")
                    .unwrap_or(0),
            };
            Some((model, ModelUsage { usage, cost_usd: fields.number("costUSD").unwrap_or(0.0) }))
        })
        .collect()
}

fn parse_denials(list: Vec<Value>) -> Vec<PermissionDenial> {
    objects(list)
        .map(|mut map| PermissionDenial {
            tool_name: map.text_or_empty("tool_name"),
            tool_use_id: map.text_or_empty("tool_use_id"),
            tool_input: map.value("tool_input").unwrap_or_default(),
        })
        .collect()
}
