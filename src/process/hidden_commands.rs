//! This very program, which keepers and shims are copies of.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use super::{keeper, shim};

static KEEPER: OnceLock<PathBuf> = OnceLock::new();

/// Runs one of the hidden commands, if the program was started for one. To be asked before anything else:
/// a keeper must be small and quick.
pub fn hidden_command() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        "__keep" => Some(keeper::run()),
        "__exec" => Some(shim::run(arguments)),
        _ => None,
    }
}

/// Names the `adjutant` that keepers are started from; only for programs that use the library and are not
/// `adjutant` themselves, such as tests. The first call counts.
pub fn use_keeper_program(path: impl Into<PathBuf>) {
    let _ = KEEPER.set(path.into());
}

/// What to start a keeper from.
pub(super) fn keeper() -> PathBuf {
    KEEPER.get().cloned().unwrap_or_else(own)
}

/// The running program itself; on Linux even when its file has been replaced since.
pub(super) fn own() -> PathBuf {
    if cfg!(target_os = "linux") {
        return PathBuf::from("/proc/self/exe");
    }
    env::current_exe().unwrap_or_else(|_| PathBuf::from(OsString::from("adjutant")))
}
