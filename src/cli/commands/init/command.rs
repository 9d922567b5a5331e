//! `adjutant init [--refresh] [--dry-run] [--json]`.

use std::env;
use std::path::{Path, PathBuf};

use serde::Serialize;
use similar::TextDiff;

use super::changes::{self, Change, InitError, MAIN_PROMPT};
use super::merge::SERVER_NAME;
use crate::cli::args::Init;
use crate::cli::exit::Exit;
use crate::cli::render;
use crate::config::Settings;

pub(in crate::cli) fn run(settings: &Settings, wishes: Init) -> Exit {
    match prepare(settings, wishes) {
        Ok(changes) => {
            report(settings, wishes, &changes);
            Exit::Success
        }
        Err(error) => {
            render::problem(render::with_causes(&error));
            render::talk("nothing was changed");
            Exit::Failure
        }
    }
}

/// Renews the list of subagents where there is one, and says so: a new agent would make it out of date.
pub(in crate::cli) fn renew_section(settings: &Settings) {
    let written = changes::section_only(settings).and_then(|changes| {
        changes::write(&settings.root, &changes)?;
        Ok(changes.iter().any(Change::is_needed))
    });
    match written {
        Ok(true) => render::talk(format_args!("the list in {MAIN_PROMPT} was renewed")),
        Ok(false) | Err(InitError::NoSection) => {}
        Err(error) => render::talk(format_args!("warning: {}", render::with_causes(&error))),
    }
}

fn prepare(settings: &Settings, wishes: Init) -> Result<Vec<Change>, InitError> {
    let changes = if wishes.refresh {
        changes::section_only(settings)?
    } else {
        changes::whole(settings, &program())?
    };
    if !wishes.dry_run {
        changes::write(&settings.root, &changes)?;
    }
    Ok(changes)
}

fn report(settings: &Settings, wishes: Init, changes: &[Change]) {
    let hints = if wishes.refresh { Vec::new() } else { hints(settings) };
    if wishes.json {
        let files = changes.iter().map(|change| FileReport::of(change, wishes.dry_run)).collect();
        return render::json(&Report { dry_run: wishes.dry_run, files, hints });
    }
    for change in changes {
        if wishes.dry_run && change.is_needed() {
            render::data(diff(change).trim_end());
        } else if !wishes.dry_run {
            render::data(format_args!("{:<8} {}", action(change), change.path));
        }
        if let Some(note) = &change.note {
            render::talk(format_args!("note: `{}` {note}", change.path));
        }
    }
    if wishes.dry_run && !changes.iter().any(Change::is_needed) {
        render::talk("nothing to change");
    }
    for hint in hints {
        render::talk(format_args!("hint: {hint}"));
    }
}

#[derive(Serialize)]
struct Report {
    dry_run: bool,
    files: Vec<FileReport>,
    hints: Vec<String>,
}

#[derive(Serialize)]
struct FileReport {
    path: String,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

impl FileReport {
    fn of(change: &Change, dry_run: bool) -> Self {
        Self {
            path: change.path.clone(),
            action: action(change),
            note: change.note.clone(),
            diff: (dry_run && change.is_needed()).then(|| diff(change)),
        }
    }
}

/// What happens to a file, or would.
fn action(change: &Change) -> &'static str {
    match &change.before {
        None => "create",
        Some(_) if change.is_needed() => "update",
        Some(_) => "keep",
    }
}

fn diff(change: &Change) -> String {
    let before = change.before.as_deref().unwrap_or_default();
    let old =
        change.before.as_ref().map_or("/dev/null".to_owned(), |_| format!("a/{}", change.path));
    let diff = TextDiff::from_lines(before, &change.after);
    diff.unified_diff().header(&old, &format!("b/{}", change.path)).to_string()
}

/// What a person may want to do next, and we will not do for them.
fn hints(settings: &Settings) -> Vec<String> {
    let mut hints = Vec::new();
    let mentions = |file: &str, text: &str| {
        changes::read(&settings.root, file).ok().flatten().is_some_and(|found| found.contains(text))
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

/// How Claude Code should start this program: by name where the `PATH` finds it, else by its place.
fn program() -> String {
    let Ok(own) = env::current_exe() else { return SERVER_NAME.to_owned() };
    let found = on_path(SERVER_NAME).and_then(|path| path.canonicalize().ok());
    let same = found.is_some() && found == own.canonicalize().ok();
    if same { SERVER_NAME.to_owned() } else { own.to_string_lossy().into_owned() }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| Path::is_file(file))
}
