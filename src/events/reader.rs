//! Reading events back: all files of the log, oldest first, whatever cannot be read left out.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Map, Value};

use super::verify::rotated_files;
use crate::base::{RunId, Timestamp};

/// Nothing that we write is longer; what is was put there by somebody else.
const MAX_LINE: usize = 1 << 20;

/// One event as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedEvent {
    /// When.
    pub time: Timestamp,
    /// The whole line.
    pub fields: Map<String, Value>,
}

impl RecordedEvent {
    /// Reads a line; `None` where it is no event.
    pub fn parse(line: &str) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
        let time = fields.get("time")?.as_str()?.parse().ok()?;
        Some(Self { time, fields }).filter(|event| !event.name().is_empty())
    }

    /// What happened.
    pub fn name(&self) -> &str {
        self.text("hook_event_name").unwrap_or_default()
    }

    /// The text under a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str()
    }

    /// The number under a key.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.fields.get(key)?.as_f64()
    }

    /// The milliseconds that it took.
    pub fn duration_ms(&self) -> Option<u64> {
        self.fields.get("duration_ms")?.as_u64()
    }

    /// The run it belongs to; events of Claude Code's own agents have none.
    pub fn run(&self) -> Option<RunId> {
        self.text("run_id")?.parse().ok()
    }

    /// The agent's name; the main agent's events carry none.
    pub fn agent(&self) -> &str {
        self.text("agent_type").unwrap_or("main")
    }
}

/// Gives every event since a moment to `each`, in the order they were written.
pub fn read_events(
    path: &Path,
    since: Option<Timestamp>,
    each: impl FnMut(&str, RecordedEvent),
) -> io::Result<()> {
    read_about(path, since, "", each)
}

/// The same for lines that have a word; the others are not looked at closely, which makes it quick.
pub(super) fn read_about(
    path: &Path,
    since: Option<Timestamp>,
    word: &str,
    mut each: impl FnMut(&str, RecordedEvent),
) -> io::Result<()> {
    let files = rotated_files(path)?.into_iter().map(|(_, path)| path);
    let files = files.filter(|file| !is_older(file, since)).chain([path.to_path_buf()]);
    for file in files {
        match File::open(&file) {
            Ok(file) => read_file(BufReader::new(file), since, word, &mut each)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_file(
    mut input: BufReader<File>,
    since: Option<Timestamp>,
    word: &str,
    each: &mut impl FnMut(&str, RecordedEvent),
) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(());
        }
        let line = String::from_utf8_lossy(bytes.trim_ascii_end());
        if line.len() > MAX_LINE || !line.contains(word) {
            continue;
        }
        if let Some(event) = RecordedEvent::parse(&line)
            && since.is_none_or(|since| event.time >= since)
        {
            each(&line, event);
        }
    }
}

/// Whether a finished file was written to last before that moment.
fn is_older(file: &Path, since: Option<Timestamp>) -> bool {
    let written = fs::metadata(file).and_then(|meta| meta.modified()).ok();
    match (written, since.map(SystemTime::from)) {
        (Some(written), Some(since)) => written < since,
        _ => false,
    }
}
