//! Table of costs by day, agent and session, and the format of `data/costs.json`.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::store::{Naming, State};
use crate::util::{RunId, Timestamp, now};

/// Prefix of sessions of processes that were not started by Claude Code.
const PROCESS_PREFIX: &str = "process-";

/// A cost of a run, posted as soon as it is known. Negative for a correction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostEntry {
    pub time: Timestamp,
    pub run: RunId,
    /// Name of the agent.
    pub agent: String,
    /// Session of the main agent; costs of nested runs count for the same session.
    pub session: String,
    /// US dollars.
    pub cost_usd: f64,
    /// 1 in the last entry of a run, otherwise 0: runs are counted when they end.
    pub ended: u64,
}

/// Costs of one agent on one day for one session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostAccount {
    /// Day in UTC, such as `2026-11-16`.
    pub day: String,
    pub agent: String,
    /// Session of the main agent; `process` combines the processes outside of a session on earlier days.
    pub session: String,
    /// US dollars.
    pub cost_usd: f64,
    /// Number of ended runs.
    pub runs: u64,
}

impl CostAccount {
    /// Returns true for costs outside of a Claude Code session, for example of a run started in a terminal.
    pub fn is_outside_session(&self) -> bool {
        self.session.starts_with(PROCESS_PREFIX.trim_end_matches('-'))
    }
}

/// Returns a new session name for a process that was not started by Claude Code.
pub(crate) fn process_session() -> String {
    format!("{PROCESS_PREFIX}{}", RunId::new().simple())
}

/// Formats the day in UTC, such as `2026-11-16`.
pub(crate) fn day_of(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

/// All cost accounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CostTable {
    accounts: BTreeMap<(String, String, String), (f64, u64)>,
    by_session: HashMap<String, f64>,
}

impl CostTable {
    fn add(&mut self, account: CostAccount) {
        let cost = if account.cost_usd.is_finite() { account.cost_usd } else { 0.0 };
        *self.by_session.entry(account.session.clone()).or_default() += cost;
        let key = (account.day, account.agent, account.session);
        let (sum, runs) = self.accounts.entry(key).or_default();
        *sum += cost;
        *runs += account.runs;
    }

    pub(crate) fn cost_on_day(&self, day: &str, agent: &str) -> f64 {
        let first = (day.to_owned(), agent.to_owned(), String::new());
        let of_agent = self.accounts.range(first..);
        of_agent
            .take_while(|((on, of, _), _)| on == day && of == agent)
            .map(|(_, (cost, _))| cost)
            .sum()
    }

    pub(crate) fn cost_of_session(&self, session: &str) -> f64 {
        self.by_session.get(session).copied().unwrap_or_default()
    }

    pub(crate) fn accounts(&self) -> Vec<CostAccount> {
        let accounts =
            self.accounts.iter().map(|((day, agent, session), (cost, runs))| CostAccount {
                day: day.clone(),
                agent: agent.clone(),
                session: session.clone(),
                // Removes rounding errors of sums of many small numbers.
                cost_usd: (cost * 1e9).round() / 1e9,
                runs: *runs,
            });
        accounts.collect()
    }

    /// Combines process sessions of earlier days into one account per day and agent.
    fn merge_past_processes(&self, today: &str) -> Self {
        let merged = self.accounts().into_iter().map(|mut account| {
            if account.day.as_str() < today && account.session.starts_with(PROCESS_PREFIX) {
                PROCESS_PREFIX.trim_end_matches('-').clone_into(&mut account.session);
            }
            account
        });
        merged.collect()
    }
}

impl State for CostTable {
    type Change = CostEntry;

    const NAME: &'static str = "costs";
    const FORMAT: u64 = 1;
    const NAMING: Naming = Naming::Numbered;
    const MAX_LINES: usize = 1_000;
    const MUST_BE_OWNED: bool = false;

    fn decode(snapshot: &[u8]) -> Result<(Self, u64), String> {
        let file: CostsFile =
            serde_json::from_slice(snapshot).map_err(|error| error.to_string())?;
        match file.format {
            Self::FORMAT => Ok((file.accounts.into_iter().collect(), file.journal)),
            format => Err(format!("there is no format {format}")),
        }
    }

    /// Decodes line by line.
    fn recover(snapshot: &[u8]) -> Self {
        let text = String::from_utf8_lossy(snapshot);
        let lines = text.lines().map(|line| line.trim().trim_end_matches(','));
        lines.filter_map(|line| serde_json::from_str::<CostAccount>(line).ok()).collect()
    }

    /// Encodes the table with one account per line: readable, and damage loses single lines only.
    fn encode(&self, journal: u64) -> Vec<u8> {
        let lines: Vec<String> = self
            .accounts()
            .iter()
            .filter_map(|account| serde_json::to_string(account).ok())
            .map(|line| format!("  {line}"))
            .collect();
        let (format, lines) = (Self::FORMAT, lines.join(",\n"));
        format!(
            "{{\n\"format\": {format},\n\"journal\": {journal},\n\"accounts\": [\n{lines}\n]\n}}\n"
        )
        .into_bytes()
    }

    fn apply(&mut self, payment: &CostEntry) {
        self.add(CostAccount {
            day: day_of(payment.time),
            agent: payment.agent.clone(),
            session: payment.session.clone(),
            cost_usd: payment.cost_usd,
            runs: payment.ended,
        });
    }

    fn describe(&self) -> String {
        format!("{} sound accounts", self.accounts.len())
    }

    fn prepare_compaction(&mut self) {
        *self = self.merge_past_processes(&day_of(now()));
    }
}

impl FromIterator<CostAccount> for CostTable {
    fn from_iter<I: IntoIterator<Item = CostAccount>>(accounts: I) -> Self {
        let mut table = Self::default();
        accounts.into_iter().for_each(|account| table.add(account));
        table
    }
}

#[derive(Deserialize)]
struct CostsFile {
    format: u64,
    journal: u64,
    accounts: Vec<CostAccount>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_sessions_of_earlier_days_are_merged() {
        let account = |session: &str, cost_usd| CostAccount {
            day: "2026-11-16".to_owned(),
            agent: "a".to_owned(),
            session: session.to_owned(),
            cost_usd,
            runs: 1,
        };
        let accounts = [account("process-1", 0.5), account("process-2", 0.25), account("s", 1.0)];
        let table: CostTable = accounts.clone().into_iter().collect();
        let merged = CostAccount { runs: 2, ..account("process", 0.75) };
        assert_eq!(
            table.merge_past_processes("2026-11-17").accounts(),
            [merged, account("s", 1.0)]
        );
        assert_eq!(table.merge_past_processes("2026-11-16").accounts(), accounts);
    }
}
