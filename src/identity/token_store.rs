//! `data/tokens.json`: the bearer tokens of a project. Contains hashes, never a secret.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::caller::{Caller, KnownBy};
use super::token_secret::{TokenHash, TokenSecret};
use crate::store::{Document, DocumentError, FormatNumber, Stored};
use crate::util::{Timestamp, now};

/// The limit for agent names in the gateway's rules.
const MAX_CALLER_LEN: usize = 128;

/// A stored token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenEntry {
    /// Id shown by `token list` and used by `token revoke`.
    pub id: String,
    /// Name of the caller that the token authenticates.
    pub caller: String,
    pub hash: TokenHash,
    pub created: Timestamp,
    /// Time from which on the token is rejected; `None` for a token that does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

impl TokenEntry {
    pub(crate) fn is_expired(&self, at: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= at)
    }
}

/// The content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenTable {
    format: FormatNumber<1>,
    pub(crate) tokens: Vec<TokenEntry>,
}

impl Stored for TokenTable {
    const FORMAT: u32 = 1;
    const MAX_BYTES: u64 = 4 << 20;

    fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// The file with the tokens of one project. Methods block on disk; changes also on the lock, for at most 5 s.
#[derive(Debug)]
pub(crate) struct TokenStore {
    document: Document<TokenTable>,
}

impl TokenStore {
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self { document: Document::new(data_dir.join("tokens.json")) }
    }

    /// Returns all tokens; `None` if there is no file. Waits for no lock.
    pub(crate) fn read(&self) -> Result<Option<Arc<TokenTable>>, TokenError> {
        self.document.read().map_err(|error| self.unavailable(error))
    }

    /// Creates a token for a caller and returns its secret, which is not stored.
    pub(crate) fn add(
        &self,
        caller: &str,
        lifetime: Option<Duration>,
    ) -> Result<(TokenEntry, TokenSecret), TokenError> {
        check_caller(caller)?;
        let created = now();
        let expires = lifetime.map(|lifetime| created.checked_add(lifetime)).transpose();
        let text = TokenSecret::random();
        let entry = TokenEntry {
            id: Uuid::new_v4().simple().to_string().chars().take(8).collect(),
            caller: caller.to_owned(),
            hash: text.hash(),
            created,
            expires: expires.map_err(|_| TokenError::LifetimeTooLong)?,
        };
        self.update(|tokens| tokens.push(entry.clone()))?;
        Ok((entry, text))
    }

    /// Revokes the token with this id, or all tokens of the caller with this name, and returns them.
    pub(crate) fn revoke(&self, which: &str) -> Result<Vec<TokenEntry>, TokenError> {
        self.update(|tokens| {
            tokens.extract_if(.., |entry| entry.id == which || entry.caller == which).collect()
        })
    }

    /// Returns the number of tokens that have not expired.
    pub(crate) fn unexpired_count(&self) -> Result<usize, TokenError> {
        let (at, table) = (now(), self.read()?);
        let entries = table.iter().flat_map(|table| &table.tokens);
        Ok(entries.filter(|entry| !entry.is_expired(at)).count())
    }

    /// Returns the caller that a token was created for.
    ///
    /// Compares with every entry, so that the time does not reveal which one matched. Checks the file's version for each
    /// request (one `stat`), so a revoked token is rejected by the next request.
    pub(crate) fn authenticate(&self, text: &str) -> Result<Caller, TokenRejection> {
        self.authenticate_at(text, now())
    }

    fn authenticate_at(&self, text: &str, at: Timestamp) -> Result<Caller, TokenRejection> {
        let hash = TokenHash::of(text);
        let unavailable =
            |error: TokenError| TokenRejection::Unavailable { reason: error.without_content() };
        let table = self.read().map_err(unavailable)?;
        let entries = table.iter().flat_map(|table| &table.tokens);
        let fitting = entries.fold(None, |found, entry| match entry.hash == hash {
            true => Some(entry),
            false => found,
        });
        match fitting {
            None => Err(TokenRejection::Unknown),
            Some(entry) if entry.is_expired(at) => Err(TokenRejection::Expired),
            Some(entry) => Ok(Caller::new(entry.caller.as_str(), KnownBy::Token)),
        }
    }

