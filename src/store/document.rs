//! One JSON file: replaced atomically, changed under its lock, read through a cache.
//!
//! A file that cannot be read is an error, never an empty value, and is never overwritten: every change reads the file
//! first.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::fault_point::fault_point;
use super::fs::{
    BoundedReadError, StagedFile, create_private_dir, move_aside, parent_dir, read_versioned,
    remove_file, remove_staged_for,
};
use super::lock::{FileLock, LockError};
use super::version::FileVersion;

/// The content of a [`Document`].
pub(crate) trait Stored: Serialize + DeserializeOwned {
    /// The `format` number that this version of Adjutant reads and writes.
    const FORMAT: u32;
    /// A larger file is not read.
    const MAX_BYTES: u64;
    /// Wait for another process that changes the file.
    const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

    /// Returns the bytes of the file: indented JSON, without a line feed at its end.
    fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }
}

/// The `format` key of a file. Another number cannot be read into it, so it cannot be written back either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormatNumber<const N: u32>;

impl<const N: u32> Serialize for FormatNumber<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(N)
    }
}

impl<'de, const N: u32> Deserialize<'de> for FormatNumber<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            found if found == N => Ok(Self),
            found => Err(D::Error::custom(format_args!("it has format {found}"))),
        }
    }
}

/// One JSON file with a `format` number. All methods block on disk.
#[derive(Debug)]
pub(crate) struct Document<T> {
    path: PathBuf,
    cached: ArcSwapOption<(FileVersion, Arc<T>)>,
}

/// The right to replace a document: its lock, free again when dropped or when the process ends.
#[derive(Debug)]
pub(crate) struct DocumentLock {
    _held: FileLock,
}

impl<T: Stored> Document<T> {
    /// Names the document; its lock is beside it, with the extension `lock`.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, cached: ArcSwapOption::empty() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the value; `None` without a file. Waits for no lock; one `stat` if the file is unchanged.
    pub(crate) fn read(&self) -> Result<Option<Arc<T>>, DocumentError> {
        if let Some((version, value)) = self.cached.load().as_deref()
            && version.is_current(&self.path)
        {
            return Ok(Some(Arc::clone(value)));
        }
        let found = self.read_file()?.map(|(version, value)| (version, Arc::new(value)));
        let value = found.as_ref().map(|(_, value)| Arc::clone(value));
        self.cached.store(found.map(Arc::new));
        Ok(value)
    }

    /// Changes the value under the lock and replaces the file durably. Without a file it starts from the default.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> Result<R, DocumentError>
    where
        T: Default,
    {
        let lock = self.lock()?;
        let mut value = self.read_file()?.map(|(_, value)| value).unwrap_or_default();
        let result = change(&mut value);
        fault_point("document: changed");
        self.write(&lock, &value)?;
        Ok(result)
    }

    /// Takes the lock, for a change that takes longer than [`Self::update`] may. Waits at most [`Stored::LOCK_TIMEOUT`].
    pub(crate) fn lock(&self) -> Result<DocumentLock, DocumentError> {
        create_private_dir(parent_dir(&self.path)).map_err(DocumentError::Write)?;
        fault_point("document: directory exists");
        let lock = FileLock::acquire(&self.path.with_extension("lock"), T::LOCK_TIMEOUT);
        let lock = lock.map_err(|error| match error {
            LockError::Held { by } => DocumentError::Busy { by },
            LockError::Io(error) => DocumentError::Write(error),
        })?;
        fault_point("document: locked");
        Ok(DocumentLock { _held: lock })
    }

    /// Replaces the file durably; it gets mode 0600. Fails if there is a file that cannot be read.
    pub(crate) fn replace(&self, lock: &DocumentLock, value: &T) -> Result<(), DocumentError> {
        self.read_file()?;
        self.write(lock, value)
    }

    /// Renames a file that cannot be read to the first free of `<name>.damaged-1`, `-2`, …
    pub(crate) fn set_aside(&self, _lock: &DocumentLock) -> Result<(), DocumentError> {
        for number in 1_u32.. {
            let mut aside = self.path.clone().into_os_string();
            aside.push(format!(".damaged-{number}"));
            match move_aside(&self.path, Path::new(&aside)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done.map_err(DocumentError::Write),
            }
        }
        Ok(())
    }

    /// Removes the file; a missing one is not an error.
    pub(crate) fn remove(&self, _lock: &DocumentLock) -> Result<(), DocumentError> {
        remove_file(&self.path).map_err(DocumentError::Write)
    }

    fn write(&self, _lock: &DocumentLock, value: &T) -> Result<(), DocumentError> {
        let bytes = value.to_bytes().map_err(|error| DocumentError::Write(error.into()))?;
        remove_staged_for(&self.path);
        fault_point("document: leftovers removed");
        StagedFile::write_private(&self.path, &bytes)
            .and_then(StagedFile::commit)
            .map_err(DocumentError::Write)
    }

    fn read_file(&self) -> Result<Option<(FileVersion, T)>, DocumentError> {
        match read_versioned(&self.path, T::MAX_BYTES) {
            Ok((bytes, version)) => Ok(Some((version, decode(&bytes)?))),
            Err(BoundedReadError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(DocumentError::Read(error)),
        }
    }
}

fn decode<T: Stored>(bytes: &[u8]) -> Result<T, DocumentError> {
    #[derive(Deserialize)]
    struct AnyFormat {
        format: u32,
    }
    serde_json::from_slice(bytes).map_err(|error| match serde_json::from_slice(bytes) {
        Ok(AnyFormat { format: found }) if found > T::FORMAT => DocumentError::Newer { found },
        _ => DocumentError::Unreadable(error),
    })
}

/// Reasons why a document was not read or not replaced. The messages do not name the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocumentError {
    /// An I/O error, no regular file, or a file above [`Stored::MAX_BYTES`].
    #[error(transparent)]
    Read(BoundedReadError),
    /// The file, its lock or its directory cannot be written.
    #[error(transparent)]
    Write(io::Error),
    /// Another process holds the lock.
    #[error("it is being changed by {by}; try again")]
    Busy { by: String },
    /// The content is not what this document stores; the message has line and column.
    #[error(transparent)]
    Unreadable(serde_json::Error),
    /// Neither read nor written back: what the newer version added could mean a restriction.
    #[error("it was written by a newer Adjutant")]
    Newer { found: u32 },
}

impl DocumentError {
    /// Returns the reason without any part of the content, for people who may not read the file.
    pub(crate) fn without_content(&self) -> String {
        match self {
            Self::Unreadable(error) => format!("line {} is not valid", error.line()),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
