//! Transcripts that Claude Code writes. They are read only, and never trusted to be well-formed.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;
use uuid::Uuid;

use super::session::Session;
use crate::api::MessageObject;
use crate::store::{create_private_dir, real_path, write_atomic};
use crate::util::{Timestamp, shorten};

/// Limit of the bytes read from the end of a transcript.
const MAX_READ_BYTES: u64 = 8 << 20;
/// Limit of the bytes searched for the cost, which is among the last lines of a turn.
const MAX_COST_BYTES: u64 = 256 << 10;
/// Length above which Claude Code shortens a directory name.
const MAX_DIR_NAME_CHARS: usize = 200;
const MAX_MESSAGE_CHARS: usize = 4_000;

/// One message of the caller or of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TranscriptMessage {
    pub speaker: Speaker,
    /// Time of the message, if the transcript has it.
    pub at: Option<Timestamp>,
    /// At most 4,000 characters, without control characters.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The caller of the agent.
    Caller,
    Agent,
}

impl TranscriptMessage {
    pub(crate) fn to_object(&self) -> MessageObject {
        MessageObject {
            speaker: match self.speaker {
                Speaker::Caller => "caller".to_owned(),
                Speaker::Agent => "agent".to_owned(),
            },
            time: self.at.map(Into::into),
            text: self.text.clone(),
        }
    }
}

/// Returns the transcript of a session, if it exists.
///
/// Checks one path. If Claude Code may have changed the directory name, checks all directories with the same prefix.
pub(crate) fn locate_transcript(
    config_dir: &Path,
    folder: &Path,
    session_id: Uuid,
) -> Option<PathBuf> {
    // Claude Code derives the name from the resolved path. A deleted directory is taken as written.
    let real = folder.canonicalize();
    let folder = real.as_deref().unwrap_or(folder);
    let expected = expected_transcript(config_dir, folder, session_id);
    if expected.is_file() {
        return Some(expected);
    }
    let beginning = project_dir_prefix(folder)?;
    let (projects, file) = (config_dir.join("projects"), expected.file_name()?);
    let alike = fs::read_dir(&projects).ok()?.flatten().filter(|entry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(&beginning))
    });
    alike.map(|entry| entry.path().join(file)).find(|path| path.is_file())
}

/// Returns the folder that takes the place of Claude Code's configuration directory for the transcripts of a session in a
/// sandbox: the agent sees those of its own conversation only.
pub(crate) fn transcripts_dir(data_dir: &Path, session_id: Uuid) -> PathBuf {
    data_dir.join("transcripts").join(session_id.to_string())
}

/// Returns the transcript of a session, which may have been begun without a sandbox.
///
/// The agent can write in the folder of its own: links there are not followed.
pub(super) fn find_transcript(data_dir: &Path, session: &Session) -> Option<PathBuf> {
    let (folder, id) = (Path::new(&session.folder), session.session_id);
    let own = locate_transcript(&transcripts_dir(data_dir, id), folder, id);
    let is_plain = |path: &PathBuf| {
        let from_data = path.strip_prefix(data_dir).map(Path::to_path_buf);
        let real = data_dir.canonicalize().and_then(|data| Ok((real_path(path)?, data)));
        real.is_ok_and(|(real, data)| from_data.is_ok_and(|inner| real == data.join(inner)))
    };
    match own {
        Some(own) => Some(own).filter(is_plain),
        None => locate_transcript(Path::new(&session.config_dir), folder, id),
    }
}

/// Copies the transcript of a session that was begun without a sandbox into the folder of its own.
pub(crate) fn adopt_transcript(
    own: &Path,
    config_dir: &Path,
    folder: &Path,
    session_id: Uuid,
) -> io::Result<()> {
    if locate_transcript(own, folder, session_id).is_some() {
        return Ok(());
    }
    let Some(outside) = locate_transcript(config_dir, folder, session_id) else { return Ok(()) };
    let Ok(inner) = outside.strip_prefix(config_dir) else { return Ok(()) };
    let copy = own.join(inner);
    create_private_dir(copy.parent().unwrap_or(own))?;
    write_atomic(&copy, &fs::read(&outside)?)
}

/// Returns the path at which Claude Code writes the transcript of a session in this directory.
pub(crate) fn expected_transcript(config_dir: &Path, folder: &Path, session_id: Uuid) -> PathBuf {
    config_dir.join("projects").join(project_dir_name(folder)).join(format!("{session_id}.jsonl"))
}

/// Returns the last `most` messages of a transcript, oldest first.
pub(crate) fn last_messages(transcript: &Path, most: usize) -> io::Result<Vec<TranscriptMessage>> {
    let text = read_end(transcript, MAX_READ_BYTES)?;
    let mut exchanges: Vec<TranscriptMessage> =
        text.lines().rev().filter_map(parse_message).take(most).collect();
    exchanges.reverse();
    Ok(exchanges)
}

