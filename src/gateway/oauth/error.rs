//! Errors of a sign-in.

/// Reason why a sign-in failed: one line, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignInError {
    /// The server does not require a sign-in.
    #[error("`{server}` asks for no sign-in: {reason}")]
    NotRequired {
        server: String,
        /// Evidence, for example that the server accepted a request without a token.
        reason: String,
    },
    /// The metadata or response of the server failed a security check.
    #[error("the sign-in of `{server}` is refused: {reason}")]
    Refused {
        server: String,
        /// Failed check.
        reason: String,
    },
    /// The user or the server declined.
    #[error("`{server}` did not grant the sign-in: {reason}")]
    Denied {
        server: String,
        /// Error from the redirect.
        reason: String,
    },
    /// Failed for another reason.
    #[error("signing in to `{server}` failed: {reason}")]
    Failed {
        server: String,
        /// Cause, with secrets redacted.
        reason: String,
    },
    /// The credentials cannot be stored or read.
    #[error("STORE_UNAVAILABLE: {reason}")]
    Store {
        /// The file and its I/O, lock or format error, or the error of the keyring.
        reason: String,
    },
}
