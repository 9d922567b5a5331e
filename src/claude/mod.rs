//! The language of the `claude` CLI: frames in and out, a turn, hooks, approvals, the MCP tunnel.
//!
//! Everything goes over one pipe of newline-delimited JSON. This folder knows that language and
//! nothing about processes: it works over anything that can be read and written. It decides
//! nothing either; what the CLI asks goes to a [`Parent`], beside the loop that reads.
//!
//! The frames follow what versions 2.1.197 and 2.1.325 were seen to send. Both add types with each
//! release, so what is not known is ignored, and a field of an unexpected shape is an absent one.
//!
//! # What else both versions were seen to do
//!
//! - A tool call is judged in this order: does the tool exist (`--tools`; if not, the model is told so
//!   and nobody is asked), the `PreToolUse` hook, deny rules, allow rules, `can_use_tool`. Rules come by
//!   `--settings` or `--allowedTools` alike; a rule for a tool that `--tools` leaves out gives nothing.
//! - A hook that answers with an *error* counts as no objection: the tool runs. One that does not
//!   answer in time stops the call.
//! - With `--setting-sources ''` no CLAUDE.md, AGENTS.md, rule, skill, agent, command, hook, variable or
//!   permission of the project is used; `.mcp.json` needs `--strict-mcp-config` as well.
//! - `--no-session-persistence` leaves no transcript at all.
//! - The first request with `--tools Bash` and a system prompt of its own has 6.4 KB (2.1.325) and
//!   3.9 KB (2.1.197). `includeGitInstructions: false` in the settings saves 1.3 and 0.45 KB of that,
//!   `CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1` another 0.6 and 0.2. With `--model haiku`, 2.1.197 describes
//!   Bash at length (13 KB) unless `CLAUDE_CODE_SIMPLE_SYSTEM_PROMPT=1` (3.8 KB).
//! - A command that the agent leaves in the background outlives its turn, and its end begins a turn
//!   that nobody asked for; the variable above takes that possibility away.
//! - The agent's shell sees the variables of the CLI, its API key among them.

#[path = "control_requests.rs"]
mod answers;
#[path = "client.rs"]
mod conversation;
#[path = "field_access.rs"]
mod fields;
mod frame;
#[path = "../util/line_reader.rs"]
mod lines;
mod observation;
mod outgoing;
#[path = "control_handler.rs"]
mod parent;
mod parse;
mod price;
mod progress;
mod reader;
mod result;
#[path = "state.rs"]
mod shared;
#[path = "turn_cost.rs"]
mod spending;

pub use conversation::{Conversation, Handle, OpenError, Options};
pub use frame::{
    Assistant, Block, ControlKind, ControlReply, ControlRequest, Frame, Init, ServerStatus, System,
    ToolResult, Usage, User,
};
pub use observation::{Observation, summarize_tool};
pub use outgoing::HookEvent;
pub use parent::{ANSWER_TOOL, Approval, ApprovalRequest, BoxFuture, HookVerdict, Parent, ToolUse};
pub use parse::parse_line;
pub use progress::Progress;
pub use result::{Denial, ModelUsage, ResultFrame, ResultSubtype};
pub use shared::{Ending, TurnEnd};
