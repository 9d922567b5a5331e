//! The project's other files, as far as the catalog can judge them: `.mcp.json`, `.claude/settings.json`,
//! extensions, and the main agent's list of subagents.

use std::path::Path;

use super::diagnostic::Diagnostic;
use super::json_file::{JsonCheck, member};
use super::load::{read_text, relative};
use super::snapshot::Snapshot;
use super::stamp::Stamps;
use super::subagents_section::{self, BEGIN, END};
use crate::base::{LinedMember, LinedValue};
use crate::config::{GatewayFiles, Settings};

/// What was looked at, and what was found.
#[derive(Debug, Default)]
pub struct ProjectCheck {
    /// Findings, file by file.
    pub diagnostics: Vec<Diagnostic>,
    /// How many files there were to look at.
    pub files: usize,
}

/// Checks the agents, `defaults.yaml`, and the files around them. Gateway rules are `policy`'s to judge.
pub fn check_project(settings: &Settings, snapshot: &Snapshot) -> ProjectCheck {
    let mut check = check_catalog(settings, snapshot);
    let root = &settings.root;
    let servers = GatewayFiles::locate(settings).mcp_config;
    if servers.found {
        check.file(root, &servers.path, check_mcp_config);
    }
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
    /// Checks one more file, if it is there.
    pub fn file(
        &mut self,
        root: &Path,
        path: &Path,
        check: impl FnOnce(&str, &Path) -> Vec<Diagnostic>,
    ) {
        let file = relative(root, path);
        // A file that a variable names may lie elsewhere; what it links to must lie beside it.
        let home = if path.starts_with(root) { root } else { path.parent().unwrap_or(root) };
        match read_text(home, path, &file, &mut Stamps::default()) {
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
}

fn check_mcp_config(text: &str, file: &Path) -> Vec<Diagnostic> {
    let mut check = JsonCheck::new(file);
    if let Some(value) = check.parse(text)
        && let Some(members) = check.object(&value, "the file")
    {
        if let Some(servers) = member(members, "mcpServers") {
            check_servers(&servers.value, &mut check);
        } else {
            let message = "there is no `mcpServers`".to_owned();
            check.error("missing-key", value.line, message, "write `{ \"mcpServers\": {} }`");
        }
    }
    check.found
}

fn check_servers(value: &LinedValue, check: &mut JsonCheck<'_>) {
    for server in check.object(value, "`mcpServers`").unwrap_or_default() {
        let what = format!("the server `{}`", server.key);
        if let Some(members) = check.object(&server.value, &what) {
            check_server(server, members, &what, check);
        }
    }
}

fn check_server(
    server: &LinedMember,
    members: &[LinedMember],
    what: &str,
    check: &mut JsonCheck<'_>,
) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if server.key.is_empty() || !server.key.chars().all(allowed) || server.key.contains("__") {
        let message = format!("`{}` cannot be a server's name", server.key);
        let help = "use letters, digits, `-`, `_` and `.`, and no `__`";
        check.error("invalid-server-name", server.line, message, help);
    }
    for member in members {
        let what = format!("`{}` of {what}", member.key);
        match member.key.as_str() {
            "command" | "url" | "httpUrl" | "cwd" | "type" | "description" => {
                check.text(&member.value, &what);
            }
            "args" => check.texts(&member.value, &what),
            "env" | "headers" => check.text_map(&member.value, &what),
            _ => {}
        }
    }
    let has = |key| member(members, key).is_some();
    if !has("command") && !has("url") && !has("httpUrl") {
        let message = format!("{what} has neither `command` nor `url`");
        check.error("missing-key", server.line, message, "say how it is reached");
    } else if has("command") && has("url") {
        let message = format!("{what} has both `command` and `url`");
        check.error("conflicting-keys", server.line, message, "keep one of them");
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
