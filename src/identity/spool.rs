//! Attestations spooled as files, used if the socket for hooks cannot be created.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::attestation_registry::AttestationRegistry;
use super::hook_listener::{MAX_MESSAGE_BYTES, accept_message};
use crate::store::{read_bounded, remove_file};

/// Files read per call; equal to the limit of waiting attestations.
const MAX_SPOOLED_FILES: usize = 1024;

/// Reads and removes the spooled attestations. Blocks on disk.
///
/// Files of other users and symbolic links are removed unread, although the directory's mode 0700 already keeps other
/// users out.
pub(crate) fn read_spool(inbox: &Path, attested: &AttestationRegistry) {
    let user = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(inbox).into_iter().flatten().flatten().take(MAX_SPOOLED_FILES) {
        let path = entry.path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let is_ours =
            fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.uid() == user);
        if let (true, Ok(message)) = (is_ours, read_bounded(&path, MAX_MESSAGE_BYTES)) {
            accept_message(attested, &message);
        }
        if let Err(error) = remove_file(&path) {
            tracing::debug!(%error, "a file of a hook could not be removed");
        }
    }
}
