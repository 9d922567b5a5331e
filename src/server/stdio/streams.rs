//! Non-blocking streams for our stdin and stdout.
//!
//! rmcp handles pipes. Node and Bun, in which most clients are written, give their children sockets instead, for which
//! rmcp falls back to a blocking thread: two more context switches per message. Sockets are therefore handled here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use rmcp::transport::{StdioReader, StdioWriter, stdio_pipes};
use rustix::fs::fstat;
use rustix::net::{AddressFamily, getsockname};
use tokio::io::AsyncWrite;
use tokio::net::UnixStream;
use tokio_util::either::Either;

/// The client's input: our stdin.
pub(crate) type ClientInput = Either<UnixStream, StdioReader>;

/// The output to the client: our stdout.
pub(crate) struct ClientOutput(Either<UnixStream, StdioWriter>);

/// Opens our stdin and stdout. Call once, within a tokio runtime.
pub(crate) fn stdin_and_stdout() -> (ClientInput, ClientOutput) {
    let (input, output) = stdio_pipes();
    let input = dedicated_socket(rustix::stdio::stdin()).map_or(Either::Right(input), Either::Left);
    let output =
        dedicated_socket(rustix::stdio::stdout()).map_or(Either::Right(output), Either::Left);
    (input, ClientOutput(output))
}

/// Returns the stream of a Unix socket; `None` for other files, and for the socket of stderr, which must stay blocking:
/// the log waits for its reader.
fn dedicated_socket(descriptor: BorrowedFd<'_>) -> Option<UnixStream> {
    let is_local = getsockname(descriptor).ok()?.address_family() == AddressFamily::UNIX;
    if !is_local || is_same_file(descriptor, rustix::stdio::stderr()) {
        return None;
    }
    let stream = StdUnixStream::from(descriptor.try_clone_to_owned().ok()?);
    stream.set_nonblocking(true).ok()?;
    UnixStream::from_std(stream).ok()
}

fn is_same_file(one: impl AsFd, other: impl AsFd) -> bool {
    let place = |descriptor| fstat(descriptor).ok().map(|stat| (stat.st_dev, stat.st_ino));
    place(one.as_fd()) == place(other.as_fd())
}

impl AsyncWrite for ClientOutput {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            // Other processes may hold the same socket; ours is closed when the process exits.
            Either::Left(_) => Poll::Ready(Ok(())),
            Either::Right(writer) => Pin::new(writer).poll_shutdown(context),
        }
    }
}
