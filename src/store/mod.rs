//! Everything that Adjutant keeps on disk: atomic files, locks, append-only logs, directories.
//!
//! Every function blocks; async code calls them through [`run_blocking`](crate::util). Nothing here knows what it stores.

mod copy_tree;
mod document;
mod fault_point;
mod fs;
mod journal;
mod live_dir;
mod lock;
mod log;
mod log_file;
mod log_reader;
mod real_path;
mod scratch;
mod version;

#[cfg(test)]
pub(crate) use fault_point::harness as crash_harness;
pub use fs::append_durably;
pub use lock::FileLock;

pub(crate) use copy_tree::copy_tree;
pub(crate) use document::{Document, DocumentError, DocumentLock, FormatNumber, Stored};
pub(crate) use fs::{
    BoundedReadError, ScratchDir, append_line, check_writable, create_private_dir, read_bounded,
    read_within_root, remove_file, write_atomic, write_project_file,
};
pub(crate) use journal::{Journal, JournalError, Naming, State};
pub(crate) use live_dir::{LiveDir, LiveFile, OwnedDir, remove_unowned_dirs};
pub(crate) use lock::LockError;
pub(crate) use log::{AppendLog, LineFormat, LogOptions, Sequence, TornLine};
pub(crate) use log_file::{LockWait, head_path};
pub(crate) use log_reader::{LogFollower, LogLine, open_log, snapshot_log};
pub(crate) use real_path::{normalize, real_path};
pub(crate) use scratch::{
    create_new_dir, make_private, remove_empty_dir, remove_tree, rename, write_new_file,
    write_new_script, write_volatile,
};
pub(crate) use version::{FileDependencies, FileVersion};
