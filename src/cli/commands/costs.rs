//! `adjutant costs`: costs by agent, day or main session.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use uuid::Uuid;

use crate::api::{CostObject, short_id};
use crate::catalog::Snapshot;
use crate::cli::format::format_usd;
use crate::cli::table::{Column, Table};
use crate::cli::{CliCommand, CommandResult, ExitStatus, output, store_unavailable};
use crate::config::Settings;
use crate::costs::{CostAccount, CostLedger, day_of};
use crate::util::{now, one_line};

const BAR_WIDTH: f64 = 24.0;
const OUTSIDE_SESSION: &str = "outside of a session";

/// Show what the agents have cost, by agent, by day, or by session of the main agent
///
/// Read from the ledger in data/, which every run pays into while it goes on. Days are days in UTC.
/// Exit codes: 0; 4 the ledger cannot be read.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant costs\n  adjutant costs --by day\n  \
    adjutant costs --json | jq 'map(.cost_usd) | add'")]
pub(crate) struct CostsArguments {
    /// What stands in one line
    #[arg(long, value_enum, default_value_t = CostGrouping::Agent)]
    by: CostGrouping,
    /// Print JSON for a program
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CostGrouping {
    Agent,
    Day,
    Session,
}

/// A row of the table: group, number of ended runs, cost in US dollars.
#[derive(Clone, Debug, Default, PartialEq)]
struct CostRow {
    name: String,
    runs: u64,
    cost_usd: f64,
    /// Amount spent today and daily budget in US dollars, if the agent has a budget.
    today: Option<(f64, f64)>,
}

impl CliCommand for CostsArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let accounts =
            CostLedger::at(&settings.data_dir()).accounts().map_err(store_unavailable)?;
        let mut rows = group_rows(&accounts, self.by);
        if self.by == CostGrouping::Agent {
            add_budgets(&mut rows, &accounts, settings);
        }
        if rows.is_empty() && !self.json {
            output::print_message("nothing has cost anything yet");
        } else {
            let text = || table(&rows, self.by, output::stdout_is_terminal());
            output::print_result(self.json, &to_objects(&rows, self.by), text);
        }
        Ok(ExitStatus::Success)
    }
}

fn group_rows(accounts: &[CostAccount], by: CostGrouping) -> Vec<CostRow> {
    let mut sums: BTreeMap<&str, CostRow> = BTreeMap::new();
    for account in accounts {
        let name = match by {
            CostGrouping::Agent => account.agent.as_str(),
            CostGrouping::Day => account.day.as_str(),
            CostGrouping::Session if account.is_outside_session() => OUTSIDE_SESSION,
            CostGrouping::Session => account.session.as_str(),
        };
        let row =
            sums.entry(name).or_insert_with(|| CostRow { name: name.into(), ..CostRow::default() });
        row.runs += account.runs;
        row.cost_usd += account.cost_usd;
    }
    let mut rows: Vec<CostRow> = sums.into_values().collect();
    if by != CostGrouping::Day {
        rows.sort_by(|a, b| b.cost_usd.total_cmp(&a.cost_usd));
    }
    rows
}

fn add_budgets(rows: &mut [CostRow], accounts: &[CostAccount], settings: &Settings) {
    let snapshot = Snapshot::load(settings);
    let today = day_of(now());
    for row in rows {
        let budget = snapshot.orchestration().budgets.get(&row.name);
        let of_today = accounts.iter().filter(|a| a.day == today && a.agent == row.name);
        let spent = of_today.map(|account| account.cost_usd).sum();
        row.today = budget.map(|budget| (spent, budget.per_day_usd));
    }
}

fn total(rows: &[CostRow]) -> CostRow {
    CostRow {
        name: "total".to_owned(),
        runs: rows.iter().map(|row| row.runs).sum(),
        cost_usd: rows.iter().map(|row| row.cost_usd).sum(),
        today: None,
    }
}

