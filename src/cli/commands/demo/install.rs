//! The real `claude` from npm, pinned, into the user's cache folder; once.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::base::{FileLock, RunId, create_private_dir, remove_tree, rename, write_project_file};
use crate::cli::render;
use crate::worker::{Launch, Links, ProcessEnd, Urgency, start};

const VERSION: &str = "2.1.325";
const PACKAGE: &str = include_str!("../../../../tests/claude-cli/2.1.325/package.json");
const LOCK: &str = include_str!("../../../../tests/claude-cli/2.1.325/package-lock.json");
const PATIENCE: Duration = Duration::from_mins(5);

/// The installed program, or why there is none, in words for a person.
pub(super) async fn claude() -> Result<PathBuf, String> {
    let cache = dirs::cache_dir().ok_or("there is no cache folder")?.join("adjutant/claude-cli");
    let ready = cache.join(VERSION);
    if program_in(&ready).exists() {
        return Ok(program_in(&ready));
    }
    create_private_dir(&cache).map_err(|error| error.to_string())?;
    let lock = FileLock::acquire(&cache.join("install.lock"), PATIENCE)
        .map_err(|error| error.to_string())?;
    if !program_in(&ready).exists() {
        render::talk(format_args!(
            "Installing claude {VERSION} with npm, once, into {} …",
            ready.display()
        ));
        install_into(&ready).await?;
    }
    drop(lock);
    Ok(program_in(&ready))
}

/// Installs beside the final place and renames: nobody ever sees half of it.
async fn install_into(ready: &Path) -> Result<(), String> {
    let partial = ready.with_extension("partial");
    let written = remove_tree(&partial)
        .and_then(|()| write_project_file(&partial.join("package.json"), PACKAGE.as_bytes()))
        .and_then(|()| write_project_file(&partial.join("package-lock.json"), LOCK.as_bytes()));
    written.map_err(|error| error.to_string())?;
    npm_ci(&partial).await?;
    rename(&partial, ready).map_err(|error| error.to_string())
}

async fn npm_ci(folder: &Path) -> Result<(), String> {
    let launch = Launch {
        label: "npm".to_owned(),
        run: RunId::new(),
        program: "npm".into(),
        arguments: ["ci", "--no-audit", "--no-fund", "--loglevel=error"].map(Into::into).into(),
        // npm is the user's own tool: its proxies, caches and registries are in the environment.
        environment: env::vars_os().collect(),
        folder: folder.to_path_buf(),
        links: Links::Follow,
    };
    let mut npm = start(launch).await.map_err(|error| format!("npm is not there ({error})"))?;
    npm.stdin = None;
    let mut said = Vec::new();
    let all = async {
        if let Some(stdout) = npm.stdout.take() {
            let _ = stdout.take(1 << 20).read_to_end(&mut said).await;
        }
        npm.wait().await
    };
    match timeout(PATIENCE, all).await {
        Ok(ProcessEnd::Exited(0)) => Ok(()),
        Ok(_) => Err(format!("npm ci failed: {}", crate::base::one_line(&npm.stderr_tail()))),
        Err(_) => {
            npm.end(Urgency::Now).await;
            Err(format!("npm ci did not end within {PATIENCE:?}"))
        }
    }
}

fn program_in(folder: &Path) -> PathBuf {
    folder.join("node_modules/.bin/claude")
}
