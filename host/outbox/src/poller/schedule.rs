//! When to read the table, from which position, and how much. Pure: the schedule learns the time and each answer from its caller.

mod cursor;
mod fitting;

use std::time::Duration;

use tokio::time::Instant;

pub(super) use self::cursor::{Cursor, Ended};
use self::fitting::Fitting;
use super::PollerConfig;

/// How long the poller relies on a known due time of the next event, while nothing wakes it. Another program may write an event without
/// waking this host; the next read finds it. If reads are rare, only a fresh answer shows an event that becomes due before the next read.
const DUE_KNOWN_FOR: Duration = Duration::from_secs(5);
const DUE_KNOWN_FOR_IF_READS_ARE_RARE: Duration = Duration::from_secs(1);

/// When to read the table, from which position, and how much.
#[derive(Debug)]
pub(crate) struct Schedule {
    config: PollerConfig,
    pub(super) cursor: Cursor,
    fitting: Fitting,
    /// The last known due time of the next event. `None` before the first query.
    due: Option<KnownDue>,
}

#[derive(Clone, Copy, Debug)]
struct KnownDue {
    answered_at: Instant,
    /// `None` if no event waits.
    due_at: Option<Instant>,
}

impl Schedule {
    pub(crate) fn new(config: PollerConfig) -> Self {
        Self { config, cursor: Cursor::default(), fitting: Fitting::default(), due: None }
    }

    /// The longest rest between two turns.
    pub(super) fn interval(&self) -> Duration {
        self.config.interval
    }

    /// Skip events that were inserted within this span.
    pub(super) fn skip_recent(&self) -> Duration {
        self.config.skip_recent
    }

    /// How many events to request if the free capacity is `room`.
    pub(super) fn limit(&self, after_a_rest: bool, room: usize) -> u32 {
        let batch_size = if after_a_rest { self.config.batch_size } else { self.config.drain_batch_size };
        batch_size.min(u32::try_from(room).unwrap_or(u32::MAX)).min(self.fitting.most())
    }

    /// Notes how many events a read returned, and whether the byte limit ended it.
    pub(super) fn brought(&mut self, events: usize, limit: u32, no_more_bytes: bool) {
        self.fitting.note(events, limit, no_more_bytes);
    }

    /// How long until the next event is due, if the last answer is younger than `known_for`. `Some(None)` if no event waits.
    pub(super) fn known_due(&self, now: Instant, known_for: Duration) -> Option<Option<Duration>> {
        let KnownDue { answered_at, due_at } = self.due?;
        let is_known = now.saturating_duration_since(answered_at) < known_for && due_at.is_none_or(|due_at| due_at > now);
        is_known.then(|| due_at.map(|due_at| due_at.saturating_duration_since(now)))
    }

    /// How long until the next event is due by the last answer, however old. `None` if it is due already, or no event waits.
    pub(super) fn last_known_due(&self, now: Instant) -> Option<Duration> {
        Some(self.due?.due_at?.saturating_duration_since(now)).filter(|rest| !rest.is_zero())
    }

    /// How long to rely on a known due time, if the turn took no event and nothing woke the poller.
    pub(super) fn due_known_for(&self) -> Duration {
        if self.config.interval <= DUE_KNOWN_FOR_IF_READS_ARE_RARE { DUE_KNOWN_FOR } else { DUE_KNOWN_FOR_IF_READS_ARE_RARE }
    }

    /// Notes an answer: how long until the next event is due. `None` if no event waits.
    pub(super) fn note_due(&mut self, answered_at: Instant, due: Option<Duration>) {
        self.due = Some(KnownDue { answered_at, due_at: due.and_then(|due| answered_at.checked_add(due)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_answer_is_known_for_a_while_and_until_the_event_is_due() {
        let (mut schedule, now) = (Schedule::new(PollerConfig::default()), Instant::now());
        assert_eq!(schedule.known_due(now, SECOND), None);

        schedule.note_due(now, None);
        assert_eq!(schedule.known_due(now + SECOND / 2, SECOND), Some(None));
        assert_eq!(schedule.known_due(now + SECOND, SECOND), None);

        schedule.note_due(now, Some(2 * SECOND));
        assert_eq!(schedule.known_due(now + SECOND, 9 * SECOND), Some(Some(SECOND)));
        assert_eq!(schedule.known_due(now + 2 * SECOND, 9 * SECOND), None, "it is due");
        assert_eq!(schedule.last_known_due(now + SECOND), Some(SECOND));
        assert_eq!(schedule.last_known_due(now + 2 * SECOND), None);
    }

    #[test]
    fn a_read_asks_for_a_batch_and_for_no_more_than_there_is_room_for_or_fitted_last() {
        let config = PollerConfig { batch_size: 50, drain_batch_size: 500, ..PollerConfig::default() };
        let mut schedule = Schedule::new(config);
        assert_eq!((schedule.limit(true, 1_000), schedule.limit(false, 1_000)), (50, 500));
        assert_eq!(schedule.limit(false, 7), 7);
        schedule.brought(3, 500, true);
        assert_eq!(schedule.limit(false, 1_000), 4);
    }
}
