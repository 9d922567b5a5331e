//! `adjutant init`: writes or previews the changes and reports them.

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use similar::TextDiff;

use super::changes::{self, FileChange, InitError, MAIN_PROMPT};
use super::merge::SERVER_NAME;
use crate::cli::output::error_with_causes;
use crate::cli::{
    CliCommand, CommandError, CommandReport, CommandResult, ErrorCode, JsonArgument, output,
};
use crate::config::Settings;

/// Make a project ready for Claude Code: server, hooks, a first agent, the list of subagents
///
/// Puts the server `adjutant` into .mcp.json, the hooks that this version has into
/// .claude/settings.json, a first agent into a project that has none, and the list of subagents
/// between two marks in agents/main/system-prompt.md. What is there already is kept, byte for byte;
/// run twice it changes nothing. Exit code 0; 1 if a file is not as it must be (nothing was changed);
/// 4 if a file cannot be read or written.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant init --dry-run\n  adjutant init\n  \
    adjutant init --refresh   # after agents were added, removed or described otherwise")]
pub(crate) struct InitArguments {
    /// Only renew the list of subagents between the marks in `agents/main/system-prompt.md`
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Show what would change as a diff, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) format: JsonArgument,
}

impl CliCommand for InitArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let changes = apply(settings, *self).map_err(|error| {
            let code = match error {
                InitError::Scratch(_) | InitError::Read { .. } | InitError::Write { .. } => {
                    ErrorCode::IoFailed
                }
                InitError::NotText { .. }
                | InitError::Link { .. }
                | InitError::Json { .. }
                | InitError::Marks { .. }
                | InitError::NoSection => ErrorCode::ProjectFileInvalid,
            };
            CommandError::new(
                code,
                format_args!("{}\nnothing was changed", error_with_causes(&error)),
            )
        })?;
        report(settings, *self, &changes).print(self.format)
    }
}

/// Updates the list of subagents in the main prompt, if there is one. A failure is only a warning.
pub(crate) fn refresh_section(settings: &Settings) {
    let written = changes::section_changes(settings).and_then(|changes| {
        changes::write(&settings.root, &changes)?;
        Ok(changes.iter().any(FileChange::is_needed))
    });
    match written {
        Ok(true) => output::print_message(format_args!("the list in {MAIN_PROMPT} was renewed")),
        Ok(false) | Err(InitError::NoSection) => {}
        Err(error) => {
            output::print_message(format_args!("warning: {}", error_with_causes(&error)));
        }
    }
}

fn apply(settings: &Settings, arguments: InitArguments) -> Result<Vec<FileChange>, InitError> {
    let changes = if arguments.refresh {
        changes::section_changes(settings)?
    } else {
        changes::all_changes(settings, &own_command())?
    };
    if !arguments.dry_run {
        changes::write(&settings.root, &changes)?;
    }
    Ok(changes)
}

fn report(settings: &Settings, wishes: InitArguments, changes: &[FileChange]) -> CommandReport {
    let hints = if wishes.refresh { Vec::new() } else { hints(settings) };
    let files = changes.iter().map(|change| FileChangeReport::of(change, wishes.dry_run)).collect();
    let report = InitReport { dry_run: wishes.dry_run, files, hints };
    let mut output = CommandReport::new(&report);
    if env::current_dir().is_ok_and(|current| current != settings.root) {
        output = output.message(format_args!("the project is `{}`", settings.root.display()));
    }
    for change in changes {
        if wishes.dry_run && change.is_needed() {
            output = output.data(diff(change).trim_end());
        } else if !wishes.dry_run {
            output = output.data(format_args!("{:<8} {}", action(change), change.path));
        }
        if let Some(note) = &change.note {
            output = output.message(format_args!("note: `{}` {note}", change.path));
        }
    }
    if wishes.dry_run && !changes.iter().any(FileChange::is_needed) {
        output = output.message("nothing to change");
    }
    report.hints.iter().fold(output, |output, hint| output.message(format_args!("hint: {hint}")))
}

#[derive(Serialize)]
struct InitReport {
    dry_run: bool,
    files: Vec<FileChangeReport>,
    hints: Vec<String>,
}

#[derive(Serialize)]
struct FileChangeReport {
    path: String,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

impl FileChangeReport {
    fn of(change: &FileChange, dry_run: bool) -> Self {
        Self {
            path: change.path.clone(),
            action: action(change),
            note: change.note.clone(),
            diff: (dry_run && change.is_needed()).then(|| diff(change)),
        }
    }
}

/// Returns the action on a file: `create`, `update` or `keep`.
fn action(change: &FileChange) -> &'static str {
    match &change.before {
        None => "create",
        Some(_) if change.is_needed() => "update",
        Some(_) => "keep",
    }
}

fn diff(change: &FileChange) -> String {
    let before = change.before.as_deref().unwrap_or_default();
    let old =
        change.before.as_ref().map_or("/dev/null".to_owned(), |_| format!("a/{}", change.path));
    let diff = TextDiff::from_lines(before, &change.after);
    diff.unified_diff().header(&old, &format!("b/{}", change.path)).to_string()
}

/// Returns suggestions for steps that `init` leaves to the user.
fn hints(settings: &Settings) -> Vec<String> {
    let mut hints = Vec::new();
    let mentions = |file: &str, text: &str| {
        changes::read_project_file(&settings.root, file)
            .ok()
            .flatten()
            .is_some_and(|found| found.contains(text))
    };
    if !mentions("CLAUDE.md", MAIN_PROMPT)
        && !mentions(".claude/CLAUDE.md", "main/system-prompt.md")
    {
        hints
            .push(format!("add a line `@{MAIN_PROMPT}` to CLAUDE.md, and the main agent reads it"));
    }
    if settings.root.join(".git").exists() && !mentions(".gitignore", "data/") {
        hints.push(
            "`data/` will hold conversations: keep it out of git (`/data/` in .gitignore)"
                .to_owned(),
        );
    }
    hints
}

/// Returns the command for Claude Code: the name if `PATH` resolves it to this program, else the path.
fn own_command() -> String {
    let Ok(own) = env::current_exe() else { return SERVER_NAME.to_owned() };
    let found = find_on_path(SERVER_NAME).and_then(|path| path.canonicalize().ok());
    let same = found.is_some() && found == own.canonicalize().ok();
    if same { SERVER_NAME.to_owned() } else { own.to_string_lossy().into_owned() }
}

fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| Path::is_file(file))
}
