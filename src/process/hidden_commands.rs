//! The hidden commands (`__keep`, `__exec` and those of `sandbox`), and the executable that provides them.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

#[cfg(target_os = "linux")]
use super::sandbox;
use super::{exec_shim, supervisor};

static SUPERVISOR_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Runs a hidden command if the process was started with one.
///
/// To be called first in `main`: a supervisor must stay small and start fast.
pub(crate) fn run_hidden_command() -> Option<ExitCode> {
    let mut arguments = env::args_os().skip(1);
    match arguments.next()?.to_str()? {
        "__keep" => Some(supervisor::run()),
        "__exec" => Some(exec_shim::run(arguments)),
        #[cfg(target_os = "linux")]
        "__sandbox" => Some(sandbox::run_sandbox(arguments)),
        #[cfg(target_os = "linux")]
        "__relay" => Some(sandbox::run_relay(arguments)),
        #[cfg(target_os = "linux")]
        "__confine" => Some(sandbox::run_confine(arguments)),
        _ => None,
    }
}

/// Sets the `adjutant` executable for supervisors.
///
/// Only for programs that use the library, such as tests. The first call wins.
pub fn set_supervisor_program(path: impl Into<PathBuf>) {
    let _ = SUPERVISOR_PROGRAM.set(path.into());
}

/// Returns the executable for supervisors.
pub(crate) fn supervisor_program() -> PathBuf {
    SUPERVISOR_PROGRAM.get().cloned().unwrap_or_else(own_program)
}

/// Returns the running executable; on Linux `/proc/self/exe`, which works even after the file was replaced.
pub(crate) fn own_program() -> PathBuf {
    if cfg!(target_os = "linux") {
        return PathBuf::from("/proc/self/exe");
    }
    env::current_exe().unwrap_or_else(|_| PathBuf::from(OsString::from("adjutant")))
}
