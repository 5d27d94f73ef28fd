//! What became of the spans that are exported.

use super::Counter;

/// What became of finished spans.
#[derive(Debug, Default)]
pub struct SpanCounts {
    /// Taken by the collector.
    pub exported: Counter,
    /// Lost: the queue was full, or the collector did not take them.
    pub dropped: Counter,
}

impl SpanCounts {
    /// Counts this many more.
    pub(crate) fn add(counter: &Counter, spans: usize) {
        counter.add(u64::try_from(spans).unwrap_or(u64::MAX));
    }
}
