//! Histogram of durations with fixed memory; percentiles are accurate to one eighth.

use std::time::Duration;

/// Buckets per doubling. The error of a percentile is at most one bucket.
const BUCKETS_PER_DOUBLING: u32 = 8;
const BUCKETS: usize = 40 * BUCKETS_PER_DOUBLING as usize;

/// Counts durations from 1 µs to about 12 days.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u32]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), total: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket_index(micros)) {
            *count = count.saturating_add(1);
        }
        self.total += 1;
    }

    /// Returns the upper bound of the bucket of a percentile, in milliseconds; `None` if nothing was counted.
    pub(crate) fn percentile_ms(&self, percent: u64) -> Option<f64> {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        self.counts.iter().enumerate().find_map(|(index, count)| {
            seen += u64::from(*count);
            (self.total > 0 && seen >= rank).then(|| bucket_end_ms(index))
        })
    }
}

fn bucket_index(micros: u64) -> usize {
    let micros = micros.max(1);
    let doubling = micros.ilog2();
    // The three bits below the highest one select one of eight buckets per doubling.
    let step =
        if doubling >= 3 { (micros >> (doubling - 3)) & 7 } else { (micros << (3 - doubling)) & 7 };
    let index = u64::from(doubling) * u64::from(BUCKETS_PER_DOUBLING) + step;
    usize::try_from(index).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket in milliseconds.
fn bucket_end_ms(index: usize) -> f64 {
    let index = u32::try_from(index).unwrap_or(u32::MAX);
    let low = 2f64.powi(i32::try_from(index / BUCKETS_PER_DOUBLING).unwrap_or(i32::MAX));
    let micros =
        low * (1.0 + f64::from(index % BUCKETS_PER_DOUBLING + 1) / f64::from(BUCKETS_PER_DOUBLING));
    micros.round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_histogram_has_no_percentiles() {
        assert_eq!(Histogram::default().percentile_ms(50), None);
    }

    #[test]
    fn percentiles_of_known_values_are_exact_to_a_bucket() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|ms| histogram.add(Duration::from_millis(ms)));
        for (percent, exact) in [(50, 500.0), (95, 950.0), (99, 990.0)] {
            let found = histogram.percentile_ms(percent).unwrap();
            assert!((found / exact - 1.0).abs() < 0.13, "p{percent} is {found}, not {exact}");
        }
    }

    proptest! {
        #[test]
        fn a_single_value_is_within_its_bucket(micros in 1u64..1 << 39) {
            let mut histogram = Histogram::default();
            histogram.add(Duration::from_micros(micros));
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            let exact = micros as f64 / 1_000.0;
            let found = histogram.percentile_ms(50).unwrap();
            prop_assert!(found >= exact - 0.001 && found <= exact * 1.13 + 0.001, "{} for {}", found, exact);
        }
    }
}
