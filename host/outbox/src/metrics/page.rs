//! What metrics are written into: a text for Prometheus, or the points of OpenTelemetry. Their names and numbers have one
//! source, the [exposition](super::exposition).

use super::Histogram;

/// What metrics are written into.
pub(crate) trait Page {
    /// Begins a metric. Once for each name: all its samples stand together. The name has no prefix, and ends as Prometheus has it:
    /// `_total` for what only grows, `_seconds` and `_bytes` for units.
    fn begin(&mut self, name: &str, kind: Kind, help: &str);

    /// Adds a number to the metric that was begun last.
    fn add(&mut self, labels: Labels<'_>, value: Value);

    /// Adds a histogram to the metric that was begun last.
    fn add_histogram(&mut self, labels: Labels<'_>, histogram: &Histogram);

    /// Begins a metric whose samples follow.
    fn family(&mut self, name: &str, kind: Kind, help: &str) -> Family<'_, Self>
    where
        Self: Sized,
    {
        self.begin(name, kind, help);
        Family(self)
    }
}

/// What kind of metric it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Count(u64),
    Number(f64),
}

/// Names of labels with their values.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];

/// One metric, whose samples follow.
pub(crate) struct Family<'a, P>(&'a mut P);

impl<P: Page> Family<'_, P> {
    /// Adds a number.
    pub(crate) fn sample(&mut self, labels: Labels<'_>, value: impl Into<Value>) -> &mut Self {
        self.0.add(labels, value.into());
        self
    }

    /// Adds a histogram.
    pub(crate) fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) -> &mut Self {
        self.0.add_histogram(labels, histogram);
        self
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
