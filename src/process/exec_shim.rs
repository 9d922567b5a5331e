//! `adjutant __exec`: the last step before a program, in its own process.
//!
//! It makes sure that the program dies with its keeper, takes the program's stdin off the socket it was
//! started with, and becomes the program. The socket closes by itself when that works; when it does not,
//! the error number goes over it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::unistd::{Pid, getppid};

use super::wire;

/// What a shell says for a program that could not be executed.
const NOT_EXECUTED: u8 = 127;

/// Runs `__exec KEEPER PROGRAM ARGUMENT…`; returns only if that did not work.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let keeper = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let program = arguments.next();
    if let (Some(keeper), Some(program)) = (keeper, program) {
        become_program(Pid::from_raw(keeper), program, arguments);
    }
    ExitCode::from(NOT_EXECUTED)
}

fn become_program(keeper: Pid, program: OsString, arguments: impl Iterator<Item = OsString>) {
    let Ok(mut socket) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return;
    };
    let error = match prepare(&socket, keeper) {
        // `exec` resets the signal mask and SIGPIPE, which every Rust program ignores, for the program.
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    };
    let _ = socket.write_all(&error.raw_os_error().unwrap_or(Errno::EIO as i32).to_le_bytes());
}

fn prepare(socket: &UnixStream, keeper: Pid) -> io::Result<()> {
    die_with_keeper()?;
    // The keeper may have died before the line above: then nothing would end this process.
    if getppid() != keeper {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let [stdin] = wire::receive_descriptors(socket)?;
    rustix::stdio::dup2_stdin(stdin)?;
    // Ours close by themselves; what whoever started us left open would go on to the program.
    close_fds::set_fds_cloexec(3, &[]);
    Ok(())
}

#[cfg(target_os = "linux")]
fn die_with_keeper() -> io::Result<()> {
    Ok(nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?)
}

#[cfg(not(target_os = "linux"))]
fn die_with_keeper() -> io::Result<()> {
    Ok(())
}