    fn update<R>(&self, change: impl FnOnce(&mut Vec<TokenEntry>) -> R) -> Result<R, TokenError> {
        let changed = self.document.update(|table| change(&mut table.tokens));
        changed.map_err(|error| self.unavailable(error))
    }

    fn unavailable(&self, error: DocumentError) -> TokenError {
        let path = self.document.path().to_path_buf();
        match error {
            source @ (DocumentError::Write(_) | DocumentError::Busy { .. }) => {
                TokenError::Unwritable { path, source }
            }
            reason @ (DocumentError::Read(_)
            | DocumentError::Unreadable(_)
            | DocumentError::Newer { .. }) => TokenError::Unreadable { path, reason },
        }
    }
}

/// Allows the characters of agent ids in the gateway's rules: the name appears in rules, lists and logs.
fn check_caller(caller: &str) -> Result<(), TokenError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if caller.is_empty() || caller.len() > MAX_CALLER_LEN || !caller.chars().all(fits) {
        return Err(TokenError::InvalidCaller { caller: caller.chars().take(80).collect() });
    }
    Ok(())
}

/// Reasons why a token is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenRejection {
    /// The token was never created, or was revoked.
    Unknown,
    Expired,
    /// The file cannot be read, so no token is valid.
    Unavailable {
        /// Reason without the file's path and content: it is for callers whose token is not checked.
        reason: String,
    },
}

/// Errors of reading or changing the tokens.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// The file is too large, is not valid JSON, has unknown keys or another format.
    #[error(
        "`{}` cannot be read: {}; nobody is let in until it can (move it away to start over)",
        path.display(), reason_text(reason)
    )]
    Unreadable { path: PathBuf, reason: DocumentError },
    /// The disk refuses the change, or another process holds the lock of the file.
    #[error("`{}` cannot be written", path.display())]
    Unwritable {
        path: PathBuf,
        #[source]
        source: DocumentError,
    },
    /// The name is empty, longer than 128 bytes or has other characters.
    #[error(
        "`{caller}` cannot be a caller's name: use letters, digits, `-`, `_` and `.`, at most 128"
    )]
    InvalidCaller { caller: String },
    /// The expiry time is outside the range of timestamps.
    #[error("a token cannot live that long; leave --expires out for one that does not expire")]
    LifetimeTooLong,
}

impl TokenError {
    /// Returns the reason without the file's path and content.
    pub(crate) fn without_content(&self) -> String {
        match self {
            Self::Unreadable { reason: error, .. } | Self::Unwritable { source: error, .. } => {
                error.without_content()
            }
            Self::InvalidCaller { .. } | Self::LifetimeTooLong => self.to_string(),
        }
    }
}

