//! Signing in to servers on the network: OAuth 2.1 as the MCP specification has it.
//!
//! A person signs in once ([`Attempt`]); what comes of it lies in a [`Drawer`]; every connection takes
//! its token from there through a [`Keeper`], which renews it in time, once for all processes. Nothing
//! here waits for a person except an `Attempt`, and no token is in any message or log.

#[path = "../oauth/login.rs"]
mod attempt;
#[path = "../oauth/callback.rs"]
mod callback;
#[path = "../oauth/authorized_client.rs"]
mod client;
#[path = "../oauth/credential_store.rs"]
mod drawer;
#[path = "../oauth/endpoints.rs"]
mod endpoints;
#[path = "../oauth/error.rs"]
mod failure;
#[path = "../oauth/token_source.rs"]
mod keeper;
#[path = "../oauth/keyring.rs"]
mod keyring;
#[path = "../oauth/open_browser.rs"]
mod opening;
#[path = "../oauth/credentials.rs"]
mod record;
mod settings;
#[path = "../oauth/target.rs"]
mod target;

pub use attempt::{Answer, Attempt};
pub use drawer::Drawers;
pub use failure::SignInFailed;
pub use opening::open_browser;
pub use record::{Record, Standing};
pub use target::SignInTarget;

pub(super) use client::SignedClient;
pub(super) use drawer::Stamp;
pub(super) use keeper::{Keeper, SignInNeeded};
pub(super) use settings::read_sign_in;
