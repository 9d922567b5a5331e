//! Output frames of the CLI; fields that are not used are left out.

use serde_json::{Map, Value};

use super::control_handler::PermissionRequest;
use super::result::ResultFrame;
use crate::jsonrpc::LineJson;

/// One line of the CLI's output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OutputFrame {
    /// State of the process rather than of the session.
    System(SystemFrame),
    /// Output of the model: text or tool calls.
    Assistant(AssistantFrame),
    /// Input of the model: tool results.
    User(UserFrame),
    /// End of a turn.
    Result(Box<ResultFrame>),
    /// The CLI asks and waits for the answer.
    ControlRequest(ControlRequest),
    /// The CLI answers a control request of ours.
    ControlResponse(ControlResponse),
    /// The CLI no longer waits for the answer to `request_id`.
    ControlCancel { request_id: String },
    /// Text delta of a message (`--include-partial-messages`).
    TextDelta { text: String },
    /// Start of a message (`--include-partial-messages`).
    MessageStarted {
        /// Set for a message of a native subagent.
        parent_tool_use_id: Option<String>,
        message_id: String,
        model: String,
        /// Input tokens of the message.
        usage: TokenUsage,
    },
    /// End of a message with its final token counts (`--include-partial-messages`).
    MessageEnded {
        /// Set for a message of a native subagent.
        parent_tool_use_id: Option<String>,
        /// Totals of the message.
        usage: TokenUsage,
        /// The message requests tools, so the turn continues.
        wants_tools: bool,
    },
    /// Any other partial content: counts as activity only.
    PartialContent,
    /// Unknown frame type.
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SystemFrame {
    /// First frame of every turn.
    Init(InitFrame),
    /// An API request failed and will be retried.
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
        error: String,
    },
    /// A tool call was denied without a control request (mode `dontAsk`).
    PermissionDenied {
        tool_name: String,
        /// Message shown to the model.
        message: String,
    },
    Other {
        subtype: String,
    },
}

/// `system/init`: the configuration of a turn. Sent again for every turn of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitFrame {
    pub session_id: String,
    /// Full model name.
    pub model: String,
    /// All available tools, MCP tools as `mcp__server__tool`.
    pub tools: Vec<String>,
    pub mcp_servers: Vec<ServerStatus>,
    /// `default`, `dontAsk`, ….
    pub permission_mode: String,
    /// Version of the CLI.
    pub version: String,
    pub cwd: String,
}

/// Status of an MCP server as reported by the CLI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStatus {
    pub name: String,
    /// `connected`, `pending`, `failed`, ….
    pub status: String,
}

/// An `assistant` frame: one block of a message. A message of several blocks comes as several frames.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AssistantFrame {
    /// Same id in all frames of a message.
    pub message_id: String,
    pub model: String,
    pub blocks: Vec<MessageBlock>,
    /// Token counts as of the start of the message.
    pub usage: TokenUsage,
    /// Set for a message of a native subagent.
    pub parent_tool_use_id: Option<String>,
    /// Set if the text is the CLI's own report of an API failure.
    pub api_error: Option<String>,
}

/// Content block of a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MessageBlock {
    Text(String),
    /// A tool call requested by the model.
    ToolUse {
        id: String,
        name: String,
        input: Value,
    },
    /// Thinking, images and unknown types.
    Other,
}

/// Token counts as the API reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Uncached input.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_input_tokens: u64,
    pub cache_creation_input_tokens: u64,
}

impl std::ops::AddAssign for TokenUsage {
    fn add_assign(&mut self, more: Self) {
        self.input_tokens += more.input_tokens;
        self.output_tokens += more.output_tokens;
        self.cache_read_input_tokens += more.cache_read_input_tokens;
        self.cache_creation_input_tokens += more.cache_creation_input_tokens;
    }
}

impl TokenUsage {
    /// Raises each count to at least `later`: counts of one message only grow.
    pub(crate) fn raise_to(&mut self, later: Self) {
        self.input_tokens = self.input_tokens.max(later.input_tokens);
        self.output_tokens = self.output_tokens.max(later.output_tokens);
        self.cache_read_input_tokens =
            self.cache_read_input_tokens.max(later.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            self.cache_creation_input_tokens.max(later.cache_creation_input_tokens);
    }
}

/// A `user` frame: input of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct UserFrame {
    pub results: Vec<ToolResult>,
    /// Set for the input of a native subagent.
    pub parent_tool_use_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolResult {
    pub tool_use_id: String,
    /// The tool failed or was denied.
    pub is_error: bool,
    pub text: String,
}

/// Control request of the CLI.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControlRequest {
    /// Must be repeated in the response.
    pub request_id: String,
    pub payload: ControlPayload,
}

/// Known control requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ControlPayload {
    /// Callback of a registered hook.
    HookCallback {
        /// Id the callback was registered with.
        callback_id: String,
        /// Hook input, as a command hook reads it on stdin.
        input: Map<String, Value>,
        tool_use_id: Option<String>,
    },
    /// Permission request for a tool call (`--permission-prompt-tool stdio`).
    CanUseTool(PermissionRequest),
    /// JSON-RPC message for an SDK MCP server.
    McpMessage { server: String, message: LineJson },
    /// The line exceeded the nesting limit of the parser; only the subtype and callback are known.
    TooDeep {
        /// `hook_callback`, `can_use_tool`, `mcp_message`, ….
        subtype: String,
        /// Empty unless the subtype is `hook_callback`.
        callback_id: String,
    },
    /// Unknown subtype.
    Other { subtype: String },
}

/// Response of the CLI to a control request of ours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControlResponse {
    pub request_id: String,
    /// Payload of the response, or the error text.
    pub outcome: Result<Value, String>,
}
