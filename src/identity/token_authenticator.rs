//! Authentication of bearer tokens against `data/tokens.json`.

use std::path::Path;

use super::caller::{Caller, KnownBy};
use super::token_secret::TokenHash;
use super::token_store::{TokenError, TokenStore};
use crate::util::{Timestamp, now};

/// Maps bearer tokens to callers.
///
/// Checks the file's version for each request (one `stat`, blocks on disk), so a revoked token is rejected by the next
/// request.
#[derive(Debug)]
pub(crate) struct TokenAuthenticator {
    store: TokenStore,
}

/// The caller authenticated by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bearer {
    /// Caller with the name that the token was created for.
    pub caller: Caller,
    pub token_id: String,
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

impl TokenAuthenticator {
    pub(crate) fn open(data_dir: &Path) -> Self {
        Self { store: TokenStore::new(data_dir) }
    }

    /// Returns the number of tokens that have not expired.
    pub(crate) fn unexpired_count(&self) -> Result<usize, TokenError> {
        let (at, table) = (now(), self.store.read()?);
        let entries = table.iter().flat_map(|table| &table.tokens);
        Ok(entries.filter(|entry| !entry.is_expired(at)).count())
    }

    /// Authenticates a token. Compares with every entry, so that the time does not reveal which one matched.
    pub(crate) fn authenticate(&self, text: &str) -> Result<Bearer, TokenRejection> {
        self.authenticate_at(text, now())
    }

    fn authenticate_at(&self, text: &str, at: Timestamp) -> Result<Bearer, TokenRejection> {
        let hash = TokenHash::of(text);
        let table = self
            .store
            .read()
            .map_err(|error| TokenRejection::Unavailable { reason: error.without_content() })?;
        let entries = table.iter().flat_map(|table| &table.tokens);
        let fitting = entries.fold(None, |found, entry| match entry.hash == hash {
            true => Some(entry),
            false => found,
        });
        match fitting {
            None => Err(TokenRejection::Unknown),
            Some(entry) if entry.is_expired(at) => Err(TokenRejection::Expired),
            Some(entry) => Ok(Bearer {
                caller: Caller::new(entry.caller.as_str(), KnownBy::Token),
                token_id: entry.id.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn j2_a_token_names_its_caller_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let (file, book) = (TokenStore::new(dir.path()), TokenAuthenticator::open(dir.path()));
        let (entry, text) = file.add("bot", None).unwrap();
        file.add("ci", None).unwrap();
        let bearer = book.authenticate(text.expose()).unwrap();
        assert_eq!(bearer.caller, Caller::new("bot", KnownBy::Token));
        assert_eq!(book.authenticate("adjutant_nonsense"), Err(TokenRejection::Unknown));
        file.revoke(&entry.id).unwrap();
        assert_eq!(book.authenticate(text.expose()), Err(TokenRejection::Unknown));
        assert_eq!(book.unexpired_count().unwrap(), 1);
    }

    #[test]
    fn a_token_expires() {
        let dir = tempfile::tempdir().unwrap();
        let (file, book) = (TokenStore::new(dir.path()), TokenAuthenticator::open(dir.path()));
        let (entry, text) = file.add("bot", Some(Duration::from_mins(1))).unwrap();
        assert!(book.authenticate_at(text.expose(), entry.created).is_ok());
        let end = entry.expires.unwrap();
        assert_eq!(book.authenticate_at(text.expose(), end), Err(TokenRejection::Expired));
    }

    #[test]
    fn an_unreadable_file_rejects_every_token() {
        let dir = tempfile::tempdir().unwrap();
        let (file, book) = (TokenStore::new(dir.path()), TokenAuthenticator::open(dir.path()));
        let (_, text) = file.add("bot", None).unwrap();
        assert!(book.authenticate(text.expose()).is_ok());
        let path = dir.path().join("tokens.json");
        let secret = r#"{"format": 1, "secret": ["#;
        for (content, reason) in [
            (secret, "line 1 is not valid"),
            (r#"{"format": 2}"#, "it was written by a newer Adjutant"),
        ] {
            fs::write(&path, content).unwrap();
            let refused = TokenRejection::Unavailable { reason: reason.to_owned() };
            assert_eq!(book.authenticate(text.expose()), Err(refused.clone()));
            assert_eq!(book.authenticate("adjutant_nonsense"), Err(refused));
            assert!(book.unexpired_count().is_err());
        }
    }
}
