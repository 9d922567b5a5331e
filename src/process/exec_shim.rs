//! The exec shim (`adjutant __exec`): last code before `exec` of a program, in the program's own process.
//!
//! Sets the parent-death signal, replaces the control socket on stdin by the program's stdin, and executes the program.
//! The socket is closed by a successful `exec`; otherwise the error number is sent over it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::unistd::{Pid, getppid};

use super::supervisor_protocol;

/// Exit status for a program that could not be executed, as in shells.
const EXIT_NOT_EXECUTABLE: u8 = 127;

/// Runs `__exec SUPERVISOR PROGRAM ARGUMENT…`; returns only on failure.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let supervisor = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let program = arguments.next();
    if let (Some(supervisor), Some(program)) = (supervisor, program) {
        exec_program(Pid::from_raw(supervisor), program, arguments);
    }
    ExitCode::from(EXIT_NOT_EXECUTABLE)
}

fn exec_program(supervisor: Pid, program: OsString, arguments: impl Iterator<Item = OsString>) {
    let Ok(mut socket) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return;
    };
    let error = match prepare(&socket, supervisor) {
        // `exec` resets the signal mask and SIGPIPE, which the Rust runtime ignores.
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    };
    let _ = socket.write_all(&error.raw_os_error().unwrap_or(Errno::EIO as i32).to_le_bytes());
}

fn prepare(socket: &UnixStream, supervisor: Pid) -> io::Result<()> {
    set_parent_death_signal()?;
    // The supervisor may have died before the parent-death signal was set: then nothing would stop this process.
    if getppid() != supervisor {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let [stdin] = supervisor_protocol::receive_descriptors(socket)?;
    rustix::stdio::dup2_stdin(stdin)?;
    // Our descriptors are close-on-exec; those inherited from the process that started us may not be.
    close_fds::set_fds_cloexec(3, &[]);
    Ok(())
}

#[cfg(target_os = "linux")]
fn set_parent_death_signal() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?)
}

#[cfg(not(target_os = "linux"))]
fn set_parent_death_signal() -> io::Result<()> {
    Ok(())
}
