//! Which `claude` is started, and what it can do: asked once per binary.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::base::{RunId, create_private_dir, find_program, read_bounded, write_atomic};
use crate::config::Settings;
use crate::outcome::{Code, Failure};
use crate::plan::Features;
use crate::worker::{Launch, Links, Process, Urgency, start};

const PROBE_PATIENCE: Duration = Duration::from_secs(30);
const MAX_HELP_BYTES: u64 = 1 << 20;
const INSTALL: &str =
    "install it with `npm install -g @anthropic-ai/claude-code`, or name one in ADJUTANT_CLAUDE";

/// A `claude` that was found and asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// What it can do.
    pub features: Features,
}

/// Remembers what each binary said, in memory and in the user's cache folder.
#[derive(Debug, Default)]
pub struct Programs {
    known: Mutex<HashMap<Stamp, Features>>,
    /// Held by whoever asks: many agents that start at once ask once.
    asking: tokio::sync::Mutex<()>,
}

/// A binary as it is now: replaced, it is another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Stamp {
    path: PathBuf,
    modified: SystemTime,
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
struct Remembered {
    stamp: Stamp,
    features: Features,
}

impl Programs {
    /// The `claude` to start, with its features.
    pub async fn find(&self, settings: &Settings) -> Result<Program, Failure> {
        let path = locate(settings)?;
        let stamp = stamp(&path).map_err(|error| unusable(&path, &error.to_string()))?;
        let features = match self.recall(&stamp) {
            Some(features) => features,
            None => self.learn(&path, stamp).await?,
        };
        let missing = features.missing();
        if missing.is_empty() {
            return Ok(Program { path, features });
        }
        let what = format!(
            "`{}` (version {}) has no {}",
            path.display(),
            features.version,
            missing.join(", ")
        );
        Err(Failure::new(
            Code::SpawnFailed,
            what,
            "update Claude Code: without them an agent could not be kept apart",
        ))
    }

    fn recall(&self, stamp: &Stamp) -> Option<Features> {
        let mut known = self.known.lock().ok()?;
        if let Some(features) = known.get(stamp) {
            return Some(features.clone());
        }
        let bytes = read_bounded(&cache_file(stamp)?, MAX_HELP_BYTES).ok()?;
        let remembered: Remembered = serde_json::from_slice(&bytes).ok()?;
        (remembered.stamp == *stamp).then(|| {
            known.insert(stamp.clone(), remembered.features.clone());
            remembered.features
        })
    }

    async fn learn(&self, path: &Path, stamp: Stamp) -> Result<Features, Failure> {
        let _asking = self.asking.lock().await;
        if let Some(features) = self.recall(&stamp) {
            return Ok(features);
        }
        let (help, version) = tokio::try_join!(ask(path, "--help"), ask(path, "--version"))?;
        let features = Features::parse(&help, &version);
        remember(&stamp, &features);
        if let Ok(mut known) = self.known.lock() {
            known.insert(stamp, features.clone());
        }
        Ok(features)
    }
}

/// The program that was asked for by name, or the first `claude` on the `PATH`.
pub fn locate(settings: &Settings) -> Result<PathBuf, Failure> {
    let wanted = settings.claude.as_deref().unwrap_or(Path::new("claude"));
    let found = find_program(wanted, env::var_os("PATH").as_deref());
    found.ok_or_else(|| {
        let what = match &settings.claude {
            Some(path) => format!("`{}` (from ADJUTANT_CLAUDE) is no program", path.display()),
            None => "`claude` is not on the PATH".to_owned(),
        };
        Failure::new(Code::SpawnFailed, what, INSTALL)
    })
}

fn stamp(path: &Path) -> std::io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    let path = path.canonicalize()?;
    Ok(Stamp { path, modified: metadata.modified()?, bytes: metadata.len() })
}

/// One answer of the program, within a time and a size.
async fn ask(path: &Path, flag: &str) -> Result<String, Failure> {
    let launch = Launch {
        label: "claude".to_owned(),
        run: RunId::new(),
        program: path.to_path_buf(),
        arguments: vec![flag.into()],
        environment: ["PATH", "HOME"]
            .into_iter()
            .filter_map(|n| Some((n.into(), env::var_os(n)?)))
            .collect(),
        folder: env::temp_dir(),
        links: Links::Follow,
    };
    let mut process = start(launch).await.map_err(|error| unusable(path, &error.to_string()))?;
    process.stdin = None;
    let answer = timeout(PROBE_PATIENCE, read_all(&mut process)).await;
    process.end(Urgency::Now).await;
    match answer {
        Ok(Ok(text)) if !text.trim().is_empty() => Ok(text),
        Ok(Ok(_)) => {
            Err(unusable(path, &format!("`{flag}` printed nothing; {}", process.stderr_tail())))
        }
        Ok(Err(error)) => Err(unusable(path, &error.to_string())),
        Err(_) => {
            Err(unusable(path, &format!("`{flag}` did not answer within {PROBE_PATIENCE:?}")))
        }
    }
}

async fn read_all(process: &mut Process) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stdout) = process.stdout.take() {
        stdout.take(MAX_HELP_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn unusable(path: &Path, why: &str) -> Failure {
    let what = format!("`{}` could not be started: {why}", path.display());
    Failure::new(Code::SpawnFailed, what, "run `adjutant doctor` to see what is wrong")
}

/// Where a binary's answers are kept; one file per path, so that two projects do not push each other out.
fn cache_file(stamp: &Stamp) -> Option<PathBuf> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    stamp.path.hash(&mut hasher);
    Some(dirs::cache_dir()?.join("adjutant").join(format!("claude-{:016x}.json", hasher.finish())))
}

/// A cache that cannot be written costs time, nothing else.
fn remember(stamp: &Stamp, features: &Features) {
    let Some(file) = cache_file(stamp) else { return };
    let remembered = Remembered { stamp: stamp.clone(), features: features.clone() };
    let written = file
        .parent()
        .map_or(Ok(()), create_private_dir)
        .and_then(|()| write_atomic(&file, &serde_json::to_vec(&remembered)?));
    if let Err(error) = written {
        tracing::debug!(%error, "what `claude` can do could not be remembered");
    }
}
