//! Attestations that hooks leave as files, where the server could not have a socket.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::book::Attestations;
use super::reception::{MAX_MESSAGE, hear_message};
use crate::base::{read_bounded, remove_file};

/// More files than calls can wait for.
const MAX_FILES: usize = 1024;

/// Reads and removes what lies there. Files of other users are not read; the folder keeps them out anyway.
pub(super) fn collect(inbox: &Path, attested: &Attestations) {
    let user = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(inbox).into_iter().flatten().flatten().take(MAX_FILES) {
        let path = entry.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let is_ours =
            fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.uid() == user);
        if let (true, Ok(message)) = (is_ours, read_bounded(&path, MAX_MESSAGE)) {
            hear_message(attested, &message);
        }
        if let Err(error) = remove_file(&path) {
            tracing::debug!(%error, "a file of a hook could not be removed");
        }
    }
}
