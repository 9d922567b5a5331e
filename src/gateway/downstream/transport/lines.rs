//! Incoming lines of a server, with a limit on their length.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::jsonrpc::{FrameStream, Incoming, PeerMessage};

/// Longest message accepted from a server; same limit as rmcp.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes kept of each end of a longer message, enough to find the id of the call.
const END_BYTES: usize = PeerMessage::END_BYTES;
const TOO_LARGE: &str = "its answer is larger than 16 MiB";
/// A larger line buffer is freed after use.
const MAX_KEPT_BUFFER: usize = 256 * 1024;

/// Lines of a pipe.
pub(crate) struct LineStream<R> {
    server: Arc<str>,
    read: BufReader<R>,
    line: Vec<u8>,
    /// Both ends of an oversized line.
    oversized: Option<[Vec<u8>; 2]>,
    /// Set if the line, or the ends of an oversized one, were returned.
    is_delivered: bool,
    oversized_lines: u64,
}

impl<R: AsyncRead + Unpin> LineStream<R> {
    pub(crate) fn new(server: Arc<str>, read: R) -> Self {
        Self {
            server,
            read: BufReader::with_capacity(64 * 1024, read),
            line: Vec::new(),
            oversized: None,
            is_delivered: false,
            oversized_lines: 0,
        }
    }

    /// Reads up to the end of a line; `None` at the end of the stream, whose last line must be complete.
    ///
    /// Cancel-safe: a partial line stays in `self`.
    async fn read_line(&mut self) -> Option<()> {
        self.forget_delivered();
        loop {
            let available = self.read.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let end = memchr::memchr(b'\n', available);
            let taken = end.map_or(available.len(), |end| end + 1);
            let piece = available.get(..taken).unwrap_or_default();
            if let Some([_, tail]) = &mut self.oversized {
                append_tail(tail, piece);
            } else {
                self.line.extend_from_slice(piece);
            }
            self.read.consume(taken);
            if self.line.len() > MAX_MESSAGE_BYTES {
                self.keep_ends();
            }
            if end.is_some() {
                self.is_delivered = true;
                return Some(());
            }
        }
    }

    fn forget_delivered(&mut self) {
        if std::mem::take(&mut self.is_delivered) {
            self.oversized = None;
            if self.line.capacity() > MAX_KEPT_BUFFER {
                self.line = Vec::new();
            } else {
                self.line.clear();
            }
        }
    }

    fn keep_ends(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        let mut tail = Vec::new();
        append_tail(&mut tail, &line);
        line.truncate(END_BYTES);
        line.shrink_to_fit();
        self.oversized = Some([line, tail]);
        self.oversized_lines += 1;
        // Powers of two, so that a flood of lines does not flood the log.
        if self.oversized_lines.is_power_of_two() {
            let count = self.oversized_lines;
            tracing::warn!(server = %self.server, count, "a message is larger than 16 MiB and was dropped");
        }
    }
}

/// Appends `piece` and keeps the last [`END_BYTES`] bytes.
fn append_tail(tail: &mut Vec<u8>, piece: &[u8]) {
    let kept = piece.len().min(END_BYTES);
    tail.drain(..(tail.len() + kept).saturating_sub(END_BYTES));
    tail.extend_from_slice(piece.get(piece.len() - kept..).unwrap_or_default());
}

impl<R: AsyncRead + Send + Unpin + 'static> FrameStream for LineStream<R> {
    async fn receive(&mut self) -> Option<Incoming<'_>> {
        self.read_line().await?;
        Some(match &self.oversized {
            Some([begin, end]) => Incoming::Oversized { begin, end, reason: TOO_LARGE },
            None => Incoming::Line(&self.line),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_returned_whole_and_only_the_ends_of_oversized_ones() {
        let mut input = b"one\n\n".to_vec();
        input.extend(b"{\"id\":1,");
        input.extend(vec![b'x'; MAX_MESSAGE_BYTES]);
        input.extend(b"\"id\":2}\r\ntwo\ntorn");
        let input: &'static [u8] = input.leak();
        let mut lines = LineStream::new("s".into(), input);
        let mut all = Vec::new();
        while let Some(incoming) = lines.receive().await {
            all.push(match incoming {
                Incoming::Oversized { begin, end, .. } => {
                    assert_eq!([begin.len(), end.len()], [END_BYTES; 2]);
                    format!("{:?} {:?}", begin.starts_with(b"{\"id\":1"), end.ends_with(b"2}\r\n"))
                }
                other => String::from_utf8(line(&other).to_vec()).unwrap(),
            });
        }
        assert_eq!(all, ["one\n", "\n", "true true", "two\n"]);
    }

    fn line<'a>(incoming: &Incoming<'a>) -> &'a [u8] {
        let Incoming::Line(line) = incoming else { panic!("{incoming:?}") };
        line
    }
}
