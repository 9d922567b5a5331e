//! Every figure that is promised about speed, as ratios in one run; writes the plots and the page that shows them.
//!
//! `cargo bench --bench speed` measures everything with the real `claude` 2.1.325 and a scripted model that answers after a fixed
//! time, and writes `docs/benchmarks/`. `benches/README.md` says what it needs and how to repeat one row.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::panic,
    clippy::needless_pass_by_value,
    clippy::cast_precision_loss,
    unreachable_pub,
    reason = "a measurement that fails says so by panicking"
)]

mod bare;
#[allow(dead_code, reason = "another benchmark uses the rest of it")]
#[path = "../gateway/comparison.rs"]
mod comparison;
mod page;
mod plot;
mod rows;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../tests/it/support/mod.rs"]
mod support;

use std::path::Path;

/// One line of the table, and one plot.
pub struct Row {
    /// The plot's file name.
    pub name: &'static str,
    /// What is measured.
    pub what: &'static str,
    /// Against what.
    pub against: &'static str,
    /// `ms`, `bytes` or `MB`.
    pub unit: &'static str,
    /// Ours, in that unit.
    pub ours: f64,
    /// Theirs, in that unit.
    pub theirs: f64,
    /// What the ratio is to be.
    pub goal: Goal,
}

/// What a ratio is to be.
#[derive(Clone, Copy)]
pub enum Goal {
    /// Ours through theirs, at most.
    AtMost(f64),
    /// Theirs through ours, at least: so many times faster.
    TimesFaster(f64),
}

impl Row {
    /// The number that the goal is about.
    pub fn ratio(&self) -> f64 {
        match self.goal {
            Goal::AtMost(_) => self.ours / self.theirs,
            Goal::TimesFaster(_) => self.theirs / self.ours,
        }
    }

    /// Whether the goal is reached.
    pub fn is_reached(&self) -> bool {
        match self.goal {
            Goal::AtMost(most) => self.ratio() <= most,
            Goal::TimesFaster(least) => self.ratio() >= least,
        }
    }
}

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let only = std::env::var("ADJUTANT_BENCH_ROW").ok();
    let is_wanted = |name: &str| only.as_deref().is_none_or(|only| name.contains(only));
    let mut measured = Vec::new();
    for (name, measure) in rows::ALL {
        if !is_wanted(name) {
            continue;
        }
        for row in measure() {
            println!(
                "{}: {:.3} ({:.1} {} / {:.1} {})",
                row.what,
                row.ratio(),
                row.ours,
                row.unit,
                row.theirs,
                row.unit
            );
            measured.push(row);
        }
    }
    // Half a table would stand there as if it were the whole.
    if only.is_none() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks");
        page::write(&folder, &measured);
        println!("written: {}", folder.display());
    }
}
