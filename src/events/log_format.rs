//! Lines of `events.jsonl`: numbered; a file is rotated by age, too; results go with the events that name them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::event::with_sequence_number;
use super::log::EventOptions;
use super::result_files::ResultFiles;
use crate::store::{LineFormat, Sequence, TornLine};
use crate::util::{Timestamp, now};

/// Bytes read to find the time of a file's first event; Adjutant writes lines of at most 64 KiB.
const MAX_FIRST_LINE_BYTES: u64 = 1 << 20;

/// Content of `events.jsonl.head`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct EventHead {
    seq: u64,
    bytes: u64,
    /// Time of the file's first line.
    begun: Option<Timestamp>,
}

#[derive(Deserialize)]
struct SequencedEvent {
    seq: u64,
}

#[derive(Deserialize)]
struct TimedEvent {
    time: Timestamp,
}

impl Sequence for EventHead {
    fn number(&self) -> u64 {
        self.seq
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, begun: self.begun.filter(|_| bytes > 0), ..self }
    }

    fn after(self, line: &[u8]) -> Self {
        let seq = serde_json::from_slice::<SequencedEvent>(line).map_or(0, |event| event.seq);
        Self { seq: self.seq.max(seq), ..self }
    }
}

#[derive(Debug)]
pub(crate) struct EventFormat {
    pub(crate) options: EventOptions,
    pub(crate) results: ResultFiles,
}

impl LineFormat for EventFormat {
    type Sequence = EventHead;
    /// An encoded event without its number.
    type Entry = String;

    fn encode(
        &self,
        entries: &[String],
        mut head: EventHead,
        text: &mut Vec<u8>,
    ) -> io::Result<EventHead> {
        for body in entries {
            head.seq += 1;
            text.extend_from_slice(with_sequence_number(head.seq, body).as_bytes());
            text.push(b'\n');
        }
        head.begun.get_or_insert_with(now);
        Ok(head)
    }

    fn is_file_complete(&self, head: &EventHead) -> bool {
        let age = head.begun.and_then(|begun| Duration::try_from(now().duration_since(begun)).ok());
        age.is_some_and(|age| age >= self.options.rotate_after)
    }

    /// An unfinished event stays visible to people; readers skip it.
    fn torn_line(&self, _bytes: usize) -> TornLine<String> {
        TornLine::Terminate
    }

    fn retention_applied(&self, oldest: &Path) {
        if let (Some(retention), Some(time)) = (self.options.retention, first_time(oldest)) {
            self.results.prune(retention, time);
        }
    }
}

/// Returns the time of the first event in a file.
fn first_time(file: &Path) -> Option<Timestamp> {
    let mut line = String::new();
    BufReader::new(File::open(file).ok()?.take(MAX_FIRST_LINE_BYTES)).read_line(&mut line).ok()?;
    serde_json::from_str::<TimedEvent>(&line).ok().map(|event| event.time)
}