/// Returns `true` if the agent completed a turn: the session can be resumed.
pub(crate) fn has_completed_turn(transcript: &Path) -> bool {
    read_end(transcript, MAX_READ_BYTES).is_ok_and(|text| {
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).any(|line| ends_turn(&line))
    })
}

/// Returns the cost that Claude Code restores when it resumes this transcript, in US dollars.
///
/// 2.1.325 continues counting from this value; 2.1.197 writes no such line and starts at zero.
pub(crate) fn restored_cost(transcript: &Path) -> f64 {
    let text = read_end(transcript, MAX_COST_BYTES).unwrap_or_default();
    let line = text.lines().rev().find(|line| line.contains(r#""type":"cost-state""#));
    let state: Option<Value> = line.and_then(|line| serde_json::from_str(line).ok());
    state.and_then(|state| state.get("totalCostUSD")?.as_f64()).unwrap_or(0.0)
}

/// Replaces every UTF-16 unit that is no ASCII letter or digit by `-`, as Claude Code does.
fn project_dir_name(folder: &Path) -> String {
    let text = folder.to_string_lossy();
    let letter = |unit: u16| u8::try_from(unit).ok().filter(u8::is_ascii_alphanumeric);
    text.encode_utf16().map(|unit| letter(unit).map_or('-', char::from)).collect()
}

/// Returns the known prefix of Claude Code's name for this directory; `None` if [`project_dir_name`] is
/// the whole name.
///
/// Claude Code (2.1.197 and 2.1.325) cuts a name after 200 characters and appends a hash. It may also compose a letter
/// and the accents behind it into one character, so nothing is certain from the last ASCII character before one.
fn project_dir_prefix(folder: &Path) -> Option<String> {
    let mut name = project_dir_name(folder);
    let text = folder.to_string_lossy();
    let ascii = text.bytes().position(|byte| !byte.is_ascii());
    if ascii.is_none() && name.len() <= MAX_DIR_NAME_CHARS {
        return None;
    }
    let sure = ascii.map_or(name.len(), |first| first.saturating_sub(1));
    name.truncate(sure.min(MAX_DIR_NAME_CHARS));
    Some(name)
}

/// Reads the last `most` bytes of a file as text, from the first complete line.
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

fn parse_message(line: &str) -> Option<TranscriptMessage> {
    let line: Value = serde_json::from_str(line).ok()?;
    let speaker = speaker(&line)?;
    let text = message_text(line.pointer("/message/content")?)?;
    let at = line.get("timestamp").and_then(Value::as_str).and_then(|at| at.parse().ok());
    Some(TranscriptMessage { speaker, at, text: shorten(&text, MAX_MESSAGE_CHARS) })
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

/// Returns the text of a message without tool calls and their results.
fn message_text(content: &Value) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Uuid = Uuid::nil();

    /// Creates a configuration directory with one transcript, in the project directory `name`.
    fn config_with(name: &str) -> (tempfile::TempDir, PathBuf) {
        let config = tempfile::tempdir().unwrap();
        let folder = config.path().join("projects").join(name);
        fs::create_dir_all(&folder).unwrap();
        let transcript = folder.join(format!("{ID}.jsonl"));
        File::create(&transcript).unwrap();
        (config, transcript)
    }

    #[test]
    fn defect_29_directories_of_other_projects_are_not_searched() {
        let (config, _) = config_with("-elsewhere");
        assert_eq!(locate_transcript(config.path(), Path::new("/work/here"), ID), None);
        let long = format!("/work/{}", "long/".repeat(60));
        assert_eq!(locate_transcript(config.path(), Path::new(&long), ID), None);
    }

    #[test]
    fn defect_29_a_shortened_directory_is_found_by_its_first_200_characters() {
        let long = format!("/work/{}", "long/".repeat(60));
        let name = format!("{}-1a2b3c", &project_dir_name(Path::new(&long))[..200]);
        let (config, transcript) = config_with(&name);
        for other in 0..50 {
            fs::create_dir(config.path().join(format!("projects/-other-{other}"))).unwrap();
        }
        assert_eq!(locate_transcript(config.path(), Path::new(&long), ID), Some(transcript));
    }

    #[test]
    fn a_linked_working_directory_is_found_by_its_target() {
        let work = tempfile::tempdir().unwrap();
        let real = work.path().canonicalize().unwrap().join("real");
        fs::create_dir(&real).unwrap();
        let link = work.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let (config, transcript) = config_with(&project_dir_name(&real));
        assert_eq!(locate_transcript(config.path(), &link, ID), Some(transcript));
    }

    #[test]
    fn non_ascii_characters_are_replaced_as_claude_code_replaces_them() {
        let (config, transcript) = config_with("-work----");
        assert_eq!(
            locate_transcript(config.path(), Path::new("/work/\u{1f600}\u{e9}"), ID),
            Some(transcript)
        );
        // Claude Code may compose `e` and its accent into one character.
        let (config, transcript) = config_with("-work-caf-");
        assert_eq!(
            locate_transcript(config.path(), Path::new("/work/cafe\u{301}"), ID),
            Some(transcript)
        );
    }
}
