//! What Claude Code wrote down of a conversation. It is read with care and never written.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::base::{Timestamp, shorten, without_controls};

/// Only this much of the end of a transcript is read.
const MOST_BYTES: u64 = 8 << 20;
/// The cost so far is among the last lines of a turn.
const COST_BYTES: u64 = 256 << 10;
/// The folders of other projects that are looked into where the expected one does not have it.
const MOST_FOLDERS: usize = 10_000;
const MOST_CHARACTERS: usize = 4_000;

/// One side of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exchange {
    /// Who.
    pub speaker: Speaker,
    /// When, if the transcript says.
    pub at: Option<Timestamp>,
    /// What; cut where it is long, and without anything that could move a cursor.
    pub text: String,
}

/// Who said something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The one who called the agent.
    Caller,
    /// The agent.
    Agent,
}

/// The transcript of a conversation, where Claude Code keeps it.
pub fn locate_transcript(config_dir: &Path, folder: &Path, session_id: Uuid) -> Option<PathBuf> {
    let expected = expected_transcript(config_dir, folder, session_id);
    if expected.is_file() {
        return Some(expected);
    }
    // Long paths are shortened by a rule of Claude Code's own; the id is in no two folders.
    let (projects, file) = (config_dir.join("projects"), expected.file_name()?);
    let folders = fs::read_dir(&projects).ok()?.flatten().take(MOST_FOLDERS);
    folders.map(|entry| entry.path().join(file)).find(|path| path.is_file())
}

/// Where Claude Code will write the transcript of a conversation in this folder.
pub fn expected_transcript(config_dir: &Path, folder: &Path, session_id: Uuid) -> PathBuf {
    config_dir.join("projects").join(folder_name(folder)).join(format!("{session_id}.jsonl"))
}

/// The last things said in a transcript, oldest first.
pub fn last_exchanges(transcript: &Path, most: usize) -> io::Result<Vec<Exchange>> {
    let text = read_end(transcript, MOST_BYTES)?;
    let mut exchanges: Vec<Exchange> = text.lines().rev().filter_map(exchange).take(most).collect();
    exchanges.reverse();
    Ok(exchanges)
}

/// Whether the agent has ended a turn: after that, there is something to go on from.
pub(super) fn has_completed_turn(transcript: &Path) -> bool {
    read_end(transcript, MOST_BYTES).is_ok_and(|text| {
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).any(|line| ends_turn(&line))
    })
}

/// What Claude Code will already have counted when it resumes this transcript: 2.1.325 goes on counting
/// from here, 2.1.197 writes no such line and begins at zero.
pub(super) fn cost_counted_before(transcript: &Path) -> f64 {
    let text = read_end(transcript, COST_BYTES).unwrap_or_default();
    let line = text.lines().rev().find(|line| line.contains(r#""type":"cost-state""#));
    let state: Option<Value> = line.and_then(|line| serde_json::from_str(line).ok());
    state.and_then(|state| state.get("totalCostUSD")?.as_f64()).unwrap_or(0.0)
}

fn folder_name(folder: &Path) -> String {
    let text = folder.to_string_lossy();
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// The end of a file as text, from the beginning of a line.
fn read_end(path: &Path, most: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(most);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(match (skipped, text.split_once('\n')) {
        (1.., Some((_, whole_lines))) => whole_lines.to_owned(),
        _ => text,
    })
}

fn ends_turn(line: &Value) -> bool {
    let stop = line.pointer("/message/stop_reason").and_then(Value::as_str);
    speaker(line) == Some(Speaker::Agent)
        && matches!(stop, Some("end_turn" | "stop_sequence"))
        && line.get("isApiErrorMessage") != Some(&Value::Bool(true))
}

fn exchange(line: &str) -> Option<Exchange> {
    let line: Value = serde_json::from_str(line).ok()?;
    let speaker = speaker(&line)?;
    let text = words(line.pointer("/message/content")?)?;
    let at = line.get("timestamp").and_then(Value::as_str).and_then(|at| at.parse().ok());
    Some(Exchange { speaker, at, text: shorten(&without_controls(&text), MOST_CHARACTERS) })
}

fn speaker(line: &Value) -> Option<Speaker> {
    let aside = |field: &str| line.get(field) == Some(&Value::Bool(true));
    if aside("isSidechain") || aside("isMeta") {
        return None;
    }
    match line.get("type")?.as_str()? {
        "user" => Some(Speaker::Caller),
        "assistant" => Some(Speaker::Agent),
        _ => None,
    }
}

/// The text in a message; tools and their results are not part of what was said.
fn words(content: &Value) -> Option<String> {
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => return None,
    };
    (!text.trim().is_empty()).then_some(text)
}
