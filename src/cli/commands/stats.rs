//! `adjutant stats`: what agents have done over a time.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::NOTHING;

use super::exit::Exit;
use super::fit::fit_around;
use super::log_view::age;
use super::render;
use crate::base::{now, one_line, shorten};
use crate::config::Settings;
use crate::record::{AgentStats, count_by_agent, event_path, read_stories};

/// `adjutant stats`.
#[derive(Debug, Args)]
pub(super) struct StatsArguments {
    /// Only runs that began not longer ago, such as `24h` or `30d`
    #[arg(long, value_name = "AGE", value_parser = age, default_value = "7d")]
    since: Duration,
    /// Print JSON for a program
    #[arg(long)]
    json: bool,
}

pub(super) fn run(settings: &Settings, arguments: &StatsArguments) -> Exit {
    let path = event_path(&settings.data_dir());
    let since = now().checked_sub(arguments.since).ok();
    let stats = match read_stories(&path, since) {
        Ok(stories) => count_by_agent(&stories),
        Err(error) => {
            render::problem(format_args!(
                "the events `{}` cannot be read: {error}",
                path.display()
            ));
            return Exit::Usage;
        }
    };
    if arguments.json {
        render::json(&stats);
    } else if stats.is_empty() {
        render::talk("no run is recorded in that time");
    } else {
        render::data(table(&stats));
    }
    Exit::Success
}

fn table(stats: &BTreeMap<String, AgentStats>) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header([
        "AGENT", "RUNS", "P50", "P95", "COST", "READ", "WRITTEN", "TOOLS", "DENIED", "FAILED",
    ]);
    for (agent, stats) in stats {
        let tokens = |key: &str| stats.tokens.get(key).copied().unwrap_or_default().to_string();
        let time = |millis: Option<u64>| millis.map_or_else(|| "-".to_owned(), seconds);
        table.add_row([
            shorten(&one_line(agent), 30),
            stats.runs.to_string(),
            time(stats.p50_ms),
            time(stats.p95_ms),
            format!("${:.4}", stats.cost_usd),
            tokens("input"),
            tokens("output"),
            stats.tools.to_string(),
            stats.denials.to_string(),
            failures(stats),
        ]);
    }
    fit_around(&mut table, 0);
    table
}

fn failures(stats: &AgentStats) -> String {
    if stats.failures.is_empty() {
        return "-".to_owned();
    }
    let codes: Vec<String> =
        stats.failures.iter().map(|(code, count)| format!("{count} {}", one_line(code))).collect();
    codes.join(", ")
}

fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1_000, millis % 1_000 / 100)
}
