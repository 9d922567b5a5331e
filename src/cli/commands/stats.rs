//! `adjutant stats`: runs, durations, cost, tokens and failures per agent over a period.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;

use crate::cli::format::{format_duration, format_usd};
use crate::cli::log_view::age;
use crate::cli::table::{Column, Table};
use crate::cli::{CliCommand, CommandResult, ExitStatus, output, store_unavailable};
use crate::config::Settings;
use crate::events::{AgentStats, event_path, read_timelines, stats_by_agent};
use crate::util::{now, one_line};

/// Count what agents have done: runs, failures, durations, cost, tokens, refusals
///
/// Exit code 0; 2 if the events cannot be read.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  adjutant stats\n  adjutant stats --since 30d --json")]
pub(crate) struct StatsArguments {
    /// Only runs that began not longer ago, such as `24h` or `30d`
    #[arg(long, value_name = "AGE", value_parser = age, default_value = "7d")]
    since: Duration,
    /// Print JSON for a program
    #[arg(long)]
    json: bool,
}

impl CliCommand for StatsArguments {
    fn run(&self, settings: &Settings) -> CommandResult {
        let path = event_path(&settings.data_dir());
        let since = now().checked_sub(self.since).ok();
        let stories = read_timelines(&path, since).map_err(|error| {
            store_unavailable(format_args!(
                "the events `{}` cannot be read: {error}",
                path.display()
            ))
        })?;
        let stats = stats_by_agent(&stories);
        if stats.is_empty() && !self.json {
            output::print_message("no run is recorded in that time");
        } else {
            let objects: Vec<_> =
                stats.iter().map(|(agent, stats)| stats.to_object(agent)).collect();
            output::print_result(self.json, &objects, || table(&stats));
        }
        Ok(ExitStatus::Success)
    }
}

fn table(stats: &BTreeMap<String, AgentStats>) -> Table {
    let mut table = Table::new([
        Column::text("AGENT"),
        Column::number("RUNS"),
        Column::number("P50").drop(3),
        Column::number("P95").drop(5),
        Column::number("COST").drop(7),
        Column::number("READ").drop(1),
        Column::number("WRITTEN").drop(2),
        Column::number("TOOLS").drop(4),
        Column::number("DENIED").drop(6),
        Column::text("FAILED"),
    ]);
    for (agent, stats) in stats {
        let tokens = |key: &str| stats.tokens.get(key).copied().unwrap_or_default().to_string();
        let time = |millis: Option<u64>| millis.map_or_else(|| "-".to_owned(), format_duration);
        table.add_row([
            one_line(agent),
            stats.runs.to_string(),
            time(stats.p50_ms),
            time(stats.p95_ms),
            format_usd(stats.cost_usd),
            tokens("input"),
            tokens("output"),
            stats.tools.to_string(),
            stats.denials.to_string(),
            format_failures(stats),
        ]);
    }
    table
}

fn format_failures(stats: &AgentStats) -> String {
    if stats.failures.is_empty() {
        return "-".to_owned();
    }
    let codes: Vec<String> =
        stats.failures.iter().map(|(code, count)| format!("{count} {}", one_line(code))).collect();
    codes.join(", ")
}
