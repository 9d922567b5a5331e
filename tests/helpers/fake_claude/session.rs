//! Session files of the fake `claude`, in the directory and format of the real CLI.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::exit;

use serde_json::{Value, json};

use crate::write_frame;

/// A session, stored unless `--no-session-persistence` is set.
pub struct Session {
    pub id: String,
    /// The transcript; `None` if the session is not stored.
    file: Option<PathBuf>,
}

impl Session {
    /// Opens the session of `--resume` or `--session-id`, or a new one.
    ///
    /// Exits with 1, like the real CLI, if the session to resume is unknown or the session to create exists.
    pub fn from_arguments(arguments: &[String]) -> Self {
        let created = option_value(arguments, "--session-id");
        let resumed = option_value(arguments, "--resume");
        let id = resumed.clone().or(created.clone()).unwrap_or_else(new_id);
        let file = transcript_path(&id);
        let known = file.as_ref().is_some_and(|file| file.exists());
        if resumed.is_some() && !known {
            let text = format!("No conversation found with session ID: {id}");
            write_frame(
                &json!({"type": "result", "subtype": "error_during_execution", "is_error": true,
                "session_id": id, "num_turns": 0, "total_cost_usd": 0, "errors": [text]}),
            );
            eprintln!("{text}");
            exit(1);
        }
        if created.is_some() && known {
            eprintln!("Error: Session ID {id} is already in use.");
            exit(1);
        }
        let kept = !arguments.iter().any(|argument| argument == "--no-session-persistence");
        Self { id, file: file.filter(|_| kept) }
    }

    /// Appends a prompt; returns the prompts before it.
    pub fn append_prompt(&self, prompt: &str) -> Vec<String> {
        let Some(path) = &self.file else { return Vec::new() };
        let text = fs::read_to_string(path).unwrap_or_default();
        let before = text.lines().map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["message"]["content"].as_str().unwrap_or_default().to_owned()
        });
        let before = before.collect();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
        let line = json!({"type": "user", "sessionId": self.id, "message": {"content": prompt}});
        writeln!(file, "{line}").unwrap();
        before
    }
}

fn option_value(arguments: &[String], name: &str) -> Option<String> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.strip_prefix(name) {
            Some("") => return arguments.next().cloned(),
            Some(rest) if rest.starts_with('=') => return Some(rest[1..].to_owned()),
            _ => {}
        }
    }
    None
}

fn transcript_path(id: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".claude"))
    })?;
    let cwd = std::env::current_dir().unwrap().to_string_lossy().into_owned();
    let project: String =
        cwd.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Some(folder.join("projects").join(project).join(format!("{id}.jsonl")))
}

fn new_id() -> String {
    let random = fs::read_to_string("/proc/sys/kernel/random/uuid");
    random.map_or_else(|_| format!("fake-{}", std::process::id()), |id| id.trim().to_owned())
}
