//! `data/tokens.json`: who may come in over HTTP. It holds hashes, never a token.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::token::{TokenHash, TokenText};
use crate::base::{
    FileLock, LockBusy, ReadRefused, Staged, Timestamp, create_private_dir, now, read_bounded,
};

const FORMAT: u64 = 1;
const MOST_BYTES: u64 = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(5);
/// As for the agents of the gateway's rules, and short enough for every log line.
const MAX_CALLER: usize = 128;

/// One token, without itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenEntry {
    /// What it is called in `token list` and `token revoke`.
    pub id: String,
    /// Who whoever shows it is.
    pub caller: String,
    /// What is kept of it.
    pub hash: TokenHash,
    /// When it was made.
    pub created: Timestamp,
    /// From when on it is refused; `None` is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

impl TokenEntry {
    /// Whether its time is over.
    pub fn is_expired(&self, at: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= at)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u64,
    tokens: Vec<TokenEntry>,
}

/// The file with the tokens of one project.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// The file below a project's `data/`.
    pub fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join("tokens.json") }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every token; none where there is no file.
    pub fn entries(&self) -> Result<Vec<TokenEntry>, TokenError> {
        let bytes = match read_bounded(&self.path, MOST_BYTES) {
            Ok(bytes) => bytes,
            Err(ReadRefused::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(self.unreadable(error.to_string())),
        };
        let stored: Stored =
            serde_json::from_slice(&bytes).map_err(|error| self.unreadable(error.to_string()))?;
        if stored.format != FORMAT {
            return Err(self.unreadable(format!("it has format {}", stored.format)));
        }
        Ok(stored.tokens)
    }

    /// Makes a token for a caller. Only the caller of this ever sees its text.
    pub fn add(
        &self,
        caller: &str,
        lifetime: Option<Duration>,
    ) -> Result<(TokenEntry, TokenText), TokenError> {
        check_caller(caller)?;
        let created = now();
        let expires = lifetime.map(|lifetime| created.checked_add(lifetime)).transpose();
        let text = TokenText::random();
        let entry = TokenEntry {
            id: Uuid::new_v4().simple().to_string().chars().take(8).collect(),
            caller: caller.to_owned(),
            hash: text.hash(),
            created,
            expires: expires.map_err(|_| TokenError::TooLong)?,
        };
        self.change(|tokens| tokens.push(entry.clone()))?;
        Ok((entry, text))
    }

    /// Takes back the token of this id, or every token of the caller of this name; says which.
    pub fn revoke(&self, which: &str) -> Result<Vec<TokenEntry>, TokenError> {
        let mut gone = Vec::new();
        self.change(|tokens| {
            let (out, kept) = std::mem::take(tokens)
                .into_iter()
                .partition(|entry| entry.id == which || entry.caller == which);
            *tokens = kept;
            gone = out;
        })?;
        Ok(gone)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<TokenEntry>)) -> Result<(), TokenError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        create_private_dir(folder).map_err(|error| self.unwritable(error))?;
        let _lock = FileLock::acquire(&self.path.with_extension("lock"), PATIENCE)
            .map_err(|source| TokenError::Busy { source })?;
        let mut tokens = self.entries()?;
        change(&mut tokens);
        let mut text = serde_json::to_vec_pretty(&Stored { format: FORMAT, tokens })
            .map_err(|error| self.unwritable(error.into()))?;
        text.push(b'\n');
        let staged = Staged::private(&self.path, &text).map_err(|error| self.unwritable(error))?;
        staged.commit().map_err(|error| self.unwritable(error))
    }

    fn unreadable(&self, reason: String) -> TokenError {
        TokenError::Unreadable { path: self.path.clone(), reason }
    }

    fn unwritable(&self, source: io::Error) -> TokenError {
        TokenError::Unwritable { path: self.path.clone(), source }
    }
}

/// The characters of the gateway's agent ids: the name stands in rules, lists and logs.
fn check_caller(caller: &str) -> Result<(), TokenError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if caller.is_empty() || caller.len() > MAX_CALLER || !caller.chars().all(fits) {
        return Err(TokenError::BadCaller { caller: caller.chars().take(80).collect() });
    }
    Ok(())
}

/// Why tokens could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file is not ours, torn, or of another format.
    #[error(
        "`{}` cannot be read: {reason}; nobody is let in until it can (move it away to start over)",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The system did not let us write it.
    #[error("`{}` cannot be written", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another process is changing it.
    #[error("the tokens are being changed by somebody else; try again")]
    Busy {
        /// Who.
        #[source]
        source: LockBusy,
    },
    /// Such a name could not stand in a rule.
    #[error(
        "`{caller}` cannot be a caller's name: use letters, digits, `-`, `_` and `.`, at most 128"
    )]
    BadCaller {
        /// What was asked for.
        caller: String,
    },
    /// Beyond the calendar.
    #[error("a token cannot live that long; leave --expires out for one that does not expire")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use test_case::test_case;

    fn file() -> (tempfile::TempDir, TokenFile) {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::new(&dir.path().join("data"));
        (dir, file)
    }

    #[test]
    fn j2_only_the_hash_is_kept_and_only_the_owner_reads_it() {
        let (_dir, file) = file();
        let (entry, text) = file.add("bot", None).unwrap();
        let stored = fs::read_to_string(file.path()).unwrap();
        assert!(!stored.contains(text.expose()));
        assert!(stored.contains(&entry.hash.to_string()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(file.path()), mode(file.path().parent().unwrap())), (0o600, 0o700));
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
        let left = file.entries().unwrap();
        assert_eq!(left.iter().map(|entry| entry.caller.as_str()).collect::<Vec<_>>(), ["ci"]);
    }

    #[test]
    fn two_processes_that_add_at_once_lose_nothing() {
        let (_dir, file) = file();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = file.clone();
                scope.spawn(move || file.add(&format!("bot-{number}"), None).unwrap());
            }
        });
        assert_eq!(file.entries().unwrap().len(), 8);
    }

    #[test_case(""; "empty")]
    #[test_case("a b"; "space")]
    #[test_case("a\nb"; "line feed")]
    #[test_case("*"; "wildcard")]
    #[test_case("../x"; "path")]
    fn a_name_that_no_rule_could_hold_is_refused(caller: &str) {
        let (_dir, file) = file();
        assert!(matches!(file.add(caller, None), Err(TokenError::BadCaller { .. })));
    }

    #[test_case("{"; "torn")]
    #[test_case("{\"format\":2,\"tokens\":[]}"; "newer")]
    #[test_case("{\"format\":1,\"tokens\":[],\"admin\":true}"; "unknown key")]
    fn a_file_that_is_not_as_we_write_it_is_an_error_and_stays(text: &str) {
        let (_dir, file) = file();
        fs::create_dir_all(file.path().parent().unwrap()).unwrap();
        fs::write(file.path(), text).unwrap();
        assert!(file.entries().is_err() && file.add("bot", None).is_err());
        assert_eq!(fs::read_to_string(file.path()).unwrap(), text);
    }
}
