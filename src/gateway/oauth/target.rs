//! Target of a sign-in: server, project and agent; errors of a sign-in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Url;

use super::credential_store::{CredentialFile, CredentialLabel, CredentialStore};
use super::credentials::CredentialRecord;
use crate::catalog::{OAuthConfig, ServerLaunch};
use crate::gateway::config::{HttpEndpoint, ServerEndpoint, ServerSpec, resolve};
use crate::util::Redactor;

/// A server with resolved variables and its credential file.
pub(crate) struct SignInTarget {
    pub(crate) server: String,
    pub(crate) agent: Option<String>,
    pub(crate) project: PathBuf,
    pub(crate) url: Url,
    pub(crate) written_url: String,
    pub(crate) endpoint: HttpEndpoint,
    pub(crate) oauth: OAuthConfig,
    pub(crate) secrets: Redactor,
    pub(crate) credential_file: CredentialFile,
}

impl SignInTarget {
    /// Resolves the server of `spec` in the project at `root`; `agent` if the sign-in is for one agent.
    pub(crate) fn new(
        root: &Path,
        spec: &ServerSpec,
        agent: Option<&str>,
    ) -> Result<Self, SignInError> {
        let failed = |reason: String| SignInError::Failed { server: spec.name.clone(), reason };
        let ServerLaunch::Http { url: written, .. } = &spec.launch else {
            let reason = "it is a program on this machine".to_owned();
            return Err(SignInError::NotRequired { server: spec.name.clone(), reason });
        };
        let (resolved, secrets) = resolve(spec, root).map_err(failed)?;
        let ServerEndpoint::Http(network) = resolved else {
            return Err(failed("it is no server on the network".to_owned()));
        };
        if network.has_own_authorization() {
            let reason = "its entry has an `Authorization` header of its own".to_owned();
            return Err(SignInError::NotRequired { server: spec.name.clone(), reason });
        }
        let url =
            Url::parse(&network.url).map_err(|_| failed("its `url` is malformed".to_owned()))?;
        let drawers = CredentialStore::of_user().map_err(|reason| SignInError::Store { reason })?;
        let label = CredentialLabel { project: root, server: &spec.name, agent, url: &network.url };
        Ok(Self {
            server: spec.name.clone(),
            agent: agent.map(str::to_owned),
            project: root.to_path_buf(),
            credential_file: drawers.credential_file(label),
            url,
            written_url: written.as_written().to_owned(),
            endpoint: network,
            oauth: spec.oauth.clone(),
            secrets,
        })
    }

    /// Returns the stored sign-in without its secrets.
    pub(crate) fn record(&self) -> Result<Option<Arc<CredentialRecord>>, SignInError> {
        self.credential_file.record().map_err(|reason| SignInError::Store { reason })
    }

    /// Deletes the sign-in; returns true if there was one.
    pub(crate) async fn forget(&self) -> Result<bool, SignInError> {
        let store = |reason| SignInError::Store { reason };
        let lock = self.credential_file.lock().await.map_err(store)?;
        self.credential_file.clear(&lock).await.map_err(store)
    }

    /// Returns the command to sign in.
    pub(crate) fn login_command(&self) -> String {
        command(&self.server, self.agent.as_deref())
    }
}

/// Formats the command to sign in.
fn command(server: &str, agent: Option<&str>) -> String {
    let agent = agent.map(|agent| format!(" --agent {}", shell_quote(agent))).unwrap_or_default();
    format!("adjutant auth login {}{agent}", shell_quote(server))
}

/// Quotes a word for a POSIX shell: names come from files, and users copy the command.
fn shell_quote(word: &str) -> String {
    let plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':' | '@');
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_quoted_for_a_shell() {
        assert_eq!(command("linear", None), "adjutant auth login linear");
        assert_eq!(command("x", Some("dev")), "adjutant auth login x --agent dev");
        assert_eq!(command("a; rm 'x'", None), r"adjutant auth login 'a; rm '\''x'\'''");
    }
}
