//! The real `claude`, installed once for all tests, and its environment for a scripted model.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use adjutant::scripted_model::ScriptedModel;
use adjutant::store::FileLock;

use super::skip::or_skip;

/// The `claude` of this version, installed at first use. `None`, with a message, if it cannot be installed.
///
/// `ADJUTANT_TEST_CLAUDE_DIR` names a directory with an existing `<version>/node_modules/.bin/claude`.
pub fn real_claude(version: &str) -> Option<PathBuf> {
    let installed = preinstalled_claude(version).map_or_else(|| install_claude(version), Ok);
    or_skip(installed.map_err(|why| format!("claude {version} cannot be installed: {why}")))
}

fn preinstalled_claude(version: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("ADJUTANT_TEST_CLAUDE_DIR")?);
    Some(claude_path(&folder.join(version))).filter(|path| path.exists())
}

fn install_claude(version: &str) -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is below `target`");
    let folder = target.join("claude-cli");
    let ready = folder.join(version);
    if claude_path(&ready).exists() {
        return Ok(claude_path(&ready));
    }
    fs::create_dir_all(&folder).expect("a folder in `target`");
    let lock = folder.join(format!("{version}.lock"));
    let _lock = FileLock::acquire(&lock, Duration::from_mins(5)).map_err(|e| e.to_string())?;
    if !claude_path(&ready).exists() {
        install_into(&ready, version)?;
    }
    Ok(claude_path(&ready))
}

/// Installs into `<version>.partial` and renames it, so that no other process sees a partial installation.
fn install_into(ready: &Path, version: &str) -> Result<(), String> {
    let pinned = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/claude-cli").join(version);
    let partial = ready.with_file_name(format!("{version}.partial"));
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).expect("a folder in `target`");
    for file in ["package.json", "package-lock.json"] {
        fs::copy(pinned.join(file), partial.join(file)).expect("the pinned files");
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(&partial);
    let output = npm.output().map_err(|error| format!("npm cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("npm ci failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    fs::rename(&partial, ready).map_err(|error| error.to_string())
}

fn claude_path(folder: &Path) -> PathBuf {
    folder.join("node_modules/.bin/claude")
}

/// Environment of a real `claude` that talks to the scripted model and to nothing else.
pub fn scripted_environment(model: &ScriptedModel, home: &Path) -> Vec<(&'static str, String)> {
    let home = home.display().to_string();
    vec![
        ("PATH", std::env::var("PATH").unwrap_or_default()),
        ("CLAUDE_CONFIG_DIR", format!("{home}/.claude")),
        ("HOME", home),
        ("ANTHROPIC_BASE_URL", model.base_url()),
        ("ANTHROPIC_API_KEY", "sk-ant-scripted".to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ("DISABLE_TELEMETRY", "1".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
    ]
}
