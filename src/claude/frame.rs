//! What the CLI writes, as far as we have a use for it.

use serde_json::{Map, Value};

use super::result::ResultFrame;

/// One line of the CLI's output.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Something about the process rather than the conversation.
    System(System),
    /// The model spoke or asked for tools.
    Assistant(Assistant),
    /// What the model was told: results of tools.
    User(User),
    /// A turn is over.
    Result(Box<ResultFrame>),
    /// The CLI asks its parent something and waits for the answer.
    ControlRequest(ControlRequest),
    /// The CLI answers something its parent asked.
    ControlReply(ControlReply),
    /// The CLI no longer waits for an answer.
    ControlCancel {
        /// Which question it was.
        request_id: String,
    },
    /// A piece of text while it is being written (`--include-partial-messages`).
    TextDelta {
        /// The piece.
        text: String,
    },
    /// A message is begun (`--include-partial-messages`).
    MessageStarted {
        /// Set when a native subagent speaks rather than the agent itself.
        parent_tool_use_id: Option<String>,
        /// The message's id.
        message_id: String,
        /// The model that writes it.
        model: String,
        /// Tokens that were read for it.
        usage: Usage,
    },
    /// A message is over, and its tokens are known (`--include-partial-messages`).
    MessageEnded {
        /// Set when a native subagent speaks rather than the agent itself.
        parent_tool_use_id: Option<String>,
        /// Tokens in all.
        usage: Usage,
        /// Whether it asks for tools, so that the turn goes on.
        wants_tools: bool,
    },
    /// Something else that is being written: a sign of life, nothing more.
    Writing,
    /// A type that this version of Adjutant does not know.
    Other,
}

/// A `system` frame.
#[derive(Clone, Debug, PartialEq)]
pub enum System {
    /// Opens every turn.
    Init(Init),
    /// The API did not answer and will be asked again.
    ApiRetry {
        /// Which attempt failed, from 1.
        attempt: u64,
        /// After how many it gives up.
        max_retries: u64,
        /// How long it waits now.
        delay_ms: u64,
        /// The HTTP status, where there was an answer.
        status: Option<u64>,
        /// `overloaded`, `authentication_failed`, ….
        error: String,
    },
    /// A tool call was refused without asking the parent (mode `dontAsk`).
    PermissionDenied {
        /// Which tool.
        tool_name: String,
        /// What the model was told.
        message: String,
    },
    /// Another subtype.
    Other {
        /// Its name.
        subtype: String,
    },
}

/// `system/init`: what the turn will run with. It comes again with every turn of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Init {
    /// The conversation's id.
    pub session_id: String,
    /// The model's full name.
    pub model: String,
    /// Every tool that exists, MCP tools under their `mcp__server__tool` names.
    pub tools: Vec<String>,
    /// The MCP servers and how they are.
    pub mcp_servers: Vec<ServerStatus>,
    /// `default`, `dontAsk`, ….
    pub permission_mode: String,
    /// The version of the CLI.
    pub version: String,
    /// The working folder.
    pub cwd: String,
}

/// An MCP server as the CLI sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// `connected`, `pending`, `failed`, ….
    pub status: String,
}

/// An `assistant` frame: one block of a message; a message with several comes as several frames.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assistant {
    /// The message's id, the same in all its frames.
    pub message_id: String,
    /// The model that wrote it.
    pub model: String,
    /// What was said or asked for.
    pub blocks: Vec<Block>,
    /// Tokens so far, as the API told at the beginning of the message.
    pub usage: Usage,
    /// Set when a native subagent speaks rather than the agent itself.
    pub parent_tool_use_id: Option<String>,
    /// Set when the text is the CLI's own about a failure of the API.
    pub api_error: Option<String>,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Text.
    Text(String),
    /// The model wants a tool.
    ToolUse {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
        /// Its arguments.
        input: Value,
    },
    /// Thinking, images and whatever else there may be.
    Other,
}

/// Tokens, as the API counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Read afresh.
    pub input_tokens: u64,
    /// Written.
    pub output_tokens: u64,
    /// Read from the cache.
    pub cache_read_input_tokens: u64,
    /// Put into the cache.
    pub cache_creation_input_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input_tokens += more.input_tokens;
        self.output_tokens += more.output_tokens;
        self.cache_read_input_tokens += more.cache_read_input_tokens;
        self.cache_creation_input_tokens += more.cache_creation_input_tokens;
    }
}

impl Usage {
    /// Of two counts of one message the higher is the later.
    pub(super) fn rise_to(&mut self, later: Self) {
        self.input_tokens = self.input_tokens.max(later.input_tokens);
        self.output_tokens = self.output_tokens.max(later.output_tokens);
        self.cache_read_input_tokens =
            self.cache_read_input_tokens.max(later.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            self.cache_creation_input_tokens.max(later.cache_creation_input_tokens);
    }
}

/// A `user` frame: what the model was told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    /// Results of tools.
    pub results: Vec<ToolResult>,
    /// Set when it is for a native subagent.
    pub parent_tool_use_id: Option<String>,
}

/// The result of one tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolResult {
    /// Which call.
    pub tool_use_id: String,
    /// Whether it failed or was refused.
    pub is_error: bool,
    /// Its text.
    pub text: String,
}

/// A question of the CLI to its parent.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlRequest {
    /// What the answer must carry.
    pub request_id: String,
    /// The question.
    pub kind: ControlKind,
}

/// The questions that are known.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlKind {
    /// A hook that the parent registered.
    HookCallback {
        /// The id it was registered with.
        callback_id: String,
        /// What a hook gets on its stdin.
        input: Map<String, Value>,
        /// The call it is about.
        tool_use_id: Option<String>,
    },
    /// May this tool be used? (`--permission-prompt-tool stdio`.)
    CanUseTool {
        /// The tool.
        tool_name: String,
        /// Its arguments.
        input: Value,
        /// The call's id.
        tool_use_id: String,
        /// Rules that would allow it.
        suggestions: Vec<Value>,
        /// Why it asks.
        reason: Option<String>,
    },
    /// A JSON-RPC message for a tunnelled MCP server.
    McpMessage {
        /// The server.
        server: String,
        /// The message.
        message: Value,
    },
    /// The line was nested too deeply to be read whole; only what it was is known.
    TooDeep {
        /// `hook_callback`, `can_use_tool`, `mcp_message`, ….
        subtype: String,
        /// For a hook, which one.
        callback_id: String,
    },
    /// Anything else.
    Other {
        /// Its name.
        subtype: String,
    },
}

/// The answer to something the parent asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlReply {
    /// Which question.
    pub request_id: String,
    /// What came back, or why nothing did.
    pub outcome: Result<Value, String>,
}
