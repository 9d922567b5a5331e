//! Where sign-ins lie: one private file each, in a folder of the user's, never in the project.
//!
//! A project's folder is read by its agents and goes into version control; a token must do neither. A
//! sign-in belongs to one project, one server, one address and, if so configured, one agent: an entry
//! that is changed to point elsewhere finds an empty drawer.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::keyring::Keyring;
use super::record::{FORMAT, KeptIn, Record, Secrets};
use crate::base::{FileLock, Staged, create_private_dir, read_bounded, remove_file};

const LARGEST: u64 = 1024 * 1024;
/// Others renew a token within this time, or their lock is gone with them.
const LOCK_PATIENCE: Duration = Duration::from_secs(40);

/// The folder with all of them.
#[derive(Clone, Debug)]
pub struct Drawers {
    folder: PathBuf,
}

/// One sign-in's place.
#[derive(Clone, Debug)]
pub(super) struct Drawer {
    folder: PathBuf,
    id: String,
    keyring: Keyring,
}

/// Tells one state of a drawer from another without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Stamp(u64, i64, i64, u64);

/// Whose sign-in it is, and to what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label<'a> {
    pub(super) project: &'a Path,
    pub(super) server: &'a str,
    pub(super) agent: Option<&'a str>,
    /// The address as it is used, with every variable put in.
    pub(super) url: &'a str,
}

impl Drawers {
    /// The user's own; the error is one line.
    pub fn of_user() -> Result<Self, String> {
        let data = dirs::data_local_dir().ok_or("there is no home folder to keep them in")?;
        Ok(Self { folder: data.join("adjutant").join("sign-in") })
    }

    /// The place for one sign-in.
    pub(super) fn drawer(&self, label: Label<'_>) -> Drawer {
        let mut hasher = Sha256::new();
        let project = label.project.as_os_str().as_encoded_bytes();
        let agent = label.agent.map_or(String::new(), |agent| format!("agent {agent}"));
        for part in [project, label.server.as_bytes(), agent.as_bytes(), label.url.as_bytes()] {
            // The length first: no two lists of parts read the same.
            hasher.update(part.len().to_le_bytes());
            hasher.update(part);
        }
        let id = format!("{:x}", hasher.finalize()).chars().take(40).collect();
        Drawer { folder: self.folder.clone(), id, keyring: Keyring::of_desktop() }
    }

    /// Everything that was signed in from `project`, in no particular order.
    pub fn of_project(&self, project: &Path) -> Vec<Record> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let records = entries.filter(|entry| entry.path().extension().is_some_and(|e| e == "json"));
        let read = records.filter_map(|entry| read_record(&entry.path()).ok().flatten());
        read.filter(|record| record.project == project).collect()
    }
}

impl Drawer {
    fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.id))
    }

    /// Its state; `None` where it is empty.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let known = fs::metadata(self.file()).ok()?;
        Some(Stamp(known.ino(), known.mtime(), known.mtime_nsec(), known.len()))
    }

    /// Keeps every other process out until dropped.
    pub(super) async fn lock(&self) -> Result<FileLock, String> {
        create_private_dir(&self.folder).map_err(|error| self.problem(&error))?;
        let path = self.folder.join(format!("{}.lock", self.id));
        let taking = tokio::task::spawn_blocking(move || FileLock::acquire(&path, LOCK_PATIENCE));
        match taking.await {
            Ok(Ok(lock)) => Ok(lock),
            Ok(Err(busy)) => Err(self.problem(&busy)),
            Err(_) => Err("the program ends".to_owned()),
        }
    }

    /// What lies in it, secrets included; `None` where there is nothing.
    pub(super) async fn read(&self) -> Result<Option<(Record, Secrets)>, String> {
        let Some(mut record) = read_record(&self.file())? else { return Ok(None) };
        let secrets = match record.kept_in {
            KeptIn::File => record.secrets.take(),
            KeptIn::Keyring => self.look_into_keyring().await?,
        };
        Ok(secrets.map(|secrets| (record, secrets)))
    }

    async fn look_into_keyring(&self) -> Result<Option<Secrets>, String> {
        let Some(text) = self.keyring.look_up(&self.id).await? else { return Ok(None) };
        let secrets = serde_json::from_str(&text);
        secrets.map(Some).map_err(|_| "what the keyring holds makes no sense".to_owned())
    }

    /// Puts it in place of what was there: into the keyring where there is one, else into the file.
    pub(super) async fn write(&self, mut record: Record, secrets: &Secrets) -> Result<(), String> {
        let text = serde_json::to_string(secrets).map_err(|error| error.to_string())?;
        match self.keyring.store(&self.id, &text).await {
            Ok(true) => (record.kept_in, record.secrets) = (KeptIn::Keyring, None),
            Ok(false) => (record.kept_in, record.secrets) = (KeptIn::File, Some(secrets.clone())),
            Err(reason) => {
                tracing::warn!("{reason}; the sign-in is kept in a private file instead");
                (record.kept_in, record.secrets) = (KeptIn::File, Some(secrets.clone()));
            }
        }
        self.write_record(&record)
    }

    /// Says that it is over: the secrets go, and the reason stays for whoever asks.
    pub(super) async fn end(&self, mut record: Record, reason: &str) -> Result<(), String> {
        if record.kept_in == KeptIn::Keyring {
            self.keyring.clear(&self.id).await?;
        }
        record.ended = Some(reason.to_owned());
        record.secrets = None;
        self.write_record(&record)
    }

    /// Empties it; whether there was anything.
    pub(super) async fn clear(&self) -> Result<bool, String> {
        let Some(record) = read_record(&self.file())? else { return Ok(false) };
        if record.kept_in == KeptIn::Keyring {
            self.keyring.clear(&self.id).await?;
        }
        remove_file(&self.file()).map_err(|error| self.problem(&error))?;
        Ok(true)
    }

    /// What people may see of it.
    pub(super) fn record(&self) -> Result<Option<Record>, String> {
        read_record(&self.file())
    }

    fn write_record(&self, record: &Record) -> Result<(), String> {
        let bytes = serde_json::to_vec_pretty(record).map_err(|error| error.to_string())?;
        create_private_dir(&self.folder).map_err(|error| self.problem(&error))?;
        // Private whatever stood there before.
        let staged = Staged::private(&self.file(), &bytes);
        staged.and_then(Staged::commit).map_err(|error| self.problem(&error))
    }

    fn problem(&self, error: &dyn std::error::Error) -> String {
        format!("`{}`: {error}", self.folder.display())
    }
}

fn read_record(path: &Path) -> Result<Option<Record>, String> {
    if !path.exists() {
        return Ok(None);
    }
    let said = |reason: &str| format!("`{}` {reason}; sign in again", path.display());
    let bytes = read_bounded(path, LARGEST)
        .map_err(|error| format!("{}: {error}", said("cannot be read")))?;
    let record: Record = serde_json::from_slice(&bytes).map_err(|_| said("is damaged"))?;
    if record.format > FORMAT {
        return Err(format!("`{}` was written by a newer Adjutant", path.display()));
    }
    Ok(Some(record))
}
