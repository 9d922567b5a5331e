//! `adjutant costs`: what the agents have cost, by agent, by day or by session of the main agent.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde_json::{Map, Value, json};

use super::exit::Exit;
use super::{render, terminal};
use crate::base::{now, one_line};
use crate::catalog::Snapshot;
use crate::config::Settings;
use crate::record::{Account, CostLedger, day_of};

const BAR_CELLS: f64 = 24.0;
const OUTSIDE: &str = "outside of a session";

/// Show what the agents have cost, by agent, by day, or by session of the main agent
///
/// Read from the ledger in data/, which every run pays into while it goes on. Days are days in UTC.
/// Exit code 0.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant costs\n  adjutant costs --by day\n  \
    adjutant costs --json | jq .total.cost_usd")]
pub(super) struct CostsArguments {
    /// What stands in one line
    #[arg(long, value_enum, default_value_t = By::Agent)]
    by: By,
    /// Print JSON for a program
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    Agent,
    Day,
    Session,
}

/// One line: what it is about, runs that ended, dollars.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    name: String,
    runs: u64,
    cost_usd: f64,
    /// What was spent today of what may be, where the agent has a budget.
    today: Option<(f64, f64)>,
}

pub(super) fn run(settings: &Settings, arguments: &CostsArguments) -> Exit {
    let ledger = CostLedger::at(&settings.data_dir());
    let mut rows = rows(&ledger.accounts(), arguments.by);
    if arguments.by == By::Agent {
        add_budgets(&mut rows, &ledger, settings);
    }
    if arguments.json {
        render::json(&as_json(&rows, arguments.by));
    } else if rows.is_empty() {
        render::talk("nothing has cost anything yet");
    } else {
        render::data(table(&rows, arguments.by, terminal::shows_data()));
    }
    Exit::Success
}

fn rows(accounts: &[Account], by: By) -> Vec<Row> {
    let mut sums: BTreeMap<&str, Row> = BTreeMap::new();
    for account in accounts {
        let name = match by {
            By::Agent => account.agent.as_str(),
            By::Day => account.day.as_str(),
            By::Session if account.is_outside_of_a_session() => OUTSIDE,
            By::Session => account.session.as_str(),
        };
        let row = sums.entry(name).or_insert_with(|| Row { name: name.into(), ..Row::default() });
        row.runs += account.runs;
        row.cost_usd += account.cost_usd;
    }
    let mut rows: Vec<Row> = sums.into_values().collect();
    if by != By::Day {
        rows.sort_by(|a, b| b.cost_usd.total_cmp(&a.cost_usd));
    }
    rows
}

fn add_budgets(rows: &mut [Row], ledger: &CostLedger, settings: &Settings) {
    let snapshot = Snapshot::load(settings);
    let today = day_of(now());
    for row in rows {
        let budget = snapshot.orchestration().budgets.get(&row.name);
        row.today = budget.map(|b| (ledger.spent_on_day(&today, &row.name), b.per_day_usd));
    }
}

fn total(rows: &[Row]) -> Row {
    Row {
        name: "total".to_owned(),
        runs: rows.iter().map(|row| row.runs).sum(),
        cost_usd: rows.iter().map(|row| row.cost_usd).sum(),
        today: None,
    }
}

fn table(rows: &[Row], by: By, with_bars: bool) -> Table {
    let total = total(rows);
    let longest = rows.iter().map(|row| row.cost_usd).fold(0.0, f64::max);
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header([by.title(), "RUNS", "COST", ""]);
    for row in rows.iter().chain((rows.len() > 1).then_some(&total)) {
        let bar = match with_bars && row.name != total.name {
            true => bar(row.cost_usd, longest),
            false => String::new(),
        };
        let budget = row
            .today
            .map_or(String::new(), |(spent, most)| format!("{} of ${most} today", dollars(spent)));
        let aside = [bar, budget].join(" ").trim().to_owned();
        table.add_row([one_line(&row.name), row.runs.to_string(), dollars(row.cost_usd), aside]);
    }
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

impl By {
    fn title(self) -> &'static str {
        match self {
            Self::Agent => "AGENT",
            Self::Day => "DAY",
            Self::Session => "SESSION",
        }
    }
}

/// A bar as long as its part of the longest, to an eighth of a cell; what cost anything is seen.
fn bar(amount: f64, longest: f64) -> String {
    const EIGHTHS: [(f64, &str); 7] =
        [(1.0, "▏"), (2.0, "▎"), (3.0, "▍"), (4.0, "▌"), (5.0, "▋"), (6.0, "▊"), (7.0, "▉")];
    if longest <= 0.0 || amount <= 0.0 {
        return String::new();
    }
    let mut left = (amount / longest * BAR_CELLS * 8.0).round().max(1.0);
    let mut bar = String::new();
    while left >= 8.0 {
        bar.push('█');
        left -= 8.0;
    }
    let last = EIGHTHS.iter().rev().find(|(eighths, _)| left >= *eighths);
    bar + last.map_or("", |(_, cell)| *cell)
}

fn dollars(amount: f64) -> String {
    format!("${amount:.4}")
}

fn as_json(rows: &[Row], by: By) -> Value {
    let key = by.title().to_lowercase();
    let entry = |row: &Row| {
        let mut entry = Map::new();
        entry.insert(key.clone(), row.name.clone().into());
        entry.insert("runs".to_owned(), row.runs.into());
        entry.insert("cost_usd".to_owned(), rounded(row.cost_usd).into());
        if let Some((spent, most)) = row.today {
            entry.insert("today_usd".to_owned(), rounded(spent).into());
            entry.insert("per_day_usd".to_owned(), most.into());
        }
        Value::Object(entry)
    };
    let total = total(rows);
    json!({
        "by": key,
        "rows": rows.iter().map(entry).collect::<Vec<_>>(),
        "total": { "runs": total.runs, "cost_usd": rounded(total.cost_usd) },
    })
}

fn rounded(amount: f64) -> f64 {
    (amount * 1e9).round() / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(day: &str, agent: &str, session: &str, cost_usd: f64) -> Account {
        let [day, agent, session] = [day, agent, session].map(str::to_owned);
        Account { day, agent, session, cost_usd, runs: 2 }
    }

    #[test]
    fn a_bar_shows_its_part_and_never_nothing() {
        assert_eq!(bar(1.0, 1.0).chars().count(), 24);
        assert_eq!(bar(0.5, 1.0), "█".repeat(12));
        assert_eq!(bar(0.0001, 1.0), "▏");
        assert_eq!(bar(0.0, 1.0), "");
    }

    #[test]
    fn a_table_by_agent_by_day_and_by_session() {
        let accounts = [
            account("2026-11-15", "web-search", "8f3a", 0.75),
            account("2026-11-16", "web-search", "process-1", 0.25),
            account("2026-11-16", "helper", "process-2", 0.125),
        ];
        let shown = [By::Agent, By::Day, By::Session].map(|by| {
            let lines = table(&rows(&accounts, by), by, true).to_string();
            lines.lines().map(|line| line.trim_end().to_owned() + "\n").collect::<String>()
        });
        insta::assert_snapshot!(shown.join("\n"));
    }
}
