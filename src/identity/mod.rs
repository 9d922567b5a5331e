//! Who is calling, and how that is known.
//!
//! Claude Code does not tell an MCP server which of its agents calls. Its hooks know: `attestation` is
//! what they say about one call, and `book` keeps that until the call comes. It comes in over the connection itself, or
//! from a hook's process: the two find each other at a `meeting` place, where the `messenger` of the one hands it to
//! the `reception` of the other, or leaves it in an `inbox`.

mod attestation;
#[path = "attestation_registry.rs"]
mod book;
mod caller;
#[path = "spool.rs"]
mod inbox;
#[path = "rendezvous.rs"]
mod meeting;
#[path = "hook_client.rs"]
mod messenger;
#[path = "hook_listener.rs"]
mod reception;
#[path = "token_secret.rs"]
mod token;
#[path = "token_authenticator.rs"]
mod token_book;
#[path = "token_store.rs"]
mod token_file;

pub use attestation::Attestation;
pub use book::{Attestations, Doubt, Way};
pub use caller::{Caller, KnownBy};
pub use meeting::claude_above;
pub use messenger::hand_over;
pub use reception::Reception;
pub use token::{TokenHash, TokenText};
pub use token_book::{Bearer, TokenBook, TokenRefused};
pub use token_file::{TokenEntry, TokenError, TokenFile};