fn table(rows: &[CostRow], by: CostGrouping, with_bars: bool) -> Table {
    let total = total(rows);
    let longest = rows.iter().map(|row| row.cost_usd).fold(0.0, f64::max);
    let mut table = Table::new([
        Column::text(by.header()),
        Column::number("RUNS").drop(2),
        Column::number("COST"),
        Column::whole("").drop(1),
        Column::text("BUDGET").drop(3),
    ]);
    for row in rows.iter().chain((rows.len() > 1).then_some(&total)) {
        let bar = match with_bars && row.name != total.name {
            true => draw_bar(row.cost_usd, longest),
            false => String::new(),
        };
        let budget = row.today.map_or(String::new(), |(spent, most)| {
            format!("{} of ${most} today", format_usd(spent))
        });
        let is_id = by == CostGrouping::Session && Uuid::try_parse(&row.name).is_ok();
        let name = if is_id { short_id(&row.name).to_owned() } else { one_line(&row.name) };
        table.add_row([name, row.runs.to_string(), format_usd(row.cost_usd), bar, budget]);
    }
    table
}

impl CostGrouping {
    fn header(self) -> &'static str {
        match self {
            Self::Agent => "AGENT",
            Self::Day => "DAY",
            Self::Session => "SESSION",
        }
    }
}

/// Draws a bar relative to `longest` in steps of 1/8 cell; amounts above 0 give at least one step.
fn draw_bar(amount: f64, longest: f64) -> String {
    const EIGHTHS: [(f64, &str); 7] =
        [(1.0, "▏"), (2.0, "▎"), (3.0, "▍"), (4.0, "▌"), (5.0, "▋"), (6.0, "▊"), (7.0, "▉")];
    if longest <= 0.0 || amount <= 0.0 {
        return String::new();
    }
    let mut left = (amount / longest * BAR_WIDTH * 8.0).round().max(1.0);
    let mut bar = String::new();
    while left >= 8.0 {
        bar.push('█');
        left -= 8.0;
    }
    let last = EIGHTHS.iter().rev().find(|(eighths, _)| left >= *eighths);
    bar + last.map_or("", |(_, cell)| *cell)
}

fn to_objects(rows: &[CostRow], by: CostGrouping) -> Vec<CostObject> {
    let object = |row: &CostRow| {
        let name = || Some(row.name.clone());
        let mut object = CostObject {
            runs: row.runs,
            cost_usd: row.cost_usd.into(),
            today_usd: row.today.map(|(spent, _)| spent.into()),
            per_day_usd: row.today.map(|(_, most)| most.into()),
            ..CostObject::default()
        };
        match by {
            CostGrouping::Agent => object.agent = name(),
            CostGrouping::Day => object.day = name(),
            CostGrouping::Session if row.name == OUTSIDE_SESSION => {}
            CostGrouping::Session => object.session_id = name(),
        }
        object
    };
    rows.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(day: &str, agent: &str, session: &str, cost_usd: f64) -> CostAccount {
        let [day, agent, session] = [day, agent, session].map(str::to_owned);
        CostAccount { day, agent, session, cost_usd, runs: 2 }
    }

    #[test]
    fn bars_are_proportional_and_never_empty_for_a_cost() {
        assert_eq!(draw_bar(1.0, 1.0).chars().count(), 24);
        assert_eq!(draw_bar(0.5, 1.0), "█".repeat(12));
        assert_eq!(draw_bar(0.0001, 1.0), "▏");
        assert_eq!(draw_bar(0.0, 1.0), "");
    }

    #[test]
    fn a_table_by_agent_by_day_and_by_session() {
        let accounts = [
            account("2026-11-15", "web-search", "8f3a", 0.75),
            account("2026-11-16", "web-search", "process-1", 0.25),
            account("2026-11-16", "helper", "process-2", 0.125),
        ];
        let shown = [CostGrouping::Agent, CostGrouping::Day, CostGrouping::Session].map(|by| {
            let lines = table(&group_rows(&accounts, by), by, true).render(None);
            lines.lines().map(|line| line.trim_end().to_owned() + "\n").collect::<String>()
        });
        insta::assert_snapshot!(shown.join("\n"));
    }
}
