//! Stored credentials of a sign-in: public part and secrets.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rmcp::transport::auth::StoredCredentials;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::FormatNumber;
use crate::util::Timestamp;

/// A token is refreshed 1 min before it expires, or a quarter of its lifetime if that is shorter.
const REFRESH_MARGIN: Duration = Duration::from_mins(1);

/// One sign-in as stored on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CredentialRecord {
    pub(crate) format: FormatNumber<1>,
    /// Project in which the sign-in was made; other projects do not share it.
    pub project: PathBuf,
    pub server: String,
    /// Agent, if only one agent uses the sign-in.
    pub agent: Option<String>,
    /// URL of the server, as written.
    pub url: String,
    /// Issuer of the token.
    pub issuer: Option<String>,
    pub client_id: String,
    /// Granted scopes.
    pub scopes: Vec<String>,
    pub issued_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// Set if there is a refresh token.
    pub renewable: bool,
    /// Reason why the sign-in can no longer be used, if so.
    pub ended: Option<String>,
    pub(crate) kept_in: SecretStorage,
    /// Secrets, if stored in the file.
    pub(crate) secrets: Option<CredentialSecrets>,
}

/// Storage of the secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SecretStorage {
    /// In this file.
    File,
    /// In the desktop keyring.
    Keyring,
}

/// Tokens and client secret.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct CredentialSecrets {
    /// Token response and the data that the OAuth library stores with it.
    pub(crate) credentials: Value,
    /// Secret of a client that we registered; a configured secret is never stored.
    pub(crate) client_secret: Option<String>,
}

impl fmt::Debug for CredentialSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

impl CredentialSecrets {
    pub(crate) fn access_token(&self) -> Option<&str> {
        self.token("access_token")
    }

    pub(crate) fn token(&self, name: &str) -> Option<&str> {
        self.credentials.get("token_response")?.get(name)?.as_str()
    }

    /// Returns the credentials in the format of the OAuth library.
    pub(crate) fn to_stored_credentials(&self) -> Option<StoredCredentials> {
        serde_json::from_value(self.credentials.clone()).ok()
    }
}

/// Status of a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SignInStatus {
    /// Usable, or refreshed when needed.
    SignedIn,
    /// Expired without a refresh token.
    Expired,
    /// The server rejected a refresh.
    Ended,
}

impl CredentialRecord {
    /// Returns the status at `now`.
    pub(crate) fn status(&self, now: Timestamp) -> SignInStatus {
        if self.ended.is_some() {
            SignInStatus::Ended
        } else if self.has_expired(now) && !self.renewable {
            SignInStatus::Expired
        } else {
            SignInStatus::SignedIn
        }
    }

    /// Returns the storage of the secrets, for display.
    pub(crate) fn storage_name(&self) -> &'static str {
        match self.kept_in {
            SecretStorage::File => "file",
            SecretStorage::Keyring => "keyring",
        }
    }

    /// Returns true if the access token has expired.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| now >= end)
    }

    /// Returns true if the token should be refreshed before its next use.
    pub(crate) fn needs_refresh(&self, now: Timestamp) -> bool {
        let Some(end) = self.expires_at else { return false };
        let life = Duration::try_from(end.duration_since(self.issued_at)).unwrap_or_default();
        let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
        left <= REFRESH_MARGIN.min(life / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn record(life: i64) -> CredentialRecord {
        let issued_at = Timestamp::from_second(1_000_000).unwrap();
        CredentialRecord {
            format: FormatNumber,
            project: "/p".into(),
            server: "far".to_owned(),
            agent: None,
            url: "https://far/mcp".to_owned(),
            issuer: None,
            client_id: "c".to_owned(),
            scopes: Vec::new(),
            issued_at,
            expires_at: Some(Timestamp::from_second(1_000_000 + life).unwrap()),
            renewable: false,
            ended: None,
            kept_in: SecretStorage::File,
            secrets: None,
        }
    }

    #[test_case(3_600, 3_000, false)]
    #[test_case(3_600, 3_541, true; "a minute ahead")]
    #[test_case(40, 29, false; "a short life is not all renewal")]
    #[test_case(40, 30, true)]
    #[test_case(0, 0, true)]
    #[test_case(3_600, 9_999, true; "long over")]
    fn a_token_is_refreshed_before_it_expires(life: i64, after: i64, due: bool) {
        let now = Timestamp::from_second(1_000_000 + after).unwrap();
        assert_eq!(record(life).needs_refresh(now), due);
    }

    #[test]
    fn a_record_prints_no_secret() {
        let credentials = serde_json::json!({"token_response": {"access_token": "s3cret-token"}});
        let secrets =
            CredentialSecrets { credentials, client_secret: Some("s3cret-client".to_owned()) };
        assert_eq!(secrets.access_token(), Some("s3cret-token"));
        let record = CredentialRecord { secrets: Some(secrets), ..record(1) };
        assert!(!format!("{record:?}").contains("s3cret"));
    }
}
