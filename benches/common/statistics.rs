//! Durations, medians and percentiles.

use std::time::{Duration, Instant};

pub fn timed(action: impl FnOnce()) -> Duration {
    let started = Instant::now();
    action();
    started.elapsed()
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The median in milliseconds.
pub fn median_ms(times: &[Duration]) -> f64 {
    median(times.iter().copied().map(milliseconds).collect())
}

/// The median; of an even number of values, the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

/// A percentile in milliseconds; `at` is between 0 and 1.
pub fn percentile(times: &[Duration], at: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a position in a list"
    )]
    let position = ((sorted.len() - 1) as f64 * at) as usize;
    milliseconds(sorted[position])
}
