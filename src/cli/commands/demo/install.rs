//! Installs a pinned version of `claude` from npm into the user's cache directory, once.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::cli::output;
use crate::process::{ProcessEnd, ProcessSpec, StopMode, SymlinkPolicy, spawn_process};
use crate::store::{FileLock, create_private_dir, remove_tree, rename, write_project_file};
use crate::util::RunId;

const VERSION: &str = "2.1.325";
const PACKAGE_JSON: &str = include_str!("../../../../tests/claude-cli/2.1.325/package.json");
const PACKAGE_LOCK: &str = include_str!("../../../../tests/claude-cli/2.1.325/package-lock.json");
const INSTALL_TIMEOUT: Duration = Duration::from_mins(5);

/// Returns the installed program; installs it first if needed. The error is a message for the user.
pub(crate) async fn ensure_installed() -> Result<PathBuf, String> {
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
        Ok(_) => Err(format!("npm ci failed: {}", crate::util::one_line(&npm.stderr_tail()))),
        Err(_) => {
            npm.stop(StopMode::Kill).await;
            Err(format!("npm ci did not end within {INSTALL_TIMEOUT:?}"))
        }
    }
}

fn program_in(folder: &Path) -> PathBuf {
    folder.join("node_modules/.bin/claude")
}
