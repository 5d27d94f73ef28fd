//! A histogram of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outbox_event::nanos;

/// Upper bounds for how long attempts take.
const OF_ATTEMPTS: &[Duration] = &[
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
];

/// Upper bounds for how long events wait until they are delivered: a millisecond to 7.9 days. Each is at most 1.5 times the one before,
/// so that a quantile is known to a fifth. Each bound is a series of Prometheus for each route.
pub(super) const OF_LAGS: &[Duration] = &of_lags();

/// Six bounds for each power of ten. Source: IEC 60063, series E6.
const fn of_lags() -> [Duration; 54] {
    const STEPS: [u64; 6] = [10, 15, 22, 33, 47, 68];
    let mut bounds = [Duration::ZERO; 54];
    let (mut index, mut unit_micros) = (0, 100);
    while index < bounds.len() {
        bounds[index] = Duration::from_micros(STEPS[index % STEPS.len()] * unit_micros);
        if index % STEPS.len() == STEPS.len() - 1 {
            unit_micros *= 10;
        }
        index += 1;
    }
    bounds
}

/// A histogram of durations. Counting one takes two relaxed additions.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [Duration],
    /// One for each bound, and one for longer durations.
    pub(super) buckets: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

impl Histogram {
    /// For the durations of attempts: half a millisecond to 30 seconds.
    #[doc(hidden)] // for the host
    pub fn of_attempts() -> Self {
        Self::new(OF_ATTEMPTS)
    }

    /// For the lags of events: a millisecond to a week.
    pub(super) fn of_lags() -> Self {
        Self::new(OF_LAGS)
    }

    fn new(bounds: &'static [Duration]) -> Self {
        Self { bounds, buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(), nanos: AtomicU64::new(0) }
    }

    #[doc(hidden)] // for the host
    pub fn observe(&self, span: Duration) {
        let bucket = self.bounds.partition_point(|bound| *bound < span);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos(span), Ordering::Relaxed);
    }

    /// For each bound, shortest first, how many durations were no longer.
    #[doc(hidden)] // for the host
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut sum = 0;
        self.bounds.iter().zip(&self.buckets).map(move |(bound, bucket)| {
            sum += bucket.load(Ordering::Relaxed);
            (*bound, sum)
        })
    }

    /// How many durations were longer than the last bound.
    #[must_use]
    pub fn longer(&self) -> u64 {
        self.buckets.last().map_or(0, |bucket| bucket.load(Ordering::Relaxed))
    }

    /// The sum of all durations.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_counts_in_every_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::of_attempts();

        for millis in [0, 1, 2, 10, 30_000, 30_001] {
            histogram.observe(Duration::from_millis(millis));
        }

        let within = |millis| {
            let bound = Duration::from_millis(millis);
            histogram.cumulative().find(|(known, _)| *known == bound).map(|(_, count)| count)
        };
        assert_eq!([1, 5, 10, 10_000, 30_000].map(within), [Some(2), Some(3), Some(4), Some(4), Some(5)]);
        assert_eq!(histogram.longer(), 1);
        assert_eq!(histogram.sum(), Duration::from_millis(60_014));
    }

    #[test]
    fn bounds_are_in_order_and_those_of_lags_are_close_to_each_other() {
        assert!(OF_ATTEMPTS.is_sorted() && OF_LAGS.is_sorted());
        let ends = [OF_LAGS[0], OF_LAGS[OF_LAGS.len() - 1]];
        assert_eq!(ends, [Duration::from_millis(1), Duration::from_secs(680_000)]);
        assert!(OF_LAGS.windows(2).all(|pair| pair[1] * 2 <= pair[0] * 3), "{OF_LAGS:?}");
    }
}
