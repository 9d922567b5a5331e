//! Claude Code on this machine: the binary and its features, cached per binary, its configuration directory, and
//! credentials for the model.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fmt, fs};

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::config::Settings;
use crate::outcome::{Code, Failure};
use crate::plan::CliFeatures;
use crate::process::{
    ProcessHandle, ProcessSpec, StopMode, SymlinkPolicy, find_program, spawn_process,
};
use crate::store::{Document, DocumentError, Stored};
use crate::util::{Mutex, RunId, run_blocking};

const PROBE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_HELP_BYTES: u64 = 1 << 20;
const INSTALL_HELP: &str =
    "install it with `npm install -g @anthropic-ai/claude-code`, or name one in ADJUTANT_CLAUDE";

/// Variables that hold credentials for `claude` or select a provider.
const CREDENTIAL_VARIABLES: [&str; 6] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
];

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ClaudeProgram {
    pub path: PathBuf,
    pub features: CliFeatures,
}

/// Cache of the features of each binary, in memory and in the user's cache directory.
#[derive(Debug, Default)]
pub(crate) struct ProgramCache {
    features: Mutex<HashMap<ProgramVersion, CliFeatures>>,
    /// Held while a binary is probed, so that concurrent runs probe it once.
    probe_lock: tokio::sync::Mutex<()>,
}

/// Identity of a binary; changes when the file is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct ProgramVersion {
    path: PathBuf,
    modified: SystemTime,
    bytes: u64,
}

/// A file of the cache. It has no format number: one that cannot be read is probed again and replaced.
#[derive(Serialize, Deserialize)]
struct CachedFeatures {
    stamp: ProgramVersion,
    features: CliFeatures,
}

impl Stored for CachedFeatures {
    const FORMAT: u32 = 1;
    const MAX_BYTES: u64 = MAX_HELP_BYTES;

    fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

impl ProgramCache {
    /// Returns the `claude` to start, with its features. Probes an unknown binary for at most 30 s.
    pub(crate) async fn find(&self, settings: &Settings) -> Result<ClaudeProgram, Failure> {
        let path = locate_program(settings)?;
        let stamp = program_version(&path).map_err(|error| probe_failed(&path, &error))?;
        let features = match self.cached(&stamp) {
            Some(features) => features,
            None => self.probe(&path, stamp).await?,
        };
        let missing = features.missing_required();
        if missing.is_empty() {
            return Ok(ClaudeProgram { path, features });
        }
        let (path, version, missing) = (path.display(), features.version, missing.join(", "));
        let what = format!("`{path}` (version {version}) has no {missing}");
        let help = "update Claude Code: without them an agent could not be kept apart";
        Err(Failure::new(Code::SpawnFailed, what, help))
    }

    fn cached(&self, stamp: &ProgramVersion) -> Option<CliFeatures> {
        let mut known = self.features.lock();
        if let Some(features) = known.get(stamp) {
            return Some(features.clone());
        }
        // Only because this is a cache, a file that cannot be read is like a missing one: the binary is asked again.
        let remembered = cache_document(stamp)?.read().ok()??;
        (remembered.stamp == *stamp).then(|| {
            known.insert(stamp.clone(), remembered.features.clone());
            remembered.features.clone()
        })
    }

