//! Project check: agents, `defaults.yaml`, extensions, and the files of the main agent.
//!
//! The latter are `.claude/settings.json` and the subagent list in the main agent's prompt.
//!
//! `.mcp.json` and the gateway rules are checked by the gateway.

use std::path::Path;

use super::diagnostic::Diagnostic;
use super::load::{display_path, file_error, read_text};
use super::snapshot::Snapshot;
use super::subagent_list;
use super::subagent_list::{SECTION_BEGIN, SECTION_END};
use crate::catalog::parse::{JsonCheck, member};
use crate::config::Settings;
use crate::store::FileDependencies;

/// Result of a project check.
#[derive(Debug, Default)]
pub(crate) struct ProjectCheck {
    /// Findings, grouped by file.
    pub diagnostics: Vec<Diagnostic>,
    /// Number of checked files.
    pub files: usize,
}

/// Checks all files except those of the gateway.
pub(crate) fn check_project(settings: &Settings, snapshot: &Snapshot) -> ProjectCheck {
    let mut check = check_catalog(settings, snapshot);
    let root = &settings.root;
    check.check_file(root, &root.join(".claude/settings.json"), check_claude_settings);
    check.check_file(root, &root.join("agents/main/system-prompt.md"), |text, file| {
        check_section(text, file, snapshot)
    });
    check
}

fn check_catalog(settings: &Settings, snapshot: &Snapshot) -> ProjectCheck {
    let mut diagnostics = snapshot.folder_diagnostics().to_vec();
    diagnostics.extend_from_slice(snapshot.defaults_diagnostics());
    for entry in snapshot.entries() {
        // Errors of `defaults.yaml` are reported once, at the file itself.
        let own = entry
            .diagnostics
            .iter()
            .filter(|found| found.code != super::load_agent::DEFAULTS_BROKEN);
        diagnostics.extend(own.cloned());
    }
    let files = snapshot.entries().len()
        + snapshot.extensions().len()
        + usize::from(settings.defaults_file().exists());
    ProjectCheck { diagnostics, files }
}

impl ProjectCheck {
    /// Checks a file of the project, if it exists.
    fn check_file(
        &mut self,
        root: &Path,
        path: &Path,
        check: impl FnOnce(&str, &Path) -> Vec<Diagnostic>,
    ) {
        let file = display_path(root, path);
        match read_text(root, path, &file, &mut FileDependencies::default()) {
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

    /// Checks a file whose text the caller has read; `Ok(None)` if the file does not exist.
    pub(crate) fn check_text(
        &mut self,
        root: &Path,
        path: &Path,
        text: Result<Option<String>, String>,
        check: impl FnOnce(&str, &Path) -> Vec<Diagnostic>,
    ) {
        let file = display_path(root, path);
        match text {
            Ok(None) => return,
            Ok(Some(text)) => self.diagnostics.extend(check(&text, &file)),
            Err(reason) => {
                let message = format!("this cannot be read: {reason}");
                self.diagnostics.push(file_error(&file, "unreadable", message));
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

/// Compares the subagent list in the main agent's prompt with the catalog.
fn check_section(text: &str, file: &Path, snapshot: &Snapshot) -> Vec<Diagnostic> {
    let mut check = JsonCheck::new(file);
    let line = |marker| {
        let index = text.lines().position(|line| line.contains(marker));
        index.and_then(|index| u32::try_from(index + 1).ok())
    };
    let refresh = "run `adjutant check --fix`";
    match (line(SECTION_BEGIN), line(SECTION_END)) {
        (None, None) => {}
        (Some(begin), None) => {
            let message = "the subagents section is opened and never closed".to_owned();
            check.error("unterminated-section", begin, message, &format!("add `{SECTION_END}`"));
        }
        (begin, Some(end)) => match subagent_list::find_section(text) {
            None => {
                let message = "the subagents section is closed before it is opened".to_owned();
                check.error(
                    "unterminated-section",
                    end,
                    message,
                    &format!("put `{SECTION_BEGIN}` first"),
                );
            }
            Some(section) if section != subagent_list::render_section(snapshot) => {
                let message =
                    "the subagents section does not match the agents there are".to_owned();
                check.warning("stale-section", begin.unwrap_or(end), message, refresh);
            }
            Some(_) => {}
        },
    }
    check.found
}
