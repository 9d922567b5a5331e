//! The language of the `claude` CLI: frames in and out, a turn, hooks, approvals, the MCP tunnel.
//!
//! Everything goes over one pipe of newline-delimited JSON. This folder knows that language and
//! nothing about processes: it works over anything that can be read and written. It decides
//! nothing either; what the CLI asks goes to a [`Parent`], beside the loop that reads.
//!
//! The frames follow what versions 2.1.197 and 2.1.325 were seen to send. Both add types with each
//! release, so what is not known is ignored, and a field of an unexpected shape is an absent one.

mod answers;
mod conversation;
mod fields;
mod frame;
mod lines;
mod observation;
mod outgoing;
mod parent;
mod parse;
mod progress;
mod reader;
mod result;
mod shared;

pub use conversation::{Conversation, Handle, OpenError, Options};
pub use frame::{
    Assistant, Block, ControlKind, ControlReply, ControlRequest, Frame, Init, ServerStatus, System,
    ToolResult, Usage, User,
};
pub use observation::{Observation, summarize_tool};
pub use outgoing::HookEvent;
pub use parent::{Approval, ApprovalRequest, BoxFuture, HookVerdict, Parent, ToolUse};
pub use parse::parse_line;
pub use progress::Progress;
pub use result::{Denial, ModelUsage, ResultFrame, ResultSubtype};
pub use shared::{Ending, TurnEnd};
