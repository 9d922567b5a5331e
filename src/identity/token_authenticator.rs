//! The tokens in force, as a server asks for them: it follows the file.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::caller::{Caller, KnownBy};
use super::token::TokenHash;
use super::token_file::{TokenEntry, TokenFile};
use crate::base::{Timestamp, now};

/// Who a token lets in. Looks at the file's stamp with every question, so that a revoked token is refused by the
/// next request, whoever revoked it.
#[derive(Debug)]
pub struct TokenBook {
    file: TokenFile,
    read: ArcSwap<Reading>,
}

#[derive(Debug)]
struct Reading {
    stamp: Option<Stamp>,
    entries: Vec<TokenEntry>,
}

/// Changes when the file is replaced or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

/// Who came in, and by which token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// The name that the token was made for.
    pub caller: Caller,
    /// The token's id.
    pub token_id: String,
}

/// Why a token lets nobody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRefused {
    /// Nobody made it, or it was revoked.
    Unknown,
    /// Its time is over.
    Expired,
}

impl TokenBook {
    /// The tokens of a project.
    pub fn open(data_dir: &Path) -> Self {
        let file = TokenFile::new(data_dir);
        let read = ArcSwap::from_pointee(Reading::of(&file));
        Self { file, read }
    }

    /// How many tokens let somebody in now.
    pub fn usable(&self) -> usize {
        let at = now();
        self.entries().entries.iter().filter(|entry| !entry.is_expired(at)).count()
    }

    /// Who shows this token. Every entry is looked at, so that the time says nothing about which one fitted.
    pub fn bearer(&self, text: &str) -> Result<Bearer, TokenRefused> {
        self.bearer_at(text, now())
    }

    fn bearer_at(&self, text: &str, at: Timestamp) -> Result<Bearer, TokenRefused> {
        let hash = TokenHash::of(text);
        let reading = self.entries();
        let fitting = reading.entries.iter().fold(None, |found, entry| match entry.hash == hash {
            true => Some(entry),
            false => found,
        });
        match fitting {
            None => Err(TokenRefused::Unknown),
            Some(entry) if entry.is_expired(at) => Err(TokenRefused::Expired),
            Some(entry) => Ok(Bearer {
                caller: Caller::new(entry.caller.as_str(), KnownBy::Token),
                token_id: entry.id.clone(),
            }),
        }
    }

    fn entries(&self) -> Arc<Reading> {
        let known = self.read.load_full();
        if known.stamp == Stamp::of(self.file.path()) {
            return known;
        }
        let fresh = Arc::new(Reading::of(&self.file));
        self.read.store(Arc::clone(&fresh));
        fresh
    }
}

impl Reading {
    /// The stamp is taken first: a change in between is seen by the next question.
    fn of(file: &TokenFile) -> Self {
        let stamp = Stamp::of(file.path());
        let entries = file.entries().unwrap_or_else(|error| {
            tracing::error!("{error}");
            Vec::new()
        });
        Self { stamp, entries }
    }
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn j2_a_token_names_its_caller_until_it_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let (file, book) = (TokenFile::new(dir.path()), TokenBook::open(dir.path()));
        let (entry, text) = file.add("bot", None).unwrap();
        file.add("ci", None).unwrap();
        let bearer = book.bearer(text.expose()).unwrap();
        assert_eq!(bearer.caller, Caller::new("bot", KnownBy::Token));
        assert_eq!(book.bearer("adjutant_nonsense"), Err(TokenRefused::Unknown));
        file.revoke(&entry.id).unwrap();
        assert_eq!(book.bearer(text.expose()), Err(TokenRefused::Unknown));
        assert_eq!(book.usable(), 1);
    }

    #[test]
    fn a_token_ends_at_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let (file, book) = (TokenFile::new(dir.path()), TokenBook::open(dir.path()));
        let (entry, text) = file.add("bot", Some(Duration::from_mins(1))).unwrap();
        assert!(book.bearer_at(text.expose(), entry.created).is_ok());
        let end = entry.expires.unwrap();
        assert_eq!(book.bearer_at(text.expose(), end), Err(TokenRefused::Expired));
    }

    #[test]
    fn a_broken_file_lets_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        let (file, book) = (TokenFile::new(dir.path()), TokenBook::open(dir.path()));
        let (_, text) = file.add("bot", None).unwrap();
        assert!(book.bearer(text.expose()).is_ok());
        fs::write(file.path(), "{").unwrap();
        assert_eq!(book.bearer(text.expose()), Err(TokenRefused::Unknown));
    }
}