    async fn probe(&self, path: &Path, stamp: ProgramVersion) -> Result<CliFeatures, Failure> {
        let _asking = self.probe_lock.lock().await;
        if let Some(features) = self.cached(&stamp) {
            return Ok(features);
        }
        let (help, version) =
            tokio::try_join!(run_with_flag(path, "--help"), run_with_flag(path, "--version"))?;
        let features = CliFeatures::parse(&help, &version);
        let remembered = CachedFeatures { stamp: stamp.clone(), features: features.clone() };
        // A failure costs only time.
        if let Some(Err(error)) = run_blocking(move || write_cache(&remembered)).await {
            tracing::debug!(%error, "what `claude` can do could not be remembered");
        }
        self.features.lock().insert(stamp, features.clone());
        Ok(features)
    }
}

/// Returns the path of `ADJUTANT_CLAUDE`, or of the first `claude` on the `PATH`.
pub(crate) fn locate_program(settings: &Settings) -> Result<PathBuf, Failure> {
    let wanted = settings.claude.as_deref().unwrap_or(Path::new("claude"));
    let found = find_program(wanted, env::var_os("PATH").as_deref());
    found.ok_or_else(|| {
        let what = match &settings.claude {
            Some(path) => format!("`{}` (from ADJUTANT_CLAUDE) is no program", path.display()),
            None => "`claude` is not on the PATH".to_owned(),
        };
        Failure::new(Code::SpawnFailed, what, INSTALL_HELP)
    })
}

fn program_version(path: &Path) -> std::io::Result<ProgramVersion> {
    let metadata = fs::metadata(path)?;
    let path = path.canonicalize()?;
    Ok(ProgramVersion { path, modified: metadata.modified()?, bytes: metadata.len() })
}

/// Runs the program with one flag and returns its output, at most 1 MiB and 30 s.
async fn run_with_flag(path: &Path, flag: &str) -> Result<String, Failure> {
    let inherited = ["PATH", "HOME"].into_iter();
    let spec = ProcessSpec {
        label: "claude".to_owned(),
        run: RunId::new(),
        program: path.to_path_buf(),
        arguments: vec![flag.into()],
        environment: inherited.filter_map(|n| Some((n.into(), env::var_os(n)?))).collect(),
        working_dir: env::temp_dir(),
        symlinks: SymlinkPolicy::Follow,
    };
    let mut process = spawn_process(spec).await.map_err(|error| probe_failed(path, &error))?;
    process.stdin = None;
    let answer = timeout(PROBE_TIMEOUT, read_all(&mut process)).await;
    process.stop(StopMode::Kill).await;
    let why = match answer {
        Ok(Ok(text)) if !text.trim().is_empty() => return Ok(text),
        Ok(Ok(_)) => format!("`{flag}` printed nothing; {}", process.stderr_tail()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("`{flag}` did not answer within {PROBE_TIMEOUT:?}"),
    };
    Err(probe_failed(path, &why))
}

async fn read_all(process: &mut ProcessHandle) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stdout) = process.stdout.take() {
        stdout.take(MAX_HELP_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn probe_failed(path: &Path, why: &dyn fmt::Display) -> Failure {
    let what = format!("`{}` could not be started: {why}", path.display());
    Failure::new(Code::SpawnFailed, what, "run `adjutant doctor` to see what is wrong")
}

/// Returns the cache file of a binary: one per path, so that projects with different binaries do not
/// evict each other.
fn cache_document(stamp: &ProgramVersion) -> Option<Document<CachedFeatures>> {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    stamp.path.hash(&mut hasher);
    Some(Document::new(cache_dir()?.join(format!("claude-{:016x}.json", hasher.finish()))))
}

/// Returns the directory of the feature cache.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    Some(dirs::cache_dir()?.join("adjutant"))
}

/// Writes the cache file, over one that cannot be read too: it is only a cache.
fn write_cache(remembered: &CachedFeatures) -> Result<(), DocumentError> {
    let Some(document) = cache_document(&remembered.stamp) else { return Ok(()) };
    let lock = document.lock()?;
    if document.read().is_err() {
        document.remove(&lock)?;
    }
    document.replace(&lock, remembered)
}

/// Describes the credentials found, for people; `None` if there are none. Values are only tested for being set.
pub(crate) fn find_credentials() -> Option<String> {
    let set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if let Some(name) = CREDENTIAL_VARIABLES.iter().find(|name| set(name)) {
        return Some(format!("the variable {name}"));
    }
    let file = claude_config_dir().join(".credentials.json");
    file.is_file().then(|| format!("the sign-in of Claude Code in `{}`", file.display()))
}

/// Returns Claude Code's configuration directory: `CLAUDE_CONFIG_DIR`, or `~/.claude`.
pub(crate) fn claude_config_dir() -> PathBuf {
    match env::var_os("CLAUDE_CONFIG_DIR").filter(|value| !value.is_empty()) {
        Some(folder) => folder.into(),
        None => dirs::home_dir().unwrap_or_else(|| PathBuf::from("/")).join(".claude"),
    }
}
