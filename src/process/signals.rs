//! Signals as bytes on a socket, so that the supervisor can `poll` for them.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

/// Signals as the supervisor distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaughtSignal {
    /// SIGCHLD: a child may have exited.
    ChildExited,
    /// SIGTERM, SIGINT or SIGHUP: stop the tree.
    Stop,
}

/// Blocks SIGCHLD, SIGTERM, SIGINT and SIGHUP and starts a thread that forwards them as bytes.
///
/// The mask is inherited; the supervisor resets it for the programs it starts.
pub(crate) fn catch_signals() -> io::Result<UnixStream> {
    let wanted: SigSet =
        [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    wanted.thread_block()?;
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    thread::Builder::new().stack_size(64 << 10).spawn(move || forward(&wanted, &theirs))?;
    Ok(ours)
}

/// Reads the next signal, blocking; `None` if the thread is gone.
pub(crate) fn next_signal(socket: &mut UnixStream) -> Option<CaughtSignal> {
    let mut byte = [0];
    socket.read_exact(&mut byte).ok()?;
    Some(if byte == [b'c'] { CaughtSignal::ChildExited } else { CaughtSignal::Stop })
}

fn forward(wanted: &SigSet, mut socket: &UnixStream) {
    while let Ok(signal) = wanted.wait() {
        let byte = if signal == Signal::SIGCHLD { b"c" } else { b"e" };
        // If the socket is full, enough unread bytes wake the reader anyway.
        match socket.write_all(byte) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}
