//! The numbers of all metrics at one moment. Both exporters, Prometheus and OTLP, read the same snapshot.

pub(crate) use prometheus_client::metrics::MetricType;

use super::Histogram;

/// All metrics with their series, in the order of the page.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) families: Vec<Family>,
}

/// One metric. Its name has no prefix, and ends as Prometheus has it: `_total` for counters, `_seconds` and `_bytes` for units.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: MetricType,
    pub(crate) help: &'static str,
    pub(crate) series: Vec<Series>,
}

/// One series of a metric.
#[derive(Debug)]
pub(crate) struct Series {
    /// Names of labels with their values.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: Value,
}

/// The value of a series.
#[derive(Debug)]
pub(crate) enum Value {
    Count(u64),
    Number(f64),
    Histogram(Buckets),
}

/// A histogram, in seconds.
#[derive(Debug)]
pub(crate) struct Buckets {
    /// Each bucket's upper bound, and how many values it has; the last bound is infinite.
    pub(crate) counts: Vec<(f64, u64)>,
    pub(crate) sum: f64,
}

impl Snapshot {
    /// Adds a metric whose series follow. To be called once for each name.
    pub(crate) fn family(&mut self, name: &'static str, kind: MetricType, help: &'static str) -> &mut Family {
        self.families.push(Family { name, kind, help, series: Vec::new() });
        self.families.last_mut().expect("it was added just now")
    }
}

impl Family {
    /// Adds a series.
    pub(crate) fn series(&mut self, labels: &[(&'static str, &str)], value: impl Into<Value>) -> &mut Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.series.push(Series { labels, value: value.into() });
        self
    }
}

impl Buckets {
    /// How many values all buckets have together.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

impl From<&Histogram> for Value {
    fn from(histogram: &Histogram) -> Self {
        let mut before = 0;
        let bounded = histogram.cumulative().map(|(bound, within)| {
            let count = within - before;
            before = within;
            (bound.as_secs_f64(), count)
        });
        let counts = bounded.chain([(f64::INFINITY, histogram.longer())]).collect();
        Self::Histogram(Buckets { counts, sum: histogram.sum().as_secs_f64() })
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Count(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

impl From<bool> for Value {
    fn from(yes: bool) -> Self {
        Self::Count(u64::from(yes))
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}
