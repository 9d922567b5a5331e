//! Why a sign-in did not come about.

/// One line, without secrets, with a way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignInFailed {
    /// There is nothing to sign in to.
    #[error("`{server}` asks for no sign-in: {reason}")]
    NotAsked {
        /// The server.
        server: String,
        /// How that is known.
        reason: String,
    },
    /// What the server says about its sign-in is refused.
    #[error("the sign-in of `{server}` is refused: {reason}")]
    Refused {
        /// The server.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The person, or the server, said no.
    #[error("`{server}` did not grant the sign-in: {reason}")]
    Denied {
        /// The server.
        server: String,
        /// What it said.
        reason: String,
    },
    /// It cannot be done here and now.
    #[error("signing in to `{server}` failed: {reason}")]
    Failed {
        /// The server.
        server: String,
        /// Why.
        reason: String,
    },
    /// What was signed in cannot be kept or found.
    #[error("the sign-ins cannot be kept: {reason}")]
    Store {
        /// Why.
        reason: String,
    },
}
