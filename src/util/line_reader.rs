//! Bytes to lines, with a bound.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK: usize = 64 * 1024;

/// What came next.
#[derive(Debug)]
pub(super) enum Line<'a> {
    /// A line without its line feed; the last one may have had none.
    Whole(&'a [u8]),
    /// More than the bound without a line feed.
    TooLong,
    /// Nothing more will come.
    End,
}

/// Reads lines of at most `limit` bytes. Dropping a read in the middle loses nothing.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where no line feed was found.
    scanned: usize,
    limit: usize,
    ended: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(source: R, limit: usize) -> Self {
        Self { source, buffer: Vec::new(), start: 0, scanned: 0, limit, ended: false }
    }

    /// The next line.
    pub(super) async fn next(&mut self) -> io::Result<Line<'_>> {
        loop {
            if let Some(end) = self.find_line_feed() {
                let start = std::mem::replace(&mut self.start, end + 1);
                self.scanned = self.start;
                if end - start > self.limit {
                    return Ok(Line::TooLong);
                }
                return Ok(Line::Whole(self.buffer.get(start..end).unwrap_or_default()));
            }
            if self.buffer.len() - self.start > self.limit {
                return Ok(Line::TooLong);
            }
            if self.ended {
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

    fn last_line(&mut self) -> Line<'_> {
        let start = std::mem::replace(&mut self.start, self.buffer.len());
        match self.buffer.get(start..) {
            Some(rest) if !rest.is_empty() => Line::Whole(rest),
            _ => Line::End,
        }
    }

    async fn fill(&mut self) -> io::Result<()> {
        self.make_room();
        // Only `read_buf` touches the buffer, and only when it is ready: cancelling is safe.
        if self.source.read_buf(&mut self.buffer).await? == 0 {
            self.ended = true;
        }
        Ok(())
    }

    /// Moves the unfinished line to the front, and gives back the memory of a huge one before it.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
            if self.buffer.len() < CHUNK && self.buffer.capacity() > 16 * CHUNK {
                self.buffer.shrink_to(2 * CHUNK);
            }
        }
        if self.buffer.capacity() - self.buffer.len() < CHUNK {
            self.buffer.reserve(CHUNK.max(self.buffer.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_and_a_huge_line_leave_no_memory_behind() {
        let mut bytes = vec![b'x'; 20 << 20];
        bytes.push(b'\n');
        bytes.extend(b"a short line\n".repeat(100_000));
        let mut reader = LineReader::new(bytes.as_slice(), 64 << 20);
        let mut lines = 0;
        while let Line::Whole(_) = reader.next().await.unwrap() {
            lines += 1;
        }
        assert_eq!(lines, 100_001);
        assert!(reader.buffer.capacity() <= 4 * CHUNK, "{}", reader.buffer.capacity());
    }
}
