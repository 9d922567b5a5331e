//! The project's other files, as far as the catalog can judge them: `.claude/settings.json`, extensions, and the
//! main agent's list of subagents. `.mcp.json` and the rules are judged by those who read them.

use std::path::Path;

use super::diagnostic::Diagnostic;
use super::json_file::{JsonCheck, member};
use super::load::{read_text, relative, whole_file};
use super::snapshot::Snapshot;
use super::stamp::Stamps;
use super::subagents_section::{self, BEGIN, END};
use crate::config::Settings;

/// What was looked at, and what was found.
#[derive(Debug, Default)]
pub struct ProjectCheck {
    /// Findings, file by file.
    pub diagnostics: Vec<Diagnostic>,
    /// How many files there were to look at.
    pub files: usize,
}

/// Checks the agents, `defaults.yaml`, and the files around them. The gateway's two files are its own to judge.
pub fn check_project(settings: &Settings, snapshot: &Snapshot) -> ProjectCheck {
    let mut check = check_catalog(settings, snapshot);
    let root = &settings.root;
    check.file(root, &root.join(".claude/settings.json"), check_claude_settings);
    check.file(root, &root.join("agents/main/system-prompt.md"), |text, file| {
        check_section(text, file, snapshot)
    });
    check
}

fn check_catalog(settings: &Settings, snapshot: &Snapshot) -> ProjectCheck {
    let mut diagnostics = snapshot.folder_diagnostics().to_vec();
    diagnostics.extend_from_slice(snapshot.defaults_diagnostics());
    for entry in snapshot.entries() {
        // A broken `defaults.yaml` is said once, where it stands.
        let own = entry.diagnostics.iter().filter(|found| found.code != super::DEFAULTS_BROKEN);
        diagnostics.extend(own.cloned());
    }
    let files = snapshot.entries().len()
        + snapshot.extensions().len()
        + usize::from(settings.defaults_file().exists());
    ProjectCheck { diagnostics, files }
}

impl ProjectCheck {
    /// Checks one more file of the project, if it is there.
    fn file(
        &mut self,
        root: &Path,
        path: &Path,
        check: impl FnOnce(&str, &Path) -> Vec<Diagnostic>,
    ) {
        let file = relative(root, path);
        match read_text(root, path, &file, &mut Stamps::default()) {
            Ok(None) => {}
            Ok(Some(text)) => {
                self.files += 1;
                self.diagnostics.extend(check(&text, &file));
            }
            Err(problem) => {
                self.files += 1;
                self.diagnostics.push(*problem);
            }
        }
    }

    /// Checks one more file that somebody else has read, if it was there.
    pub fn text(
        &mut self,
        root: &Path,
        path: &Path,
        text: Result<Option<String>, String>,
        check: impl FnOnce(&str, &Path) -> Vec<Diagnostic>,
    ) {
        let file = relative(root, path);
        match text {
            Ok(None) => return,
            Ok(Some(text)) => self.diagnostics.extend(check(&text, &file)),
            Err(reason) => {
                let message = format!("this cannot be read: {reason}");
                self.diagnostics.push(whole_file(&file, "unreadable", message));
            }
        }
        self.files += 1;
    }
}

fn check_claude_settings(text: &str, file: &Path) -> Vec<Diagnostic> {
    let mut check = JsonCheck::new(file);
    if let Some(value) = check.parse(text)
        && let Some(members) = check.object(&value, "the file")
    {
        if let Some(servers) = member(members, "mcpServers") {
            let message = "Claude Code does not read `mcpServers` here".to_owned();
            check.warning("not-read", servers.line, message, "move it to `.mcp.json`");
        }
        if let Some(hooks) = member(members, "hooks") {
            check.object(&hooks.value, "`hooks`");
        }
    }
    check.found
}

/// Whether the main agent's prompt names the agents that there are.
fn check_section(text: &str, file: &Path, snapshot: &Snapshot) -> Vec<Diagnostic> {
    let mut check = JsonCheck::new(file);
    let line = |marker| {
        let index = text.lines().position(|line| line.contains(marker));
        index.and_then(|index| u32::try_from(index + 1).ok())
    };
    let refresh = "run `adjutant init --refresh`";
    match (line(BEGIN), line(END)) {
        (None, None) => {}
        (Some(begin), None) => {
            let message = "the subagents section is opened and never closed".to_owned();
            check.error("unterminated-section", begin, message, &format!("add `{END}`"));
        }
        (begin, Some(end)) => match subagents_section::find(text) {
            None => {
                let message = "the subagents section is closed before it is opened".to_owned();
                check.error("unterminated-section", end, message, &format!("put `{BEGIN}` first"));
            }
            Some(section) if section != subagents_section::render(snapshot) => {
                let message =
                    "the subagents section does not match the agents there are".to_owned();
                check.error("stale-section", begin.unwrap_or(end), message, refresh);
            }
            Some(_) => {}
        },
    }
    check.found
}
