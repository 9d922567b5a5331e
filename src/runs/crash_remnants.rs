//! Cleanup after a crash: registry entries, processes and directories of servers that no longer exist.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs, io, thread};

use nix::unistd::Pid;
use tokio::task::spawn_blocking;

use super::run_registry::{RunEntry, RunRegistry};
use super::{machine_limit, run_dir, stop};
use crate::process::{MarkedProcess, ProcessStat, sweep, tree};
use crate::util::RunId;

/// Time for processes of a killed server to write their last output; their supervisor gives them 1 s.
const EXIT_GRACE_PERIOD: Duration = Duration::from_millis(1_500);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Something that was left by a crash and is now removed.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a few values per start-up")]
pub enum CrashRemnant {
    /// An entry of the registry whose server is dead.
    Run(RunEntry),
    /// Processes of a run without a supervisor.
    Processes(RunId),
    /// The directory of a finished run.
    Dir(PathBuf),
}

impl fmt::Display for CrashRemnant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(entry) if entry.idle => {
                write!(f, "a process of agent `{}` that waited for a call was ended", entry.agent)
            }
            Self::Run(entry) => {
                write!(
                    f,
                    "run {} of agent `{}` was cut off when its server ended",
                    entry.run, entry.agent
                )
            }
            Self::Processes(run) => {
                write!(f, "processes that run {run} had left behind were ended")
            }
            Self::Dir(path) => {
                write!(f, "the folder `{}` of an earlier run was removed", path.display())
            }
        }
    }
}

/// Stops and removes what crashed processes left in this project and on this machine.
///
/// Whatever belongs to a living server or supervisor is left alone. Blocks for milliseconds, or several seconds if
/// processes survive SIGTERM.
///
/// `record` is called for every interrupted run before its entry is removed. If it fails, or this process dies in
/// between, the entry stays and `record` is called again by the next cleanup: at least once.
pub fn clean_up(
    data_dir: &Path,
    record: impl FnMut(&RunEntry) -> io::Result<()>,
) -> Vec<CrashRemnant> {
    let mut cleaned = clean_registry(data_dir, record);
    cleaned.extend(sweep_processes().into_iter().map(CrashRemnant::Processes));
    #[cfg(target_os = "linux")]
    if let Err(error) = super::Placeholders::at(data_dir).sweep() {
        tracing::warn!(%error, "placeholders of earlier sandboxes may be left");
    }
    for place in [data_dir, &machine_limit::temporary_dir()] {
        let removed = run_dir::remove_stale(place).unwrap_or_else(|error| {
            tracing::warn!(%error, dir = %place.display(), "directories of earlier runs may be left");
            Vec::new()
        });
        cleaned.extend(removed.into_iter().map(CrashRemnant::Dir));
    }
    cleaned
}

/// Kills the remaining processes of a run that no longer has a supervisor. Reads the whole process table.
pub async fn kill_remnants_of(run: RunId) {
    // Only a panic could prevent this; then the next start of a server cleans up.
    let _ = spawn_blocking(move || sweep::kill_run(run)).await;
}

/// Kills processes by their arguments: a reused process carries only the mark of its first run.
///
/// Waits at most 1.5 s for them to exit, because their supervisor has already sent SIGTERM and they may still write
/// output.
pub(crate) async fn kill_remnants_with(arguments: Vec<String>) {
    let _ = spawn_blocking(move || {
        let started = Instant::now();
        let mut left = runs_with_arguments(&arguments);
        while !left.is_empty() && started.elapsed() < EXIT_GRACE_PERIOD {
            thread::sleep(POLL_INTERVAL);
            left = runs_with_arguments(&arguments);
        }
        sweep::kill_runs(&left);
    })
    .await;
}

/// Returns the runs of processes that have one of the arguments on their command line.
fn runs_with_arguments(arguments: &[String]) -> HashSet<RunId> {
    let is_meant = |part: &[u8]| arguments.iter().any(|argument| argument.as_bytes() == part);
    tree::all_processes()
        .filter(|process| !process.is_dead())
        .filter(|process| {
            fs::read(format!("/proc/{}/cmdline", process.pid))
                .is_ok_and(|line| line.split(|byte| *byte == 0).any(is_meant))
        })
        .filter_map(|process| sweep::run_of(process.pid))
        .collect()
}

/// Removes stale entries. A supervisor whose server died stops by itself; one that was suspended is signalled again.
fn clean_registry(
    data_dir: &Path,
    mut record: impl FnMut(&RunEntry) -> io::Result<()>,
) -> Vec<CrashRemnant> {
    let registry = RunRegistry::at(data_dir);
    let entries = registry.all_entries().unwrap_or_else(|error| {
        tracing::warn!("runs of dead servers may be left: {error}");
        Vec::new()
    });
    let stale = entries.into_iter().filter(|entry| !entry.is_alive());
    let mut cleaned = Vec::new();
    for entry in stale {
        if let Some(supervisor) = &entry.supervisor {
            stop::stop_supervisor(supervisor);
        }
        let recorded = if entry.idle { Ok(()) } else { record(&entry) };
        match recorded {
            Ok(()) => registry.remove(entry.run),
            Err(error) => {
                tracing::warn!(%error, run = %entry.run, "the end of a run could not be recorded");
            }
        }
        cleaned.push(CrashRemnant::Run(entry));
    }
    cleaned
}

