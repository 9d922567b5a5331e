//! What is running, for every terminal to see: one small file per run, removed when the run is over.
//!
//! A card whose server is gone is stale: it is never shown, and start-up removes it. Nothing here is a record
//! of what happened; that is the work of events.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::process::Process;
use super::stamp::ProcessStamp;
use crate::base::{
    RunId, Timestamp, create_private_dir, now, read_bounded, remove_file, write_volatile,
};

const FOLDER: &str = "runs";
const FORMAT: u32 = 1;
const MOST_BYTES: u64 = 64 << 10;
/// A card is written at most this often; what comes in between is written at the end of the pause.
const PAUSE: Duration = Duration::from_millis(250);
/// How often a run looks whether somebody wants it to stop.
const STOP_LOOK: Duration = Duration::from_millis(200);

/// What is known about a run that is going on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunCard {
    /// The version of this file's form.
    pub format: u32,
    /// The run.
    pub run: RunId,
    /// Whose run it is.
    pub agent: String,
    /// Who called.
    pub caller: String,
    /// Since when.
    pub since: Timestamp,
    /// How far it is.
    pub progress: RunProgress,
    /// The program's pid, once it is started.
    pub pid: Option<u32>,
    /// Who holds the program.
    pub keeper: Option<ProcessStamp>,
    /// Who started the run.
    pub server: Option<ProcessStamp>,
    /// Where its transcript was expected when it was posted.
    #[serde(default)]
    pub transcript: Option<PathBuf>,
    /// Whether this is no run, but a process that waits for one.
    #[serde(default)]
    pub idle: bool,
}

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunProgress {
    /// What it does at the moment, in a few words.
    pub doing: String,
    /// Turns so far.
    pub turns: u32,
    /// Dollars so far.
    pub cost_usd: f64,
}

impl RunCard {
    /// Whether its server is still there.
    pub fn is_alive(&self) -> bool {
        self.server.as_ref().is_some_and(ProcessStamp::is_alive)
    }
}

/// The board of one project.
#[derive(Clone, Debug)]
pub struct RunBoard {
    folder: PathBuf,
}

impl RunBoard {
    /// The board under a data folder, whether or not anything was ever posted there.
    pub fn at(data_dir: &Path) -> Self {
        Self { folder: data_dir.join(FOLDER) }
    }

    /// Puts a run on the board; it is taken off when the posting is dropped.
    pub fn post(&self, run: RunId, agent: &str, caller: &str) -> io::Result<Posting> {
        self.post_run(run, agent, caller, None)
    }

    /// The same for a run whose transcript is known ahead.
    pub fn post_with_transcript(
        &self,
        run: RunId,
        agent: &str,
        caller: &str,
        transcript: PathBuf,
    ) -> io::Result<Posting> {
        self.post_run(run, agent, caller, Some(transcript))
    }

    fn post_run(
        &self,
        run: RunId,
        agent: &str,
        caller: &str,
        transcript: Option<PathBuf>,
    ) -> io::Result<Posting> {
        create_private_dir(&self.folder)?;
        let card = RunCard {
            format: FORMAT,
            run,
            agent: agent.to_owned(),
            caller: caller.to_owned(),
            since: now(),
            progress: RunProgress { doing: "waiting".to_owned(), ..RunProgress::default() },
            pid: None,
            keeper: None,
            server: ProcessStamp::own(),
            transcript,
            idle: false,
        };
        self.put(card)
    }

    /// Shows a process that waits for a call, and for which.
    pub fn post_idle(&self, agent: &str, process: &Process, doing: &str) -> io::Result<Posting> {
        create_private_dir(&self.folder)?;
        self.put(RunCard {
            format: FORMAT,
            run: RunId::new(),
            agent: agent.to_owned(),
            caller: "-".to_owned(),
            since: now(),
            progress: RunProgress { doing: doing.to_owned(), ..RunProgress::default() },
            pid: Some(process.pid()),
            keeper: process.keeper().cloned(),
            server: ProcessStamp::own(),
            transcript: None,
            idle: true,
        })
    }

    fn put(&self, card: RunCard) -> io::Result<Posting> {
        let run = card.run;
        let sheet = Sheet {
            path: self.card_file(run),
            card,
            written: Instant::now(),
            pending: false,
            over: false,
        };
        sheet.write()?;
        Ok(Posting { sheet: Arc::new(Mutex::new(sheet)), stop: self.stop_file(run) })
    }

    /// The runs that are going on and the processes that wait for one, the oldest first.
    pub fn list(&self) -> Vec<RunCard> {
        let mut cards: Vec<_> = self.every_card().into_iter().filter(RunCard::is_alive).collect();
        cards.sort_by_key(|card| card.run);
        cards
    }

    /// Leaves word that a run is to stop; its server looks for it.
    pub fn request_stop(&self, run: RunId) -> io::Result<()> {
        write_volatile(&self.stop_file(run), b"")
    }

    /// Whether the run is still on the board.
    pub fn has(&self, run: RunId) -> bool {
        self.card_file(run).exists()
    }

