//! `data/results/`: complete answers that were too long for their caller, one file per run.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use crate::store::{create_private_dir, remove_file, write_atomic};
use crate::util::{RunId, Timestamp};

/// Safety margin between a result and the events of its run.
///
/// A result is written before the last event of its run. A file this much older than the oldest event belongs to a run
/// without any event left, however late its events were written.
const EVENT_DELAY: Duration = Duration::from_hours(24);

/// The directory with the results of one project.
#[derive(Debug)]
pub(crate) struct ResultFiles {
    dir: PathBuf,
}

impl ResultFiles {
    /// Returns the directory below a project's `data/`; it is created with the first result.
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self { dir: data_dir.join("results") }
    }

    /// Writes the answer of a run durably and returns its path.
    pub(crate) fn write(&self, run: RunId, text: &str) -> io::Result<PathBuf> {
        create_private_dir(&self.dir)?;
        let file = self.dir.join(format!("{}.txt", run.simple()));
        write_atomic(&file, text.as_bytes())?;
        Ok(file)
    }

    /// Removes results older than `retention` whose runs have no event left.
    ///
    /// `oldest_event` is the time of the oldest event that is still in the log.
    pub(crate) fn prune(&self, retention: Duration, oldest_event: Timestamp) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        let Some(latest) = SystemTime::from(oldest_event).checked_sub(EVENT_DELAY) else { return };
        let is_old = |written: SystemTime| {
            let age = SystemTime::now().duration_since(written).unwrap_or_default();
            age > retention && written < latest
        };
        for entry in entries.flatten() {
            let written = entry.metadata().and_then(|metadata| metadata.modified());
            if written.is_ok_and(is_old)
                && let Err(error) = remove_file(&entry.path())
            {
                tracing::warn!(%error, file = %entry.path().display(), "an old result cannot be removed");
            }
        }
    }
}
