//! Chooses the programs and the model of the demo; installs a pinned `claude` from npm if there is none.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, io};

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::project::DemoProject;
use super::stand_in;
use crate::cli::output;
use crate::config::Settings;
use crate::delegation::{find_credentials, locate_program};
use crate::process::{ProcessEnd, ProcessSpec, StopMode, SymlinkPolicy, spawn_process};
use crate::scripted_model::ScriptedModel;
use crate::store::{FileLock, create_private_dir, remove_tree, rename, write_project_file};
use crate::util::{RunId, one_line};

const VERSION: &str = "2.1.325";
const PACKAGE_JSON: &str = include_str!("../../../../tests/claude-cli/2.1.325/package.json");
const PACKAGE_LOCK: &str = include_str!("../../../../tests/claude-cli/2.1.325/package-lock.json");
const INSTALL_TIMEOUT: Duration = Duration::from_mins(5);

/// Programs and model of one demo.
pub(crate) struct DemoCast {
    /// Program of the subagent, and of the main agent unless it is a stand-in.
    pub(crate) claude: PathBuf,
    /// True without a `claude`: the demo itself calls Adjutant as the main agent.
    pub(crate) is_stand_in: bool,
    pub(crate) model: Option<ScriptedModel>,
    pub(crate) is_scripted: bool,
    pub(crate) introduction: String,
}

/// Chooses `claude` with credentials, else `claude` with a scripted model, else the stand-in.
pub(crate) async fn choose(
    settings: &Settings,
    project: &DemoProject,
    scripted: bool,
) -> io::Result<DemoCast> {
    let found = locate_program(settings).ok();
    let signed_in = find_credentials().filter(|_| !scripted);
    if let (Some(claude), Some(place)) = (&found, signed_in) {
        let introduction = format!(
            "   main         claude ({})\n   \
             web-search   a second claude, started by Adjutant\n   \
             the model    the real one, with {place}; this costs a few cents",
            claude.display()
        );
        let claude = claude.clone();
        return Ok(DemoCast {
            claude,
            is_stand_in: false,
            model: None,
            is_scripted: false,
            introduction,
        });
    }
    let why = match (&found, scripted) {
        (_, true) => "as you asked, the model is scripted: it costs nothing and needs no account",
        (None, _) => "there is no `claude` on the PATH, so a scripted model plays the model",
        (Some(_), _) => "there are no credentials, so a scripted model plays the model",
    };
    let claude = match found {
        Some(claude) => Ok(claude),
        None => ensure_installed().await,
    };
    let (claude, model, introduction) = match claude {
        Ok(claude) => {
            let introduction = format!(
                "   main         the real claude ({})\n   \
                 web-search   a second real claude, started by Adjutant\n   \
                 the model    scripted, on this machine: {why}",
                claude.display()
            );
            (claude, Some(ScriptedModel::start()?), introduction)
        }
        Err(reason) => {
            let introduction = format!(
                "   There is no claude here, and it could not be installed: {reason}\n   \
                 main         a STAND-IN inside this demo, not a claude\n   \
                 web-search   a STAND-IN that speaks claude's language, started by the real Adjutant\n   \
                 the model    none: the stand-ins follow a script"
            );
            (stand_in::install_into(project.scratch_dir())?, None, introduction)
        }
    };
    Ok(DemoCast { claude, is_stand_in: model.is_none(), model, is_scripted: true, introduction })
}

/// Returns the installed program; installs it first if needed. The error is a message for the user.
async fn ensure_installed() -> Result<PathBuf, String> {
    let cache = dirs::cache_dir().ok_or("there is no cache folder")?.join("adjutant/claude-cli");
    let ready = cache.join(VERSION);
    if program_in(&ready).exists() {
        return Ok(program_in(&ready));
    }
    create_private_dir(&cache).map_err(|error| error.to_string())?;
    let lock = FileLock::acquire(&cache.join("install.lock"), INSTALL_TIMEOUT)
        .map_err(|error| error.to_string())?;
    if !program_in(&ready).exists() {
        output::print_message(format_args!(
            "Installing claude {VERSION} with npm, once, into {} …",
            ready.display()
        ));
        install_into(&ready).await?;
    }
    drop(lock);
    Ok(program_in(&ready))
}

/// Installs next to `ready` and renames: an incomplete installation is never visible.
async fn install_into(ready: &Path) -> Result<(), String> {
    let partial = ready.with_extension("partial");
    let written = remove_tree(&partial)
        .and_then(|()| write_project_file(&partial.join("package.json"), PACKAGE_JSON.as_bytes()))
        .and_then(|()| {
            write_project_file(&partial.join("package-lock.json"), PACKAGE_LOCK.as_bytes())
        });
    written.map_err(|error| error.to_string())?;
    npm_ci(&partial).await?;
    rename(&partial, ready).map_err(|error| error.to_string())
}

async fn npm_ci(folder: &Path) -> Result<(), String> {
    let launch = ProcessSpec {
        label: "npm".to_owned(),
        run: RunId::new(),
        program: "npm".into(),
        arguments: ["ci", "--no-audit", "--no-fund", "--loglevel=error"].map(Into::into).into(),
        // npm reads the user's proxies, caches and registries from the environment.
        environment: env::vars_os().collect(),
        working_dir: folder.to_path_buf(),
        symlinks: SymlinkPolicy::Follow,
    };
    let mut npm =
        spawn_process(launch).await.map_err(|error| format!("npm is not there ({error})"))?;
    npm.stdin = None;
    let mut said = Vec::new();
    let all = async {
        if let Some(stdout) = npm.stdout.take() {
            let _ = stdout.take(1 << 20).read_to_end(&mut said).await;
        }
        npm.wait().await
    };
    match timeout(INSTALL_TIMEOUT, all).await {
        Ok(ProcessEnd::Exited(0)) => Ok(()),
        Ok(_) => Err(format!("npm ci failed: {}", one_line(&npm.stderr_tail()))),
        Err(_) => {
            npm.stop(StopMode::Kill).await;
            Err(format!("npm ci did not end within {INSTALL_TIMEOUT:?}"))
        }
    }
}

fn program_in(folder: &Path) -> PathBuf {
    folder.join("node_modules/.bin/claude")
}
