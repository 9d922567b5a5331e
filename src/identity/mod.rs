//! Caller identity: bearer tokens for HTTP, attestations by Claude Code hooks for stdio.
//!
//! Claude Code does not tell an MCP server which of its agents calls, but its hooks are told. A hook's statement about
//! one call is an [`Attestation`]; [`AttestationRegistry`] keeps it until the call arrives. It comes over the MCP
//! connection or from a hook process: both sides find the same private directory, in which the hook sends it to a
//! socket of [`HookListener`] or, if there is no socket, writes a file to a spool directory.

mod attestation;
mod attestation_registry;
mod caller;
mod hook_client;
mod hook_listener;
mod rendezvous;
mod token_secret;
mod token_store;

pub use caller::{Caller, KnownBy};

pub(crate) use attestation::Attestation;
pub(crate) use attestation_registry::{AttestationChannel, AttestationError, AttestationRegistry};
pub(crate) use hook_client::send_attestation;
pub(crate) use hook_listener::HookListener;
pub(crate) use rendezvous::{claude_ancestor, runtime_dir};
pub(crate) use token_store::{TokenEntry, TokenError, TokenRejection, TokenStore};
