//! The bytes of cold events in flight, from the read until the settler receives the outcome.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes are counted in spans of this length. The bytes of an event stop counting one to two spans after its read, so that a slow listener
/// takes no capacity from others.
const SPAN: Duration = Duration::from_secs(1);

/// Counts the bytes of cold events in flight, and notifies when there are few again.
#[derive(Debug)]
pub(super) struct BytesInFlight {
    spans: Mutex<Spans>,
    /// Up to this many bytes, more events may be read.
    few: usize,
    /// Notified when there are few bytes again.
    freed: Arc<Notify>,
}

/// The bytes of events that were read in the present span, and in the previous one.
#[derive(Debug)]
struct Spans {
    began_at: Instant,
    present: Arc<AtomicUsize>,
    before: Arc<AtomicUsize>,
}

impl BytesInFlight {
    /// Begins the first span at `now`. Notifies `freed` when the count falls to `few` bytes or below.
    pub(super) fn new(few: usize, freed: Arc<Notify>, now: Instant) -> Arc<Self> {
        let spans = Spans { began_at: now, present: no_bytes(), before: no_bytes() };
        Arc::new(Self { spans: Mutex::new(spans), few, freed })
    }

    pub(super) fn are_few(&self, now: Instant) -> bool {
        self.count(now) <= self.few
    }

    /// How many bytes there are.
    pub(super) fn count(&self, now: Instant) -> usize {
        let spans = self.spans(now);
        spans.present.load(Ordering::SeqCst) + spans.before.load(Ordering::SeqCst)
    }

    /// Counts the bytes of one more event.
    pub(super) fn add(self: &Arc<Self>, bytes: usize, now: Instant) -> CountedBytes {
        let span = self.spans(now).present.clone();
        span.fetch_add(bytes, Ordering::SeqCst);
        CountedBytes { in_flight: self.clone(), span, bytes }
    }

    /// The spans as of `now`: begins another when the present one is over.
    fn spans(&self, now: Instant) -> MutexGuard<'_, Spans> {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_duration_since(spans.began_at);
        if passed >= SPAN {
            let last = std::mem::replace(&mut spans.present, no_bytes());
            spans.before = if passed >= 2 * SPAN { no_bytes() } else { last };
            spans.began_at = now;
        }
        spans
    }
}

fn no_bytes() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

/// Counts the bytes of one event until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedBytes {
    in_flight: Arc<BytesInFlight>,
    /// The count of the span in which the event was read.
    span: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.span.fetch_sub(self.bytes, Ordering::SeqCst);
        let left = self.in_flight.count(Instant::now());
        if left <= self.in_flight.few && left + self.bytes > self.in_flight.few {
            self.in_flight.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_in_hand_for_long_stop_counting() {
        // A drop reads the clock, which never reaches this time: no span ends because of the duration of the test.
        let start = Instant::now() + Duration::from_secs(3_600);
        let bytes = BytesInFlight::new(10, Arc::default(), start);
        let slow = bytes.add(20, start);
        let second = start + SPAN;
        let quick = bytes.add(3, second);
        assert_eq!(bytes.count(second), 23, "one span is not long");

        let third = second + SPAN;
        assert_eq!(bytes.count(third), 3);
        drop(slow);
        assert_eq!(bytes.count(third), 3, "it is not subtracted twice");
        drop(quick);
        assert_eq!(bytes.count(third), 0);

        let _slow = bytes.add(20, third);
        assert_eq!(bytes.count(third + 2 * SPAN), 0, "no event came in the span between");
    }
}
