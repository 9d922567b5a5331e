//! One row of the table, and its limit.

use crate::common::statistics::median;
use crate::pair::{Pair, medians};

/// The largest allowed ratio new/old of a time.
const MAX_RATIO: f64 = 1.05;

#[derive(Clone, Copy)]
pub enum Limit {
    /// A time: new/old is at most [`MAX_RATIO`].
    Time,
    /// A throughput: new/old is at least 1 / [`MAX_RATIO`].
    Throughput,
    /// For information only.
    None,
}

pub struct Row {
    pub name: &'static str,
    unit: &'static str,
    limit: Limit,
    rounds: Vec<Pair<f64>>,
}

impl Row {
    pub fn new(
        name: &'static str,
        unit: &'static str,
        limit: Limit,
        rounds: impl IntoIterator<Item = Pair<f64>>,
    ) -> Self {
        Self { name, unit, limit, rounds: rounds.into_iter().collect() }
    }

    /// A time in milliseconds.
    pub fn time(name: &'static str, rounds: impl IntoIterator<Item = Pair<f64>>) -> Self {
        Self::new(name, "ms", Limit::Time, rounds)
    }

    fn ratios(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.new / round.old).collect()
    }

    /// The median of the ratios new/old of the rounds.
    fn ratio(&self) -> f64 {
        median(self.ratios())
    }

    /// The smallest and the largest ratio: a wide range means that other load disturbs the measurement.
    fn range(&self) -> String {
        let least = self.ratios().into_iter().fold(f64::INFINITY, f64::min);
        let most = self.ratios().into_iter().fold(0.0, f64::max);
        format!("{least:.2}-{most:.2}")
    }

    /// `false` too if the ratio is not a number.
    pub fn is_within_limit(&self) -> bool {
        match self.limit {
            Limit::Time => self.ratio() <= MAX_RATIO,
            Limit::Throughput => self.ratio() >= 1.0 / MAX_RATIO,
            Limit::None => true,
        }
    }

    pub fn print(&self) {
        let Pair { old, new } = medians(&self.rounds).map(|value| number(*value));
        let verdict = match self.limit {
            Limit::None => "",
            _ if self.is_within_limit() => "ok",
            Limit::Time => "OVER 1.05",
            Limit::Throughput => "BELOW 1/1.05",
        };
        let (ratio, range) = match self.limit {
            Limit::None => (String::new(), String::new()),
            Limit::Time | Limit::Throughput => (format!("{:.3}", self.ratio()), self.range()),
        };
        println!(
            "{:<40} {old:>9} {new:>9} {:<8} {ratio:>7} {range:>11}  {verdict}",
            self.name, self.unit
        );
    }
}

pub fn print_header() {
    println!(
        "{:<40} {:>9} {:>9} {:<8} {:>7} {:>11}  limit",
        "", "old", "new", "unit", "new/old", "range"
    );
}

/// At least three significant digits.
fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 1_000.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}
