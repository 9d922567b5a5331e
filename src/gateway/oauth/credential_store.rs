//! OAuth credentials on disk: one private file per sign-in, in the data directory of the user.
//!
//! Not in the project, which agents read and which is under version control. A sign-in belongs to one project, server,
//! URL and, if configured, agent: an entry whose URL changes does not find the old credentials.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::credentials::{CredentialRecord, CredentialSecrets, SecretStorage};
use super::keyring::Keyring;
use crate::store::{Document, DocumentError, DocumentLock, FileVersion, Stored};
use crate::util::run_blocking;

/// All stored credentials of the user.
#[derive(Clone, Debug)]
pub(crate) struct CredentialStore {
    dir: PathBuf,
}

impl Stored for CredentialRecord {
    const FORMAT: u32 = 1;
    const MAX_BYTES: u64 = 1 << 20;
    /// Longer than a refresh (20 s) by another process.
    const LOCK_TIMEOUT: Duration = Duration::from_secs(40);
}

/// Credentials of one sign-in.
#[derive(Clone, Debug)]
pub(crate) struct CredentialFile {
    document: Arc<Document<CredentialRecord>>,
    id: String,
    keyring: Keyring,
}

/// Identity of a sign-in; its hash is the file name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CredentialLabel<'a> {
    pub(crate) project: &'a Path,
    pub(crate) server: &'a str,
    pub(crate) agent: Option<&'a str>,
    /// The URL with all variables resolved.
    pub(crate) url: &'a str,
}

impl CredentialStore {
    /// Opens the store of the current user; the error is one line.
    pub(crate) fn of_user() -> Result<Self, String> {
        let data = dirs::data_local_dir().ok_or("there is no home folder to keep them in")?;
        Ok(Self { dir: data.join("adjutant").join("sign-in") })
    }

    /// Returns the directory of the credential files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the credential file for one sign-in; the file may not exist.
    pub(crate) fn credential_file(&self, label: CredentialLabel<'_>) -> CredentialFile {
        let mut hasher = Sha256::new();
        let project = label.project.as_os_str().as_encoded_bytes();
        let agent = label.agent.map_or(String::new(), |agent| format!("agent {agent}"));
        for part in [project, label.server.as_bytes(), agent.as_bytes(), label.url.as_bytes()] {
            // The length before each part makes the hashed text unambiguous.
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        let id: String = format!("{:x}", hasher.finalize()).chars().take(40).collect();
        let document = Arc::new(Document::new(self.dir.join(format!("{id}.json"))));
        CredentialFile { document, id, keyring: Keyring::of_desktop() }
    }

    /// Returns all sign-ins of `project`, in no particular order; skips unreadable files.
    pub(crate) fn records_of_project(&self, project: &Path) -> Vec<Arc<CredentialRecord>> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let files = entries.map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|e| e == "json"));
        let read = files.filter_map(|path| Document::<CredentialRecord>::new(path).read().ok()?);
        read.filter(|record| record.project == project).collect()
    }
}

impl CredentialFile {
    /// Returns the version of the file; `None` if it does not exist.
    pub(crate) fn version(&self) -> Option<FileVersion> {
        FileVersion::read(self.document.path())
    }

    /// Locks the file against other processes; waits at most 40 s, on a blocking thread.
    pub(crate) async fn lock(&self) -> Result<Arc<DocumentLock>, String> {
        self.run_file_work(|document| document.lock().map(Arc::new)).await
    }

    /// Reads the secrets of a record; `None` if there are none.
    pub(crate) async fn read_secrets(
        &self,
        record: &CredentialRecord,
    ) -> Result<Option<CredentialSecrets>, String> {
        match record.kept_in {
            SecretStorage::File => Ok(record.secrets.clone()),
            SecretStorage::Keyring => self.read_keyring().await,
        }
    }

    async fn read_keyring(&self) -> Result<Option<CredentialSecrets>, String> {
        let Some(text) = self.keyring.look_up(&self.id).await? else { return Ok(None) };
        let secrets = serde_json::from_str(&text);
        secrets.map(Some).map_err(|_| "what the keyring holds makes no sense".to_owned())
    }

    /// Replaces the credentials. Secrets go to the keyring if there is one, otherwise to the file.
    ///
    /// A damaged file is set aside, because its message tells the user to sign in again.
    pub(crate) async fn write(
        &self,
        lock: &Arc<DocumentLock>,
        mut record: CredentialRecord,
        secrets: &CredentialSecrets,
    ) -> Result<(), String> {
        let text = serde_json::to_string(secrets).map_err(|error| error.to_string())?;
        let in_keyring = self.keyring.store(&self.id, &text).await.unwrap_or_else(|reason| {
            tracing::warn!("{reason}; the sign-in is kept in a private file instead");
            false
        });
        (record.kept_in, record.secrets) = match in_keyring {
            true => (SecretStorage::Keyring, None),
            false => (SecretStorage::File, Some(secrets.clone())),
        };
        let lock = Arc::clone(lock);
        self.run_file_work(move |document| match document.replace(&lock, &record) {
            Err(DocumentError::Unreadable(_)) => {
                document.set_aside(&lock)?;
                document.replace(&lock, &record)
            }
            other => other,
        })
        .await
    }

    /// Marks the sign-in as ended: deletes the secrets and stores the reason.
    pub(crate) async fn mark_ended(
        &self,
        lock: &Arc<DocumentLock>,
        mut record: CredentialRecord,
        reason: &str,
    ) -> Result<(), String> {
        if record.kept_in == SecretStorage::Keyring {
            Keyring::clear(&self.id).await?;
        }
        record.ended = Some(reason.to_owned());
        record.secrets = None;
        let lock = Arc::clone(lock);
        self.run_file_work(move |document| document.replace(&lock, &record)).await
    }

    /// Deletes the credentials; returns true if there were any.
    pub(crate) async fn clear(&self, lock: &Arc<DocumentLock>) -> Result<bool, String> {
        let Some(record) = self.record()? else { return Ok(false) };
        if record.kept_in == SecretStorage::Keyring {
            Keyring::clear(&self.id).await?;
        }
        let lock = Arc::clone(lock);
        self.run_file_work(move |document| document.remove(&lock)).await.map(|()| true)
    }

    /// Reads the credentials without secrets from the keyring. Waits for no lock.
    pub(crate) fn record(&self) -> Result<Option<Arc<CredentialRecord>>, String> {
        self.document.read().map_err(|error| describe(self.document.path(), &error))
    }

    async fn run_file_work<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Document<CredentialRecord>) -> Result<R, DocumentError> + Send + 'static,
    ) -> Result<R, String> {
        let document = Arc::clone(&self.document);
        let done = run_blocking(move || work(&document)).await.ok_or("the program ends")?;
        done.map_err(|error| describe(self.document.path(), &error))
    }
}

fn describe(path: &Path, error: &DocumentError) -> String {
    let path = path.display();
    match error {
        DocumentError::Read(error) => format!("`{path}` cannot be read; sign in again: {error}"),
        DocumentError::Write(_) | DocumentError::Busy { .. } => {
            format!("`{path}` cannot be written: {error}")
        }
        DocumentError::Unreadable(_) => format!("`{path}` is damaged; sign in again"),
        DocumentError::Newer { .. } => format!("`{path}` was written by a newer Adjutant"),
    }
}
