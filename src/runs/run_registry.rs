//! Registry of current runs: one JSON file per run in `data/runs/`, removed when the run ends.
//!
//! Every Adjutant process of the project can read it. Entries of dead servers are stale: they are not listed, and the
//! next start of a server removes them. The registry is not a log; finished runs are in the event log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::api::{Caller, RunObject, RunState};
use crate::process::{ProcessHandle, ProcessIdentity};
use crate::store::{LiveDir, LiveFile, remove_file, write_volatile};
use crate::util::{Mutex, RunId, Timestamp, now};

const RUNS_DIR: &str = "runs";
const FORMAT: u32 = 1;
/// Minimum interval between two writes of an entry; updates in between are combined into one delayed write.
const WRITE_INTERVAL: Duration = Duration::from_millis(250);
/// Poll interval for stop requests.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The content of one file in `data/runs/`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEntry {
    /// Version of the file format.
    pub format: u32,
    pub run: RunId,
    /// Name of the agent.
    pub agent: String,
    /// Name of the caller.
    pub caller: String,
    /// Start time.
    pub since: Timestamp,
    pub progress: RunProgress,
    /// Pid of the program, once started.
    pub pid: Option<u32>,
    /// The supervisor of the program.
    #[serde(rename = "keeper")]
    pub supervisor: Option<ProcessIdentity>,
    /// The server process that started the run.
    pub server: Option<ProcessIdentity>,
    /// Expected path of the transcript, if known when the run was registered.
    #[serde(default)]
    pub transcript: Option<PathBuf>,
    /// The caller; `None` if an earlier version wrote the entry, and for idle processes.
    #[serde(default)]
    pub called_by: Option<Box<Caller>>,
    /// True for an idle process of the pool, which is not a run.
    #[serde(default)]
    pub idle: bool,
}

/// Progress of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunProgress {
    /// Current activity in a few words, for example the name of a tool.
    pub doing: String,
    /// Turns so far.
    pub turns: u32,
    /// Cost so far in US dollars.
    pub cost_usd: f64,
}

impl RunEntry {
    /// Returns true if the server that started the run is alive.
    pub fn is_alive(&self) -> bool {
        self.server.as_ref().is_some_and(ProcessIdentity::is_alive)
    }

    pub(crate) fn to_object(&self) -> RunObject {
        let state = match (self.idle, self.pid) {
            (true, _) => RunState::Kept,
            (false, Some(_)) => RunState::Running,
            (false, None) => RunState::Queued,
        };
        let transcript = self.transcript.as_deref();
        RunObject {
            state,
            caller: self.called_by.as_deref().cloned(),
            agent_transcript_path: transcript.map(|path| path.to_string_lossy().into_owned()),
            cost_usd: Some(self.progress.cost_usd.into()),
            turns: Some(self.progress.turns.into()),
            pid: self.pid,
            doing: Some(self.progress.doing.clone()),
            ..RunObject::new(self.run, &self.agent, self.since)
        }
    }
}

/// The run registry of one project.
#[derive(Clone, Debug)]
pub struct RunRegistry {
    entries: LiveDir<RunEntry>,
}

impl RunRegistry {
    /// Returns the registry below a data directory, which need not exist.
    pub fn at(data_dir: &Path) -> Self {
        Self { entries: LiveDir::new(data_dir.join(RUNS_DIR)) }
    }

    /// Registers a run; the entry is removed when the registration is dropped.
    pub fn register(&self, run: RunId, agent: &str, caller: &str) -> io::Result<RunRegistration> {
        self.add_entry(new_entry(run, agent, caller, "waiting"))
    }

    /// Registers a run; its transcript path is known before the start if it has one.
    pub fn register_with_transcript(
        &self,
        run: RunId,
        agent: &str,
        caller: &Caller,
        transcript: Option<PathBuf>,
    ) -> io::Result<RunRegistration> {
        let entry = new_entry(run, agent, &caller.name, "waiting");
        self.add_entry(RunEntry { transcript, called_by: Some(Box::new(caller.clone())), ..entry })
    }

