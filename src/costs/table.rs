//! What was spent, as it is kept and as it is written: one account for each day, agent and session.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::base::{RunId, Timestamp};

const FORMAT: u64 = 1;
/// Sessions of processes that no session of Claude Code started begin like this, and count as one afterwards.
const PROCESS: &str = "process-";

/// Money that a run has spent, told as soon as it is known. Sums of a run can be corrected downwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Payment {
    /// When.
    pub time: Timestamp,
    /// In which run.
    pub run: RunId,
    /// Of which agent.
    pub agent: String,
    /// For which session of the main agent: everything that one has started is one tree.
    pub session: String,
    /// How many dollars.
    pub cost_usd: f64,
    /// One with the last payment of a run, else nothing: runs are counted by their ends.
    pub ended: u64,
}

/// What one agent has cost on one day for one session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// The day in UTC, such as `2026-11-16`.
    pub day: String,
    /// The agent.
    pub agent: String,
    /// The session of the main agent; `process` for all that was started outside of one, on earlier days.
    pub session: String,
    /// Dollars.
    pub cost_usd: f64,
    /// Runs that have ended.
    pub runs: u64,
}

impl Account {
    /// Whether no session of Claude Code stands behind it: a terminal, or a server that nobody told.
    pub fn is_outside_of_a_session(&self) -> bool {
        self.session.starts_with(PROCESS.trim_end_matches('-'))
    }
}

/// The session of a process that no session of Claude Code has started.
pub fn session_of_process() -> String {
    format!("{PROCESS}{}", RunId::new())
}

/// `2026-11-16`, in UTC.
pub fn day_of(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

/// All accounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Book {
    accounts: BTreeMap<(String, String, String), (f64, u64)>,
    by_session: HashMap<String, f64>,
}

impl Book {
    pub(super) fn pay(&mut self, payment: &Payment) {
        self.add(Account {
            day: day_of(payment.time),
            agent: payment.agent.clone(),
            session: payment.session.clone(),
            cost_usd: payment.cost_usd,
            runs: payment.ended,
        });
    }

    pub(super) fn add(&mut self, account: Account) {
        let cost = if account.cost_usd.is_finite() { account.cost_usd } else { 0.0 };
        *self.by_session.entry(account.session.clone()).or_default() += cost;
        let key = (account.day, account.agent, account.session);
        let (sum, runs) = self.accounts.entry(key).or_default();
        *sum += cost;
        *runs += account.runs;
    }

    pub(super) fn on_day(&self, day: &str, agent: &str) -> f64 {
        let first = (day.to_owned(), agent.to_owned(), String::new());
        let of_agent = self.accounts.range(first..);
        of_agent
            .take_while(|((on, of, _), _)| on == day && of == agent)
            .map(|(_, (cost, _))| cost)
            .sum()
    }

    pub(super) fn of_session(&self, session: &str) -> f64 {
        self.by_session.get(session).copied().unwrap_or_default()
    }

    pub(super) fn accounts(&self) -> Vec<Account> {
        let account = |((day, agent, session), (cost, runs)): (&(String, String, String), &_)| {
            let (day, agent, session) = (day.clone(), agent.clone(), session.clone());
            let cost: &f64 = cost;
            // Sums of many small numbers have dust at their end.
            Account { day, agent, session, cost_usd: (cost * 1e9).round() / 1e9, runs: *runs }
        };
        self.accounts.iter().map(|(key, (cost, runs))| account((key, &(*cost, *runs)))).collect()
    }

    /// The same with the processes of earlier days as one: nobody asks for them any more one by one.
    pub(super) fn condensed(&self, today: &str) -> Self {
        let mut book = Self::default();
        for mut account in self.accounts() {
            if account.day.as_str() < today && account.session.starts_with(PROCESS) {
                PROCESS.trim_end_matches('-').clone_into(&mut account.session);
            }
            book.add(account);
        }
        book
    }
}

/// What a store turned out to be.
pub(super) enum Store {
    /// As we write it: the accounts, and the number of the journal that goes on from here.
    Sound(Book, u64),
    /// Written by a newer Adjutant.
    Newer(Book),
    /// Torn or edited: what is sound in it.
    Damaged(Book),
}

#[derive(Deserialize)]
struct StoreFile {
    format: u64,
    journal: u64,
    accounts: Vec<Account>,
}

/// The text of a store, one account a line: people read it, and a damaged one loses a line.
pub(super) fn render(book: &Book, journal: u64) -> Vec<u8> {
    let lines: Vec<String> = book
        .accounts()
        .iter()
        .filter_map(|account| serde_json::to_string(account).ok())
        .map(|line| format!("  {line}"))
        .collect();
    format!(
        "{{\n\"format\": {FORMAT},\n\"journal\": {journal},\n\"accounts\": [\n{}\n]\n}}\n",
        lines.join(",\n")
    )
    .into_bytes()
}

pub(super) fn read(bytes: &[u8]) -> Store {
    match serde_json::from_slice::<StoreFile>(bytes) {
        Ok(file) if file.format == FORMAT => Store::Sound(collect(file.accounts), file.journal),
        Ok(file) if file.format > FORMAT => Store::Newer(collect(file.accounts)),
        _ => Store::Damaged(collect(salvage(bytes))),
    }
}

fn collect(accounts: Vec<Account>) -> Book {
    let mut book = Book::default();
    for account in accounts {
        book.add(account);
    }
    book
}

fn salvage(bytes: &[u8]) -> Vec<Account> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(|line| line.trim().trim_end_matches(','));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}
