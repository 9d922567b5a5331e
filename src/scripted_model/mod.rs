//! A scripted Messages API on loopback, for `adjutant demo` and the tests. `serve` never uses it.

mod messages;
mod reply;
mod script;
mod server;

pub use messages::{ScriptedMessage, ScriptedToolCall};
pub use reply::ModelReply;
pub use server::ScriptedModel;
