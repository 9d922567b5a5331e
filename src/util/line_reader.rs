//! Line reader with a maximum line length.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK_BYTES: usize = 64 * 1024;

/// Result of reading one line.
#[derive(Debug)]
pub(crate) enum ReadLine<'a> {
    /// A line without its line feed; the last line may lack one.
    Complete(&'a [u8]),
    /// The line exceeds the limit.
    TooLong,
    /// EOF.
    End,
}

/// Reads lines of at most `limit` bytes. `next` is cancel-safe.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Offset of the next line.
    line_start: usize,
    /// Offset up to which no line feed was found.
    scanned: usize,
    max_line_bytes: usize,
    eof: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(source: R, max_line_bytes: usize) -> Self {
        Self { source, buffer: Vec::new(), line_start: 0, scanned: 0, max_line_bytes, eof: false }
    }

    pub(crate) async fn next(&mut self) -> io::Result<ReadLine<'_>> {
        loop {
            if let Some(end) = self.find_line_feed() {
                let start = std::mem::replace(&mut self.line_start, end + 1);
                self.scanned = self.line_start;
                if end - start > self.max_line_bytes {
                    return Ok(ReadLine::TooLong);
                }
                return Ok(ReadLine::Complete(self.buffer.get(start..end).unwrap_or_default()));
            }
            if self.buffer.len() - self.line_start > self.max_line_bytes {
                return Ok(ReadLine::TooLong);
            }
            if self.eof {
                return Ok(self.last_line());
            }
            self.fill().await?;
        }
    }

    fn find_line_feed(&mut self) -> Option<usize> {
        let fresh = self.buffer.get(self.scanned..)?;
        if let Some(offset) = fresh.iter().position(|byte| *byte == b'\n') {
            return Some(self.scanned + offset);
        }
        self.scanned = self.buffer.len();
        None
    }

    fn last_line(&mut self) -> ReadLine<'_> {
        let start = std::mem::replace(&mut self.line_start, self.buffer.len());
        match self.buffer.get(start..) {
            Some(rest) if !rest.is_empty() => ReadLine::Complete(rest),
            _ => ReadLine::End,
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.make_room();
        // Cancel-safe: only `read_buf` changes the buffer, and only when it is ready.
        if self.source.read_buf(&mut self.buffer).await? == 0 {
            self.eof = true;
        }
        Ok(())
    }

    /// Moves the incomplete line to the front and releases the memory of a long line before it.
    fn make_room(&mut self) {
        if self.line_start > 0 {
            self.buffer.drain(..self.line_start);
            self.scanned -= self.line_start;
            self.line_start = 0;
            if self.buffer.len() < CHUNK_BYTES && self.buffer.capacity() > 16 * CHUNK_BYTES {
                self.buffer.shrink_to(2 * CHUNK_BYTES);
            }
        }
        if self.buffer.capacity() - self.buffer.len() < CHUNK_BYTES {
            self.buffer.reserve(CHUNK_BYTES.max(self.buffer.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_released_after_a_huge_line_and_many_short_ones() {
        let mut bytes = vec![b'x'; 20 << 20];
        bytes.push(b'\n');
        bytes.extend(b"a short line\n".repeat(100_000));
        let mut reader = LineReader::new(bytes.as_slice(), 64 << 20);
        let mut lines = 0;
        while let ReadLine::Complete(_) = reader.next().await.unwrap() {
            lines += 1;
        }
        assert_eq!(lines, 100_001);
        assert!(reader.buffer.capacity() <= 4 * CHUNK_BYTES, "{}", reader.buffer.capacity());
    }
}
