//! What is kept of a sign-in: what people may see, and the secrets beside it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rmcp::transport::auth::StoredCredentials;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::Timestamp;

/// The number of the format; a newer one is not touched.
pub(super) const FORMAT: u32 = 1;
/// A token is renewed this long before it expires, or earlier than a quarter of its life.
const AHEAD: Duration = Duration::from_mins(1);

/// One sign-in as it lies on the disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub(super) format: u32,
    /// The project it was made in: another project has its own.
    pub project: PathBuf,
    /// The server's name.
    pub server: String,
    /// The agent, where it is one agent's alone.
    pub agent: Option<String>,
    /// The server's address, as written.
    pub url: String,
    /// Who issued the token.
    pub issuer: Option<String>,
    /// The client that was signed in.
    pub client_id: String,
    /// What was granted.
    pub scopes: Vec<String>,
    /// When the token came.
    pub issued_at: Timestamp,
    /// When it expires, if it does.
    pub expires_at: Option<Timestamp>,
    /// Whether it can be renewed without a person.
    pub renewable: bool,
    /// Why it can no longer be used, if so.
    pub ended: Option<String>,
    /// Where the secrets are.
    pub(super) kept_in: KeptIn,
    /// The secrets, where they are kept in the file.
    pub(super) secrets: Option<Secrets>,
}

/// Where secrets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeptIn {
    /// In the record itself.
    File,
    /// In the keyring of the desktop.
    Keyring,
}

/// What nobody may see.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Secrets {
    /// The answer of the token endpoint, with what the protocol's library keeps beside it.
    pub(super) credentials: Value,
    /// The secret that came with a registration of our own; a configured one is never written.
    pub(super) client_secret: Option<String>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

impl Secrets {
    pub(super) fn access_token(&self) -> Option<&str> {
        self.token("access_token")
    }

    pub(super) fn token(&self, name: &str) -> Option<&str> {
        self.credentials.get("token_response")?.get(name)?.as_str()
    }

    /// As the protocol's library wants it.
    pub(super) fn stored(&self) -> Option<StoredCredentials> {
        serde_json::from_value(self.credentials.clone()).ok()
    }
}

/// How a sign-in stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It works, or renews itself.
    SignedIn,
    /// The token is over and cannot be renewed.
    Expired,
    /// The server refused to renew it.
    Ended,
}

impl Record {
    /// How it stands at `now`.
    pub fn standing(&self, now: Timestamp) -> Standing {
        if self.ended.is_some() {
            Standing::Ended
        } else if self.has_expired(now) && !self.renewable {
            Standing::Expired
        } else {
            Standing::SignedIn
        }
    }

    /// Where its secrets are, in words.
    pub fn kept_in(&self) -> &'static str {
        match self.kept_in {
            KeptIn::File => "file",
            KeptIn::Keyring => "keyring",
        }
    }

    /// Whether the token can no longer be used.
    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| now >= end)
    }

    /// Whether the token should be renewed before it is used again.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let Some(end) = self.expires_at else { return false };
        let life = Duration::try_from(end.duration_since(self.issued_at)).unwrap_or_default();
        let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
        left <= AHEAD.min(life / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn record(life: i64) -> Record {
        let issued_at = Timestamp::from_second(1_000_000).unwrap();
        Record {
            format: FORMAT,
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
            kept_in: KeptIn::File,
            secrets: None,
        }
    }

    #[test_case(3_600, 3_000, false)]
    #[test_case(3_600, 3_541, true; "a minute ahead")]
    #[test_case(40, 29, false; "a short life is not all renewal")]
    #[test_case(40, 30, true)]
    #[test_case(0, 0, true)]
    #[test_case(3_600, 9_999, true; "long over")]
    fn a_token_is_renewed_ahead_of_its_end(life: i64, after: i64, due: bool) {
        let now = Timestamp::from_second(1_000_000 + after).unwrap();
        assert_eq!(record(life).is_due(now), due);
    }

    #[test]
    fn a_record_prints_no_secret() {
        let credentials = serde_json::json!({"token_response": {"access_token": "s3cret-token"}});
        let secrets = Secrets { credentials, client_secret: Some("s3cret-client".to_owned()) };
        assert_eq!(secrets.access_token(), Some("s3cret-token"));
        let record = Record { secrets: Some(secrets), ..record(1) };
        assert!(!format!("{record:?}").contains("s3cret"));
    }
}