    /// Every card that can be read, stale ones too.
    pub(super) fn every_card(&self) -> Vec<RunCard> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "json"));
        files
            .filter_map(|path| serde_json::from_slice(&read_bounded(&path, MOST_BYTES).ok()?).ok())
            .collect()
    }

    /// Takes a run off the board.
    pub(super) fn remove(&self, run: RunId) {
        let _ = remove_file(&self.card_file(run));
        let _ = remove_file(&self.stop_file(run));
    }

    fn card_file(&self, run: RunId) -> PathBuf {
        self.folder.join(format!("{run}.json"))
    }

    fn stop_file(&self, run: RunId) -> PathBuf {
        self.folder.join(format!("{run}.stop"))
    }
}

/// A run's own place on the board, taken off when dropped.
#[derive(Debug)]
pub struct Posting {
    sheet: Arc<Mutex<Sheet>>,
    stop: PathBuf,
}

impl Posting {
    /// Says which process the run has now.
    pub fn started(&self, process: &Process) {
        let mut sheet = lock(&self.sheet);
        sheet.card.pid = Some(process.pid());
        sheet.card.keeper = process.keeper().cloned();
        sheet.write_or_warn();
    }

    /// Changes how far the run is. Cheap: the file is written a few times a second at most.
    pub fn update(&self, change: impl FnOnce(&mut RunProgress)) {
        let mut sheet = lock(&self.sheet);
        change(&mut sheet.card.progress);
        if sheet.written.elapsed() >= PAUSE {
            sheet.write_or_warn();
        } else if !sheet.pending {
            sheet.pending = true;
            tokio::spawn(write_later(Arc::clone(&self.sheet)));
        }
    }

    /// Whether somebody asked for this run to stop.
    pub fn stop_was_requested(&self) -> bool {
        self.stop.exists()
    }

    /// Returns when somebody asks for this run to stop.
    pub async fn stop_requested(&self) {
        self.stop_request().await;
    }

    /// The same, for somebody who does not hold the posting.
    pub fn stop_request(&self) -> impl Future<Output = ()> + Send + 'static {
        let stop = self.stop.clone();
        async move {
            while !stop.exists() {
                sleep(STOP_LOOK).await;
            }
        }
    }
}

impl Drop for Posting {
    fn drop(&mut self) {
        let mut sheet = lock(&self.sheet);
        sheet.over = true;
        let _ = remove_file(&sheet.path);
        let _ = remove_file(&self.stop);
    }
}

#[derive(Debug)]
struct Sheet {
    path: PathBuf,
    card: RunCard,
    written: Instant,
    pending: bool,
    over: bool,
}

impl Sheet {
    fn write(&self) -> io::Result<()> {
        write_volatile(&self.path, &serde_json::to_vec(&self.card)?)
    }

    /// A board that cannot be written costs a line in a list, never the run.
    fn write_or_warn(&mut self) {
        if self.over {
            return;
        }
        self.written = Instant::now();
        if let Err(error) = self.write() {
            tracing::warn!(run = %self.card.run, %error, "the run's card could not be written");
        }
    }
}

async fn write_later(sheet: Arc<Mutex<Sheet>>) {
    sleep(PAUSE).await;
    let mut sheet = lock(&sheet);
    sheet.pending = false;
    sheet.write_or_warn();
}

fn lock(sheet: &Mutex<Sheet>) -> MutexGuard<'_, Sheet> {
    sheet.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[tokio::test]
    async fn a_run_is_seen_from_elsewhere_until_it_is_over() {
        let data = tempfile::tempdir().unwrap();
        let board = RunBoard::at(data.path());
        assert_eq!(board.list(), []);
        let run = RunId::new();
        let posting = board.post(run, "web-search", "main").unwrap();
        for turns in 1..=50 {
            posting.update(|progress| {
                *progress = RunProgress { doing: "Bash".into(), turns, cost_usd: 0.5 }
            });
        }
        let seen = || board.list().first().map(|card| card.progress.turns);
        while seen() != Some(50) {
            sleep(Duration::from_millis(5)).await;
        }
        let mode = fs::metadata(board.card_file(run)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        posting.update(|progress| progress.turns = 51);
        drop(posting);
        sleep(PAUSE * 2).await;
        assert_eq!(
            fs::read_dir(data.path().join("runs")).unwrap().count(),
            0,
            "a late update brings nothing back"
        );
    }

    #[tokio::test]
    async fn a_run_learns_that_it_is_to_stop() {
        let data = tempfile::tempdir().unwrap();
        let board = RunBoard::at(data.path());
        let run = RunId::new();
        let posting = board.post(run, "a", "main").unwrap();
        assert!(!posting.stop_was_requested());
        board.request_stop(run).unwrap();
        posting.stop_requested().await;
    }

    #[tokio::test]
    async fn a_card_of_a_dead_server_is_not_shown() {
        let data = tempfile::tempdir().unwrap();
        let board = RunBoard::at(data.path());
        let run = RunId::new();
        let posting = board.post(run, "a", "main").unwrap();
        let mut card = board.list().remove(0);
        card.server = card.server.map(|server| ProcessStamp { started: "before".into(), ..server });
        fs::write(board.card_file(run), serde_json::to_vec(&card).unwrap()).unwrap();
        assert_eq!(board.list(), []);
        assert_eq!(board.every_card().len(), 1);
        drop(posting);
    }
}