fn reason_text(error: &DocumentError) -> String {
    match error {
        DocumentError::Newer { found } => format!("it has format {found}"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use test_case::test_case;

    fn file() -> (tempfile::TempDir, TokenStore) {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenStore::new(&dir.path().join("data"));
        (dir, file)
    }

    #[test]
    fn j2_only_the_hash_is_kept_and_only_the_owner_reads_it() {
        let (_dir, file) = file();
        let (entry, text) = file.add("bot", None).unwrap();
        let path = file.document.path();
        let stored = fs::read_to_string(path).unwrap();
        assert!(!stored.contains(text.expose()));
        assert!(stored.contains(&entry.hash.to_string()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(path), mode(path.parent().unwrap())), (0o600, 0o700));
    }

    #[test]
    fn a_token_is_revoked_by_its_id_and_all_of_a_caller_by_the_name() {
        let (_dir, file) = file();
        let (first, _) = file.add("bot", None).unwrap();
        file.add("bot", None).unwrap();
        file.add("ci", Some(Duration::from_mins(1))).unwrap();
        assert_eq!(file.revoke(&first.id).unwrap(), [first]);
        assert_eq!(file.revoke("bot").unwrap().len(), 1);
        assert_eq!(file.revoke("nobody").unwrap(), []);
        let left = file.read().unwrap().unwrap();
        assert_eq!(
            left.tokens.iter().map(|entry| entry.caller.as_str()).collect::<Vec<_>>(),
            ["ci"]
        );
    }

    #[test]
    fn concurrent_additions_are_not_lost() {
        let (_dir, file) = file();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = &file;
                scope.spawn(move || file.add(&format!("bot-{number}"), None).unwrap());
            }
        });
        assert_eq!(file.read().unwrap().unwrap().tokens.len(), 8);
    }

    #[test_case(""; "empty")]
    #[test_case("a b"; "space")]
    #[test_case("a\nb"; "line feed")]
    #[test_case("*"; "wildcard")]
    #[test_case("../x"; "path")]
    fn invalid_caller_names_are_rejected(caller: &str) {
        let (_dir, file) = file();
        assert!(matches!(file.add(caller, None), Err(TokenError::InvalidCaller { .. })));
    }

    #[test_case("{"; "torn")]
    #[test_case("{\"format\":2,\"tokens\":[]}"; "newer")]
    #[test_case("{\"format\":1,\"tokens\":[],\"admin\":true}"; "unknown key")]
    fn an_invalid_file_is_an_error_and_is_kept(text: &str) {
        let (_dir, file) = file();
        let path = file.document.path();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        assert!(file.read().is_err() && file.add("bot", None).is_err());
        assert_eq!(fs::read_to_string(path).unwrap(), text);
    }

    #[test]
    fn j2_a_token_names_its_caller_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let (file, server) = (TokenStore::new(dir.path()), TokenStore::new(dir.path()));
        let (entry, text) = file.add("bot", None).unwrap();
        file.add("ci", None).unwrap();
        let caller = server.authenticate(text.expose()).unwrap();
        assert_eq!(caller, Caller::new("bot", KnownBy::Token));
        assert_eq!(server.authenticate("adjutant_nonsense"), Err(TokenRejection::Unknown));
        file.revoke(&entry.id).unwrap();
        assert_eq!(server.authenticate(text.expose()), Err(TokenRejection::Unknown));
        assert_eq!(server.unexpired_count().unwrap(), 1);
    }

    #[test]
    fn a_token_expires() {
        let dir = tempfile::tempdir().unwrap();
        let (file, server) = (TokenStore::new(dir.path()), TokenStore::new(dir.path()));
        let (entry, text) = file.add("bot", Some(Duration::from_mins(1))).unwrap();
        assert!(server.authenticate_at(text.expose(), entry.created).is_ok());
        let end = entry.expires.unwrap();
        assert_eq!(server.authenticate_at(text.expose(), end), Err(TokenRejection::Expired));
    }

    #[test]
    fn an_unreadable_file_rejects_every_token() {
        let dir = tempfile::tempdir().unwrap();
        let (file, server) = (TokenStore::new(dir.path()), TokenStore::new(dir.path()));
        let (_, text) = file.add("bot", None).unwrap();
        assert!(server.authenticate(text.expose()).is_ok());
        let path = dir.path().join("tokens.json");
        let secret = r#"{"format": 1, "secret": ["#;
        for (content, reason) in [
            (secret, "line 1 is not valid"),
            (r#"{"format": 2}"#, "it was written by a newer Adjutant"),
        ] {
            fs::write(&path, content).unwrap();
            let refused = TokenRejection::Unavailable { reason: reason.to_owned() };
            assert_eq!(server.authenticate(text.expose()), Err(refused.clone()));
            assert_eq!(server.authenticate("adjutant_nonsense"), Err(refused));
            assert!(server.unexpired_count().is_err());
        }
    }
}
