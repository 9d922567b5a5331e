//! Our stdin and stdout as streams that nobody waits for.
//!
//! Pipes are rmcp's business. Node and Bun, in which most clients are written, give their children sockets instead, for
//! which rmcp falls back to a thread that blocks: two more switches between threads for every message.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use rmcp::transport::{StdioReader, StdioWriter, stdio_pipes};
use rustix::fs::fstat;
use rustix::net::{AddressFamily, getsockname};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// What a caller sends.
pub(super) enum Incoming {
    Socket(UnixStream),
    Other(StdioReader),
}

/// What a caller is told.
pub(super) enum Outgoing {
    Socket(UnixStream),
    Other(StdioWriter),
}

/// Our stdin and stdout. Must be called within a tokio runtime, and once.
pub(super) fn stdin_and_stdout() -> (Incoming, Outgoing) {
    let (input, output) = stdio_pipes();
    let input = socket(rustix::stdio::stdin()).map_or(Incoming::Other(input), Incoming::Socket);
    let output = socket(rustix::stdio::stdout()).map_or(Outgoing::Other(output), Outgoing::Socket);
    (input, output)
}

/// The stream behind a descriptor, if it is a socket of its own: our log must still be able to wait for its reader.
fn socket(descriptor: BorrowedFd<'_>) -> Option<UnixStream> {
    let is_local = getsockname(descriptor).ok()?.address_family() == AddressFamily::UNIX;
    if !is_local || is_same(descriptor, rustix::stdio::stderr()) {
        return None;
    }
    let stream = StdUnixStream::from(descriptor.try_clone_to_owned().ok()?);
    stream.set_nonblocking(true).ok()?;
    UnixStream::from_std(stream).ok()
}

fn is_same(one: impl AsFd, other: impl AsFd) -> bool {
    let place = |descriptor| fstat(descriptor).ok().map(|stat| (stat.st_dev, stat.st_ino));
    place(one.as_fd()) == place(other.as_fd())
}

impl AsyncRead for Incoming {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(socket) => Pin::new(socket).poll_read(context, buffer),
            Self::Other(reader) => Pin::new(reader).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Outgoing {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Socket(socket) => Pin::new(socket).poll_write(context, bytes),
            Self::Other(writer) => Pin::new(writer).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Socket(socket) => Pin::new(socket).poll_flush(context),
            Self::Other(writer) => Pin::new(writer).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // Others may hold the same socket; ours ends with the process.
            Self::Socket(_) => Poll::Ready(Ok(())),
            Self::Other(writer) => Pin::new(writer).poll_shutdown(context),
        }
    }
}