/// Kills marked processes without a supervisor.
fn sweep_processes() -> Vec<RunId> {
    let ancestors = own_ancestors();
    sweep::kill_where(|marked| without_supervisor(marked, &ancestors))
}

/// Returns the marked processes without a supervisor.
///
/// INVARIANT: supervisors are read after the marked processes. A supervisor exists before its processes, so one that is
/// missing then has exited. The process table is read once for all marked processes, and not at all if there are none.
fn without_supervisor(
    mut marked: Vec<MarkedProcess>,
    ancestors: &HashSet<i32>,
) -> Vec<MarkedProcess> {
    marked.retain(|process| !ancestors.contains(&process.stat.pid));
    if !marked.is_empty() {
        let kept = supervised_runs();
        marked.retain(|process| !kept.contains(&process.run));
    }
    marked
}

/// Returns the runs that have a supervisor. Forging a supervisor's arguments only spares the forger's own processes.
fn supervised_runs() -> HashSet<RunId> {
    tree::all_processes()
        .filter(|process| !process.is_dead())
        .filter_map(|process| supervised_run(process.pid))
        .collect()
}

fn supervised_run(pid: i32) -> Option<RunId> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut arguments = line.split(|byte| *byte == 0).skip(1);
    if arguments.next() != Some(b"__keep") {
        return None;
    }
    std::str::from_utf8(arguments.nth(1)?).ok()?.parse().ok()
}

/// Returns this process and its ancestors: a cleanup started within a run must not kill its parents.
fn own_ancestors() -> HashSet<i32> {
    let own = Pid::this().as_raw();
    let above =
        |pid: &i32| ProcessStat::read(*pid).map(|stat| stat.parent).filter(|parent| *parent > 0);
    std::iter::successors(Some(own), above).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tree::tests::PROCESS_TABLE_READS;
    use std::process::{Child, Command, Stdio};

    /// A shell that waits for input until it is dropped.
    struct Shell(Child);

    impl Shell {
        fn start(command: &mut Command) -> Self {
            Self(command.stdin(Stdio::piped()).spawn().unwrap())
        }

        fn marked(run: RunId) -> Self {
            Self::start(
                Command::new("sh")
                    .args(["-c", "read line"])
                    .env("ADJUTANT_RUN", run.simple().to_string()),
            )
        }

        fn stat(&self) -> ProcessStat {
            ProcessStat::read(self.0.id().cast_signed()).unwrap()
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn defect_29_the_process_table_is_read_once_for_all_marked_processes() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("__keep"), "read line\n").unwrap();
        let (kept, orphaned) = (RunId::new(), RunId::new());
        let mut keeper = Command::new("sh");
        keeper.args(["__keep", "x", &kept.simple().to_string()]).current_dir(dir.path());
        let _keeper = Shell::start(&mut keeper);
        let shells: Vec<Shell> = (0..10).map(|_| Shell::marked(kept)).collect();
        let orphan = Shell::marked(orphaned);
        let marked = shells.iter().map(|shell| MarkedProcess { stat: shell.stat(), run: kept });
        let orphan = MarkedProcess { stat: orphan.stat(), run: orphaned };
        PROCESS_TABLE_READS.set(0);
        let found = without_supervisor(marked.chain([orphan]).collect(), &HashSet::new());
        assert_eq!(found, [orphan]);
        assert_eq!(PROCESS_TABLE_READS.get(), 1);
    }

    #[test]
    fn defect_29_many_runs_are_killed_in_one_sweep() {
        let runs: HashSet<RunId> = (0..10).map(|_| RunId::new()).collect();
        let mut shells: Vec<Shell> = runs.iter().map(|run| Shell::marked(*run)).collect();
        PROCESS_TABLE_READS.set(0);
        sweep::kill_runs(&runs);
        assert!(PROCESS_TABLE_READS.get() < 10, "{} walks", PROCESS_TABLE_READS.get());
        assert!(shells.iter_mut().all(|shell| shell.0.wait().unwrap().code().is_none()));
    }

    #[test]
    fn an_entry_is_removed_only_after_its_run_was_recorded() {
        let data = tempfile::tempdir().unwrap();
        let registry = RunRegistry::at(data.path());
        let run = RunId::new();
        let posting = registry.register(run, "a", "main").unwrap();
        let file = data.path().join(format!("runs/{}.json", run.simple()));
        let mut entry: serde_json::Value =
            serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        entry["server"]["started"] = "before".into();
        fs::write(&file, entry.to_string()).unwrap();
        let told = |outcome: fn() -> io::Result<()>| {
            let mut seen = Vec::new();
            clean_registry(data.path(), |entry| {
                seen.push((entry.run, registry.contains(run)));
                outcome()
            });
            seen
        };
        assert_eq!(told(|| Err(io::Error::other("a full disk"))), [(run, true)]);
        assert_eq!(told(|| Ok(())), [(run, true)], "it is told again until it is recorded");
        assert!(!registry.contains(run));
        assert_eq!(told(|| Ok(())), []);
        drop(posting);
    }
}
