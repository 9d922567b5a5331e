//! Signals as bytes on a socket, so that a keeper can wait for them beside everything else.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use nix::sys::signal::{SigSet, Signal};

/// What a caught signal means to a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caught {
    /// Some child may have ended.
    ChildEnded,
    /// SIGTERM, SIGINT or SIGHUP: end the tree.
    Ending,
}

/// Blocks the signals that matter and starts a thread that turns them into bytes. Programs that are started
/// afterwards get a clean mask: the keeper asks for one.
pub(super) fn catch() -> io::Result<UnixStream> {
    let wanted: SigSet =
        [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    wanted.thread_block()?;
    let (ours, theirs) = UnixStream::pair()?;
    theirs.set_nonblocking(true)?;
    thread::Builder::new().stack_size(64 << 10).spawn(move || forward(&wanted, &theirs))?;
    Ok(ours)
}

/// The next caught signal; `None` if the thread is gone.
pub(super) fn next(socket: &mut UnixStream) -> Option<Caught> {
    let mut byte = [0];
    socket.read_exact(&mut byte).ok()?;
    Some(if byte == [b'c'] { Caught::ChildEnded } else { Caught::Ending })
}

fn forward(wanted: &SigSet, mut socket: &UnixStream) {
    while let Ok(signal) = wanted.wait() {
        let byte = if signal == Signal::SIGCHLD { b"c" } else { b"e" };
        // A full socket already holds more news than there are kinds of it.
        match socket.write_all(byte) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}
