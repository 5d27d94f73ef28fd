//! Measures how late the runtime runs tasks. While all of its threads are busy, calls that only wait look as if they blocked a thread.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outbox_listener::Reminder;
use tokio::time::Instant;

/// A tick that is later than this counts. A call may outlive its deadline by as much (`GRACE` in `attempt/call.rs`).
const LATE: Duration = Duration::from_millis(250);
/// A tick that is later than this is logged.
const LOGGED: Duration = Duration::from_secs(1);
/// How long after a late tick other tasks may still be waiting for a thread.
const CATCHES_UP_IN: Duration = Duration::from_secs(1);

/// How late the ticks of one task are.
#[derive(Debug)]
pub(super) struct RuntimeLag {
    every: Duration,
    ticks: Mutex<Ticks>,
}

#[derive(Debug)]
struct Ticks {
    last: Instant,
    /// When the last late tick came.
    late_at: Option<Instant>,
    reminder: Reminder,
}

impl RuntimeLag {
    /// Expects the first tick `every` after `now`.
    pub(super) fn new(every: Duration, now: Instant) -> Self {
        let ticks = Ticks { last: now, late_at: None, reminder: Reminder::default() };
        Self { every, ticks: Mutex::new(ticks) }
    }

    /// Notes a tick. Logs it if it is very late.
    pub(super) fn tick(&self, now: Instant) {
        let mut ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        let lag = self.lag(&ticks, now);
        ticks.last = now;
        if lag > LATE {
            ticks.late_at = Some(now);
        }
        if lag > LOGGED && ticks.reminder.is_due(now) {
            drop(ticks);
            let lag_ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(lag_ms, "all threads of the host were busy, or the process was suspended; events were delayed");
        }
    }

    /// Whether tasks run late, or did until just now.
    pub(super) fn is_recent(&self, now: Instant) -> bool {
        let ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        let was_late = ticks.late_at.is_some_and(|at| now.saturating_duration_since(at) < CATCHES_UP_IN);
        was_late || self.lag(&ticks, now) > LATE
    }

    /// How late the next tick is.
    fn lag(&self, ticks: &Ticks, now: Instant) -> Duration {
        now.saturating_duration_since(ticks.last + self.every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_lines::LogLines;

    const TICK: Duration = Duration::from_millis(100);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn late_and_missing_ticks_are_lag_until_other_tasks_had_time_to_run() {
        // Without a subscriber, this thread could switch the line off for the other test.
        let (_lines, start) = (LogLines::of_this_thread(), Instant::now());
        let lag = RuntimeLag::new(TICK, start);
        assert!(!lag.is_recent(start + TICK));
        assert!(lag.is_recent(start + SECOND), "the tick is missing");

        let late = start + 5 * SECOND;
        lag.tick(late);
        assert!(lag.is_recent(late));
        for tick in 1..=10 {
            lag.tick(late + tick * TICK);
        }
        assert!(!lag.is_recent(late + SECOND));
    }

    #[test]
    fn long_lag_is_logged_with_its_length_and_throttled() {
        let (lines, start) = (LogLines::of_this_thread(), Instant::now());
        let lag = RuntimeLag::new(TICK, start);
        lag.tick(start + TICK);
        assert!(lines.containing("threads of the host were busy").is_empty());

        lag.tick(start + 2 * TICK + 3 * SECOND);
        lag.tick(start + 3 * TICK + 6 * SECOND);

        let said = lines.containing("threads of the host were busy");
        assert!(said.len() == 1 && said[0].starts_with("WARN") && said[0].contains("lag_ms=3000"), "{said:?}");
    }
}