    /// Registers an idle process of the pool; `doing` says which call it waits for.
    pub fn register_idle(
        &self,
        agent: &str,
        process: &ProcessHandle,
        doing: &str,
    ) -> io::Result<RunRegistration> {
        self.add_entry(RunEntry {
            pid: Some(process.pid()),
            supervisor: process.supervisor().cloned(),
            idle: true,
            ..new_entry(RunId::new(), agent, "-", doing)
        })
    }

    fn add_entry(&self, entry: RunEntry) -> io::Result<RunRegistration> {
        let run = entry.run;
        let file = self.entries.register(&run.simple().to_string(), &entry);
        let file = RegisteredEntry {
            file: Some(file.map_err(|error| self.unavailable("written", &error))?),
            entry,
            written_at: Instant::now(),
            is_write_scheduled: false,
        };
        Ok(RunRegistration { file: Arc::new(Mutex::new(file)), stop_path: self.stop_path(run) })
    }

    /// Returns the current runs and idle processes, oldest first. The error names the directory.
    pub fn list(&self) -> io::Result<Vec<RunEntry>> {
        let mut entries = self.all_entries()?;
        entries.retain(RunEntry::is_alive);
        entries.sort_by_key(|entry| entry.run);
        Ok(entries)
    }

    /// Requests that a run stops; its server polls for this every 200 ms.
    pub fn request_stop(&self, run: RunId) -> io::Result<()> {
        write_volatile(&self.stop_path(run), b"")
    }

    /// Returns true if the run is registered, even by a dead server.
    pub fn contains(&self, run: RunId) -> bool {
        self.entry_path(run).exists()
    }

    /// Returns all entries, including stale ones.
    pub(crate) fn all_entries(&self) -> io::Result<Vec<RunEntry>> {
        self.entries.list().map_err(|error| self.unavailable("read", &error))
    }

    /// Removes the entry of a run and its stop request.
    pub(crate) fn remove(&self, run: RunId) {
        let _ = self.entries.remove(&run.simple().to_string());
        let _ = remove_file(&self.stop_path(run));
    }

    fn unavailable(&self, what: &str, error: &io::Error) -> io::Error {
        let dir = self.entries.dir().display();
        io::Error::new(
            error.kind(),
            format!("STORE_UNAVAILABLE: `{dir}` cannot be {what}: {error}"),
        )
    }

    fn entry_path(&self, run: RunId) -> PathBuf {
        self.entries.path(&run.simple().to_string(), "json")
    }

    fn stop_path(&self, run: RunId) -> PathBuf {
        self.entries.path(&run.simple().to_string(), "stop")
    }
}

fn new_entry(run: RunId, agent: &str, caller: &str, doing: &str) -> RunEntry {
    RunEntry {
        format: FORMAT,
        run,
        agent: agent.to_owned(),
        caller: caller.to_owned(),
        since: now(),
        progress: RunProgress { doing: doing.to_owned(), ..RunProgress::default() },
        pid: None,
        supervisor: None,
        server: ProcessIdentity::current(),
        transcript: None,
        called_by: None,
        idle: false,
    }
}

/// The registration of one run; removes its entry when dropped.
#[derive(Debug)]
pub struct RunRegistration {
    file: Arc<Mutex<RegisteredEntry>>,
    stop_path: PathBuf,
}

impl RunRegistration {
    /// Writes the pid and supervisor of the run's process into the entry.
    pub fn set_process(&self, process: &ProcessHandle) {
        let mut sheet = self.file.lock();
        sheet.entry.pid = Some(process.pid());
        sheet.entry.supervisor = process.supervisor().cloned();
        sheet.write_or_warn();
    }

    /// Changes the progress. The file is written at most every 250 ms.
    pub fn update(&self, change: impl FnOnce(&mut RunProgress)) {
        let mut sheet = self.file.lock();
        change(&mut sheet.entry.progress);
        if sheet.written_at.elapsed() >= WRITE_INTERVAL {
            sheet.write_or_warn();
        } else if !sheet.is_write_scheduled {
            sheet.is_write_scheduled = true;
            tokio::spawn(write_later(Arc::clone(&self.file)));
        }
    }

    pub fn is_stop_requested(&self) -> bool {
        self.stop_path.exists()
    }

