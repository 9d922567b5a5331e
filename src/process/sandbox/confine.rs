//! `adjutant __confine`: the last step before a program in a sandbox, in the program's own process.
//!
//! Works without bubblewrap too, so that a container gets the same filter.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};

use super::seccomp;

/// Exit status for a program that could not be executed, as in shells.
const EXIT_NOT_EXECUTABLE: u8 = 127;

/// Runs `__confine PARENT PROGRAM ARGUMENT…`; returns only on failure.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Err(error) = execute(arguments);
    let _ = writeln!(
        io::stderr(),
        "adjutant: the program in the sandbox could not be started: {error}"
    );
    ExitCode::from(EXIT_NOT_EXECUTABLE)
}

fn execute(mut arguments: impl Iterator<Item = OsString>) -> io::Result<Infallible> {
    let parent = arguments.next().and_then(|pid| pid.to_str()?.parse().ok()).map(Pid::from_raw);
    let program = arguments.next().ok_or(io::ErrorKind::InvalidInput)?;
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The relay may have died before the parent-death signal was set.
    if Some(getppid()) != parent {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    // The hard limit: with a soft one, `ulimit -c unlimited` would write `core` files into the project.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    close_fds::set_fds_cloexec(3, &[]);
    prctl::set_no_new_privs()?;
    for filter in seccomp::filters()? {
        seccompiler::apply_filter(&filter).map_err(io::Error::other)?;
    }
    Err(Command::new(program).args(arguments).exec())
}
