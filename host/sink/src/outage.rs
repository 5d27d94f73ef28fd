//! An outage of a sink, as this process observes it.

use std::time::{Duration, Instant};

use outbox_event::SinkOutage;
use outbox_event::time::time_of;

/// Since when and why a sink is down. It holds moments, because a time of day would be wrong as soon as the clock is corrected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outage {
    since: Instant,
    /// Why the last message failed.
    pub(super) reason: String,
    /// When the last message failed, and the rest before the next try.
    last: (Instant, Duration),
}

impl Outage {
    /// An outage with a failure at `now`: that of `earlier`, or a new one.
    pub(super) fn new(earlier: Option<&Self>, reason: String, rest: Duration, now: Instant) -> Self {
        Self { since: earlier.map_or(now, |earlier| earlier.since), reason, last: (now, rest) }
    }

    /// This outage for operators, by the clock as it is set now.
    pub(super) fn report(&self) -> SinkOutage {
        let (failed_at, rest) = self.last;
        SinkOutage { since: time_of(self.since), reason: self.reason.clone(), next_try: time_of(failed_at).plus(rest) }
    }
}