    /// Resolves when a stop is requested.
    pub async fn wait_for_stop(&self) {
        self.stop_future().await;
    }

    /// Returns a future that resolves when a stop is requested and does not borrow the registration.
    pub fn stop_future(&self) -> impl Future<Output = ()> + Send + 'static {
        let stop = self.stop_path.clone();
        async move {
            while !stop.exists() {
                sleep(STOP_POLL_INTERVAL).await;
            }
        }
    }
}

impl Drop for RunRegistration {
    fn drop(&mut self) {
        // A delayed write that comes later finds no file to write.
        self.file.lock().file = None;
        let _ = remove_file(&self.stop_path);
    }
}

#[derive(Debug)]
struct RegisteredEntry {
    /// `None` after the registration was dropped.
    file: Option<LiveFile<RunEntry>>,
    entry: RunEntry,
    written_at: Instant,
    is_write_scheduled: bool,
}

impl RegisteredEntry {
    /// Writes the entry. A failure is logged only: the run continues without a visible entry.
    fn write_or_warn(&mut self) {
        let Some(file) = &self.file else { return };
        self.written_at = Instant::now();
        if let Err(error) = file.update(&self.entry) {
            tracing::warn!(run = %self.entry.run, %error, "the run's entry could not be written");
        }
    }
}

async fn write_later(sheet: Arc<Mutex<RegisteredEntry>>) {
    sleep(WRITE_INTERVAL).await;
    let mut sheet = sheet.lock();
    sheet.is_write_scheduled = false;
    sheet.write_or_warn();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn a_run_is_listed_until_it_ends() {
        let data = tempfile::tempdir().unwrap();
        let registry = RunRegistry::at(data.path());
        assert_eq!(registry.list().unwrap(), []);
        let run = RunId::new();
        let posting = registry.register(run, "web-search", "main").unwrap();
        for turns in 1..=50 {
            posting.update(|progress| {
                *progress = RunProgress { doing: "Bash".into(), turns, cost_usd: 0.5 }
            });
        }
        let seen = || registry.list().unwrap().first().map(|entry| entry.progress.turns);
        while seen() != Some(50) {
            sleep(Duration::from_millis(5)).await;
        }
        let mode = fs::metadata(registry.entry_path(run)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        posting.update(|progress| progress.turns = 51);
        drop(posting);
        sleep(WRITE_INTERVAL * 2).await;
        assert_eq!(
            fs::read_dir(data.path().join("runs")).unwrap().count(),
            0,
            "a late update brings nothing back"
        );
    }

    #[tokio::test]
    async fn a_stop_request_reaches_the_run() {
        let data = tempfile::tempdir().unwrap();
        let registry = RunRegistry::at(data.path());
        let run = RunId::new();
        let posting = registry.register(run, "a", "main").unwrap();
        assert!(!posting.is_stop_requested());
        registry.request_stop(run).unwrap();
        posting.wait_for_stop().await;
    }

    #[tokio::test]
    async fn entries_of_dead_servers_are_not_listed() {
        let data = tempfile::tempdir().unwrap();
        let registry = RunRegistry::at(data.path());
        let run = RunId::new();
        let posting = registry.register(run, "a", "main").unwrap();
        let mut entry = registry.list().unwrap().remove(0);
        entry.server =
            entry.server.map(|server| ProcessIdentity { started: "before".into(), ..server });
        fs::write(registry.entry_path(run), serde_json::to_vec(&entry).unwrap()).unwrap();
        assert_eq!(registry.list().unwrap(), []);
        assert_eq!(registry.all_entries().unwrap().len(), 1);
        drop(posting);
    }

    #[test]
    fn a_registry_that_cannot_be_read_is_not_empty() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("runs"), "").unwrap();
        let registry = RunRegistry::at(data.path());
        let dir = data.path().join("runs").display().to_string();
        let read =
            format!("STORE_UNAVAILABLE: `{dir}` cannot be read: Not a directory (os error 20)");
        assert_eq!(registry.list().unwrap_err().to_string(), read);
        let error = registry.register(RunId::new(), "a", "main").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("STORE_UNAVAILABLE: `{dir}` cannot be written: ")),
            "{error}"
        );
    }
}
