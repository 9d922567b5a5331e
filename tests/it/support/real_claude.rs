//! The real `claude`, installed once for all tests, and a scripted model to run it against.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use adjutant::base::FileLock;
use adjutant::scripted::ScriptedModel;

/// The `claude` of this version, installed at first use; `None`, said aloud, where that cannot be.
///
/// `ADJUTANT_TEST_CLAUDE_DIR` names a folder that has `<version>/node_modules/.bin/claude` already.
pub fn real_claude(version: &str) -> Option<PathBuf> {
    let installed = installed_elsewhere(version).map_or_else(|| install(version), Ok);
    match installed {
        Ok(path) => Some(path),
        Err(why) => {
            // A developer without npm can work; a build that skips these tests proves nothing.
            assert!(std::env::var_os("CI").is_none(), "claude {version} is missing: {why}");
            eprintln!("SKIPPED, for want of claude {version}: {why}");
            None
        }
    }
}

fn installed_elsewhere(version: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("ADJUTANT_TEST_CLAUDE_DIR")?);
    Some(program_in(&folder.join(version))).filter(|path| path.exists())
}

fn install(version: &str) -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is below `target`");
    let folder = target.join("claude-cli");
    let ready = folder.join(version);
    if program_in(&ready).exists() {
        return Ok(program_in(&ready));
    }
    fs::create_dir_all(&folder).expect("a folder in `target`");
    let lock = folder.join(format!("{version}.lock"));
    let _lock = FileLock::acquire(&lock, Duration::from_mins(5)).map_err(|e| e.to_string())?;
    if !program_in(&ready).exists() {
        install_into(&ready, version)?;
    }
    Ok(program_in(&ready))
}

/// Installs beside the final place and renames: nobody ever sees half of it.
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

fn program_in(folder: &Path) -> PathBuf {
    folder.join("node_modules/.bin/claude")
}

/// What the real `claude` needs in its environment to talk to the scripted model and to nobody else.
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
