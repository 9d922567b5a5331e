//! OAuth 2.1 towards downstream servers: login, credentials, token refresh.

mod callback;
mod credential_store;
mod credentials;
mod endpoints;
mod keyring;
mod login;
mod target;
mod token_source;

pub(crate) use callback::CallbackParams;
pub(crate) use credential_store::CredentialStore;
pub(crate) use credentials::SignInStatus;
pub(crate) use login::{LoginFlow, open_browser};
pub(crate) use target::{SignInError, SignInTarget};
pub(crate) use token_source::{SignInNeeded, TokenSource};
