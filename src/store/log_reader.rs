//! Follows a log as it grows, through rotations.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::verify::rotated_files;

/// What every line of a log has.
#[derive(Deserialize)]
struct Numbered {
    seq: u64,
}

/// Where a reader of a log stands: the audit log, or the events.
#[derive(Debug)]
pub struct LogTail {
    path: PathBuf,
    input: Option<BufReader<File>>,
    partial: String,
    /// The number of the last line that was given out.
    last: u64,
}

impl LogTail {
    /// Begins at the end of the log, or at its start if there is none yet.
    pub fn at_end(path: &Path) -> io::Result<Self> {
        let mut tail =
            Self { path: path.to_path_buf(), input: None, partial: String::new(), last: 0 };
        tail.reopen(&mut Vec::new())?;
        Ok(tail)
    }

    /// The whole lines that came since the last time.
    pub fn next_lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        self.drain(&mut lines)?;
        if !self.is_current() {
            // It was rotated, perhaps more than once: the files in between are read whole.
            for (number, path) in rotated_files(&self.path)? {
                if number > self.last {
                    self.input = open_if_there(&path)?;
                    self.drain(&mut lines)?;
                }
            }
            self.reopen(&mut lines)?;
        }
        Ok(lines)
    }

    fn reopen(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        self.input = open_if_there(&self.path)?;
        self.drain(lines)
    }

    fn drain(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        while input.read_line(&mut self.partial)? > 0 {
            if !self.partial.ends_with('\n') {
                continue;
            }
            let line = std::mem::take(&mut self.partial);
            let Ok(place) = serde_json::from_str::<Numbered>(&line) else { continue };
            if place.seq > self.last {
                self.last = place.seq;
                lines.push(line.trim_end_matches('\n').to_owned());
            }
        }
        Ok(())
    }

    fn is_current(&self) -> bool {
        let open = self.input.as_ref().and_then(|input| input.get_ref().metadata().ok());
        match (open, fs::metadata(&self.path)) {
            (Some(open), Ok(named)) => open.ino() == named.ino() && open.dev() == named.dev(),
            (None, Err(_)) => true,
            _ => false,
        }
    }
}

fn open_if_there(path: &Path) -> io::Result<Option<BufReader<File>>> {
    match File::open(path) {
        Ok(file) => Ok(Some(BufReader::new(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
