//! What an earlier crash left: runs that are still on the board, processes, and private folders.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use tokio::task::spawn_blocking;

use super::board::{RunBoard, RunCard};
use super::tree::Stat;
use super::{machine, run_folder, stop, sweep, tree};
use crate::base::RunId;

/// How long a process whose server was killed has to write down what was said; its keeper gives it a second.
const LAST_LINES: Duration = Duration::from_millis(1_500);
const LOOK: Duration = Duration::from_millis(20);

/// Something that was left and is gone now.
#[derive(Clone, Debug, PartialEq)]
pub enum Cleaned {
    /// A run on the board whose server is gone.
    Run(RunCard),
    /// Processes of a run whose keeper is gone.
    Processes(RunId),
    /// The folder of a run that is over.
    Folder(PathBuf),
}

impl fmt::Display for Cleaned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(card) if card.idle => {
                write!(f, "a process of agent `{}` that waited for a call was ended", card.agent)
            }
            Self::Run(card) => {
                write!(
                    f,
                    "run {} of agent `{}` was cut off when its server ended",
                    card.run, card.agent
                )
            }
            Self::Processes(run) => {
                write!(f, "processes that run {run} had left behind were ended")
            }
            Self::Folder(path) => {
                write!(f, "the folder `{}` of an earlier run was removed", path.display())
            }
        }
    }
}

/// Ends and removes what earlier processes left in this project and on this machine. What belongs to a living
/// server or keeper is left alone. Blocks for milliseconds, seconds if something resists.
///
/// `record` is told of every run that was cut off before its card goes: whoever is killed in between leaves the card, and
/// the next one tells it again. A card that cannot be recorded stays.
pub fn clean_leftovers(
    data_dir: &Path,
    record: impl FnMut(&RunCard) -> io::Result<()>,
) -> Vec<Cleaned> {
    let mut cleaned = clean_board(data_dir, record);
    cleaned.extend(sweep_processes().into_iter().map(Cleaned::Processes));
    for place in [data_dir, &machine::temporary_dir()] {
        cleaned.extend(run_folder::remove_stale(place).into_iter().map(Cleaned::Folder));
    }
    cleaned
}

/// Ends whatever is still there of a run that nobody holds any more. Costs a look at the list of processes.
pub async fn end_leftovers_of(run: RunId) {
    // Only a panic could keep it from being done, and the next sweep comes at the next start.
    let _ = spawn_blocking(move || sweep::end_run(run)).await;
}

/// The same by the arguments of a process: one that went on through several runs carries the mark of the first alone.
/// Its keeper has told it to end by now, and it may still be writing down what was said: it gets the time for that.
pub async fn end_leftovers_with(arguments: Vec<String>) {
    let _ = spawn_blocking(move || {
        let started = Instant::now();
        let mut left = marked_with(&arguments);
        while !left.is_empty() && started.elapsed() < LAST_LINES {
            thread::sleep(LOOK);
            left = marked_with(&arguments);
        }
        left.into_iter().for_each(sweep::end_run);
    })
    .await;
}

/// The runs of processes that have any of these on their command line.
fn marked_with(arguments: &[String]) -> Vec<RunId> {
    let is_meant = |part: &[u8]| arguments.iter().any(|argument| argument.as_bytes() == part);
    tree::every_process()
        .filter(|process| !process.has_ended())
        .filter(|process| {
            fs::read(format!("/proc/{}/cmdline", process.pid))
                .is_ok_and(|line| line.split(|byte| *byte == 0).any(is_meant))
        })
        .filter_map(|process| sweep::marker(process.pid))
        .collect()
}

/// A keeper whose server died ends by itself; one that was stopped is told once more.
fn clean_board(
    data_dir: &Path,
    mut record: impl FnMut(&RunCard) -> io::Result<()>,
) -> Vec<Cleaned> {
    let board = RunBoard::at(data_dir);
    let stale = board.every_card().into_iter().filter(|card| !card.is_alive());
    let mut cleaned = Vec::new();
    for card in stale {
        if let Some(keeper) = &card.keeper {
            stop::end_keeper(keeper);
        }
        let recorded = if card.idle { Ok(()) } else { record(&card) };
        match recorded {
            Ok(()) => board.remove(card.run),
            Err(error) => {
                tracing::warn!(%error, run = %card.run, "the end of a run could not be recorded");
            }
        }
        cleaned.push(Cleaned::Run(card));
    }
    cleaned
}

/// Ends marked processes that no keeper holds any more.
fn sweep_processes() -> Vec<RunId> {
    let ancestors = own_ancestors();
    sweep::end_where(|pid, run| !ancestors.contains(&pid) && !kept_runs().contains(&run))
}

/// The runs that have a keeper. Whoever forges a keeper's name only spares a process of their own.
fn kept_runs() -> HashSet<RunId> {
    tree::every_process()
        .filter(|process| !process.has_ended())
        .filter_map(|process| kept_run(process.pid))
        .collect()
}

fn kept_run(pid: i32) -> Option<RunId> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut arguments = line.split(|byte| *byte == 0).skip(1);
    if arguments.next() != Some(b"__keep") {
        return None;
    }
    std::str::from_utf8(arguments.nth(1)?).ok()?.parse().ok()
}

/// Whoever runs this from inside a run must not end the branch it sits on.
fn own_ancestors() -> HashSet<i32> {
    let own = Pid::this().as_raw();
    let above = |pid: &i32| Stat::read(*pid).map(|stat| stat.parent).filter(|parent| *parent > 0);
    std::iter::successors(Some(own), above).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_goes_when_its_run_is_recorded_and_not_before() {
        let data = tempfile::tempdir().unwrap();
        let board = RunBoard::at(data.path());
        let run = RunId::new();
        let posting = board.post(run, "a", "main").unwrap();
        let file = data.path().join(format!("runs/{run}.json"));
        let mut card: serde_json::Value =
            serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        card["server"]["started"] = "before".into();
        fs::write(&file, card.to_string()).unwrap();
        let told = |outcome: fn() -> io::Result<()>| {
            let mut seen = Vec::new();
            clean_board(data.path(), |card| {
                seen.push((card.run, board.has(run)));
                outcome()
            });
            seen
        };
        assert_eq!(told(|| Err(io::Error::other("a full disk"))), [(run, true)]);
        assert_eq!(told(|| Ok(())), [(run, true)], "it is told again until it is recorded");
        assert!(!board.has(run));
        assert_eq!(told(|| Ok(())), []);
        drop(posting);
    }
}
