//! The lags of all routes, for the charts of the dashboard: from when an event could be delivered until it was done.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::histogram::{Histogram, OF_LAGS};

/// The buckets of the lags of all routes, added up: at one moment, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // for the host
pub struct Lags([u64; OF_LAGS.len() + 1]);

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

    /// The lag that this part of all events did not exceed, 0.99 for 99 of 100; as exact as the buckets are. If that is beyond the last
    /// bound, that bound. `None` if nothing was counted.
    #[expect(clippy::cast_precision_loss, reason = "a point of a chart")]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let rank = all as f64 * part;
        let mut below = 0.0;
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let within = below + *count as f64;
            if within >= rank {
                let Some(upper) = OF_LAGS.get(bucket) else { return OF_LAGS.last().copied() };
                let lower = bucket.checked_sub(1).map_or(Duration::ZERO, |before| OF_LAGS[before]);
                return Some(lower + (*upper - lower).mul_f64(((rank - below) / *count as f64).clamp(0.0, 1.0)));
            }
            below = within;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

        histogram.observe(Duration::from_secs(100_000));
        let since = read().since(&first);
        assert_eq!(since.quantile(0.5), Some(Duration::from_secs(7_200)), "the last bound is all that is known");
        assert_eq!(first.plus(&since), read());
        assert_eq!(first.since(&read()), Lags::default(), "counters that began anew");
    }
}
