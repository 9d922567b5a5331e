//! OAuth 2.1 towards downstream servers: login, credentials, token refresh.

mod callback;
mod credential_store;
mod credentials;
mod endpoints;
mod error;
mod keyring;
mod login;
mod open_browser;
mod target;
mod token_source;

pub(crate) use credential_store::CredentialStore;
pub(crate) use credentials::SignInStatus;
pub(crate) use error::SignInError;
pub(crate) use login::{CallbackParams, LoginFlow};
pub(crate) use open_browser::open_browser;
pub(crate) use target::SignInTarget;
pub(crate) use token_source::{SignInNeeded, TokenSource};
