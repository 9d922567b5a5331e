//! All documented speed figures, as ratios within one run; writes the plots and the page that shows them.
//!
//! `cargo bench --bench speed` measures with the real `claude` 2.1.325 and a scripted model that answers after a fixed
//! time, and writes `docs/benchmarks/`. `benches/README.md` lists the requirements and how to repeat one row.

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

mod baseline;
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "another benchmark uses the rest of it")]
#[path = "../gateway/comparison.rs"]
mod comparison;
#[path = "../common/delegation.rs"]
mod delegation;
mod page;
mod plot;
mod rows;
#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../../tests/it/support/mod.rs"]
mod support;

use std::path::Path;

/// One row of the table and its plot.
pub struct Row {
    /// File name of the plot.
    pub name: &'static str,
    /// Title of the plot.
    pub title: &'static str,
    /// The baseline.
    pub baseline: &'static str,
    /// `ms`, `bytes` or `MB`.
    pub unit: &'static str,
    /// Value of Adjutant, in `unit`.
    pub ours: f64,
    /// Value of the baseline, in `unit`.
    pub theirs: f64,
    pub goal: Goal,
}

/// Limit of the ratio between Adjutant and the baseline.
#[derive(Clone, Copy)]
pub enum Goal {
    /// Maximum of ours divided by theirs.
    AtMost(f64),
    /// Minimum of theirs divided by ours.
    AtLeastTimesFaster(f64),
}

impl Row {
    /// The ratio that the goal limits.
    pub fn ratio(&self) -> f64 {
        match self.goal {
            Goal::AtMost(_) => self.ours / self.theirs,
            Goal::AtLeastTimesFaster(_) => self.theirs / self.ours,
        }
    }

    /// Returns true if the ratio meets the goal.
    pub fn is_reached(&self) -> bool {
        match self.goal {
            Goal::AtMost(most) => self.ratio() <= most,
            Goal::AtLeastTimesFaster(least) => self.ratio() >= least,
        }
    }
}

fn main() {
    // `cargo test --benches` only checks that the benchmark starts.
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
                row.title,
                row.ratio(),
                row.ours,
                row.unit,
                row.theirs,
                row.unit
            );
            measured.push(row);
        }
    }
    // A partial run must not overwrite the complete table.
    if only.is_none() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/benchmarks");
        page::write(&folder, &measured);
        println!("written: {}", folder.display());
    }
}
