//! A model that does what the prompt says, word for word, on loopback and at no cost.
//!
//! It speaks enough of the Messages API that the real `claude` cannot tell it from a model, so
//! that tests and `adjutant demo` run the real binary with no account and no internet:
//! `ANTHROPIC_BASE_URL` is [`ScriptedModel::base_url`], `ANTHROPIC_API_KEY` is anything.
//!
//! The newest user text that has a script in it is followed, one step a line; other lines, around
//! and between, mean nothing:
//!
//! ```text
//! SAY text                      says it; `SAY "a\nb"` takes a JSON string
//! CALL tool {"a": 1}            calls a tool, and goes on when its result is there
//! PAR a {} ;; b {}              calls several at once
//! SLEEP 1.5                     waits before what follows
//! USAGE 100 20                  says that so many tokens were read and written
//! FAIL 529 x2                   fails twice with this HTTP status, then goes on; without `x2`, always;
//!                               with `final`, the client is told not to try again
//! ```
//!
//! What is said before a call goes with it in one message. After the last call the answer is what
//! the tools gave. Nothing is remembered between requests (the conversation is in each of them), so
//! any number of conversations can run at once.

#[path = "../scripted_model/messages.rs"]
mod messages;
#[path = "../scripted_model/reply.rs"]
mod reply;
#[path = "../scripted_model/script.rs"]
mod script;
#[path = "../scripted_model/server.rs"]
mod server;

pub use messages::{Message, ToolCall};
pub use reply::Reply;
pub use server::{RecordedRequest, ScriptedModel};
