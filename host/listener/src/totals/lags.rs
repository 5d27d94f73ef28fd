//! The lags of all routes, for the charts of the dashboard: from when an event could be delivered until it was done.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::histogram::{Histogram, OF_LAGS};

/// The buckets of the lags of all routes, added up: at one moment, or between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // for the host
pub struct Lags([u64; OF_LAGS.len() + 1]);

impl Default for Lags {
    fn default() -> Self {
        Self([0; OF_LAGS.len() + 1])
    }
}

impl Lags {
    /// Adds what a histogram of lags has counted.
    pub(super) fn add(&mut self, histogram: &Histogram) {
        for (sum, bucket) in self.0.iter_mut().zip(&histogram.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
    }

    /// The counts since `before`. Zero for counters that began anew.
    pub fn since(&self, before: &Self) -> Self {
        let mut since = *self;
        for (bucket, before) in since.0.iter_mut().zip(before.0) {
            *bucket = bucket.saturating_sub(before);
        }
        since
    }

    /// The sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = *self;
        for (bucket, other) in sum.0.iter_mut().zip(other.0) {
            *bucket += other;
        }
        sum
    }

    /// The lag that this part of all events did not exceed, 0.99 for 99 of 100. From a millisecond to the last bound, it is at most 20 %
    /// above or below the true one; beyond the last bound it is that bound. `None` if nothing was counted.
    #[expect(clippy::cast_precision_loss, reason = "a point of a chart")]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let rank = all as f64 * part;
        let mut below = 0.0;
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let within = below + *count as f64;
            if within >= rank {
                let Some(upper) = OF_LAGS.get(bucket) else { return OF_LAGS.last().copied() };
                let Some(lower) = bucket.checked_sub(1).map(|before| OF_LAGS[before]) else {
                    return Some(upper.mul_f64(((rank - below) / *count as f64).clamp(0.0, 1.0)));
                };
                // The harmonic mean of the bounds: in proportion, it is as far above a lag at the lower one as it is below a lag at the
                // upper one. That is 20 % if the upper bound is 1.5 times the lower one.
                let (lower, upper) = (lower.as_secs_f64(), upper.as_secs_f64());
                return Some(Duration::from_secs_f64(2.0 * lower * upper / (lower + upper)));
            }
            below = within;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    #[test]
    fn a_printed_p99_is_within_a_fifth_of_the_true_one_whatever_the_lags_are() {
        // As powers of ten of microseconds: a millisecond, and a little less than the last bound.
        const SHORTEST: f64 = 3.0;
        const LONGEST: f64 = 11.83;
        let mut rng = StdRng::seed_from_u64(99);
        for _ in 0..2_000 {
            // Up to four clusters of lags, each around a value and up to a power of ten wide.
            let mut clusters = Vec::new();
            for _ in 0..rng.random_range(1..=4_u32) {
                let middle: f64 = rng.random_range(SHORTEST..=LONGEST);
                let width: f64 = if rng.random_bool(0.3) { 0.0 } else { rng.random_range(0.0..=0.5) };
                clusters.push((middle, width));
            }
            let mut lags = Vec::new();
            for _ in 0..rng.random_range(1..=300_u32) {
                let (middle, width) = clusters[rng.random_range(0..clusters.len())];
                let place: f64 = rng.random_range(-1.0..=1.0);
                let exponent = (middle + width * place).clamp(SHORTEST, LONGEST);
                lags.push(Duration::from_secs_f64(10_f64.powf(exponent) / 1e6));
            }
            let (histogram, mut counted) = (Histogram::of_lags(), Lags::default());
            lags.iter().for_each(|lag| histogram.observe(*lag));
            counted.add(&histogram);
            lags.sort();
            let rank = lags.len() as f64 * 0.99;
            let exact = lags.iter().zip(1_u32..).find(|(_, number)| f64::from(*number) >= rank).map(|(lag, _)| *lag).unwrap();

            let printed = counted.quantile(0.99).unwrap();

            let error = printed.abs_diff(exact).div_duration_f64(exact);
            assert!(error <= 0.200_001, "{printed:?} is {error} off {exact:?}, of {lags:?}");
        }
    }

    #[test]
    fn a_quantile_lies_in_the_bucket_that_holds_its_event() {
        let histogram = Histogram::of_lags();
        let read = || {
            let mut lags = Lags::default();
            lags.add(&histogram);
            lags
        };
        assert_eq!(read().quantile(0.5), None);
        for millis in [2, 2, 2, 2, 2, 2, 2, 2, 2, 700] {
            histogram.observe(Duration::from_millis(millis));
        }
        let (first, within) = (read(), |part| read().quantile(part).unwrap());
        assert!((Duration::from_millis(1)..=Duration::from_millis(5)).contains(&within(0.5)), "{:?}", within(0.5));
        assert!((Duration::from_millis(500)..=Duration::from_secs(1)).contains(&within(0.99)), "{:?}", within(0.99));

        histogram.observe(Duration::from_secs(1_000_000));
        let since = read().since(&first);
        assert_eq!(since.quantile(0.5), Some(Duration::from_secs(680_000)), "the last bound is all that is known");
        assert_eq!(first.plus(&since), read());
        assert_eq!(first.since(&read()), Lags::default(), "counters that began anew");
    }
}
