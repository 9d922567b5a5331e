//! Stream-json protocol of the `claude` CLI: frames, turns, hooks, permissions, SDK MCP servers.
//!
//! The protocol is newline-delimited JSON over stdin and stdout. This folder works over any `AsyncRead` and
//! `AsyncWrite` and starts no process. It decides nothing: control requests go to a [`ControlHandler`], each in a task
//! of its own beside the reader.
//!
//! Frames follow the observed output of versions 2.1.197 and 2.1.325. Every release adds types, so unknown types are
//! ignored and a field of an unexpected type counts as absent.
//!
//! # Behaviour observed in both versions
//!
//! - A tool call is checked in this order: the tool exists (`--tools`; if not, only the model is told), the
//!   `PreToolUse` hook, deny rules, allow rules, `can_use_tool`. `--settings` and `--allowedTools` rules are
//!   equivalent; a rule for a tool that `--tools` leaves out grants nothing.
//! - A hook callback answered with an *error* does not block: the tool runs. A hook callback that times out blocks the
//!   call.
//! - With `--setting-sources ''` no CLAUDE.md, AGENTS.md, rule, skill, agent, command, hook, variable or permission of
//!   the project is used; `.mcp.json` needs `--strict-mcp-config` as well.
//! - `--no-session-persistence` writes no transcript.
//! - The first request with `--tools Bash` and a custom system prompt has 6.4 KB (2.1.325) or 3.9 KB (2.1.197).
//!   `includeGitInstructions: false` in the settings saves 1.3 and 0.45 KB of that,
//!   `CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1` another 0.6 and 0.2. With `--model haiku`, 2.1.197 describes Bash in 13
//!   KB unless `CLAUDE_CODE_SIMPLE_SYSTEM_PROMPT=1` (3.8 KB).
//! - A command left in the background outlives its turn, and its exit starts a turn without a prompt;
//!   `CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1` prevents both.
//! - The agent's shell inherits the environment of the CLI, including its API key.

mod client;
mod control_handler;
mod control_requests;
mod field_access;
mod frame;
mod observation;
mod outgoing;
mod parse;
mod price;
mod progress;
mod reader;
mod result;
mod state;
mod turn_cost;

pub use client::{ClaudeClient, ClientOptions, OpenError};
pub use control_handler::{
    BoxFuture, ControlHandler, HookDecision, PermissionAnswer, PermissionRequest, ToolUse,
};
pub use observation::Observation;
pub use outgoing::HookEvent;
pub use result::{ResultFrame, ResultSubtype};
pub use state::{TurnEnd, TurnResult};

pub(crate) use client::ClaudeHandle;
pub(crate) use control_handler::STRUCTURED_OUTPUT_TOOL;
pub(crate) use frame::{InitFrame, MessageBlock, OutputFrame, TokenUsage, ToolResult};
pub(crate) use observation::summarize_tool;
pub(crate) use parse::parse_line;
pub(crate) use progress::TurnProgress;
