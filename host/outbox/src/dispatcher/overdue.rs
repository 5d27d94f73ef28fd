//! Workers whose listener is overdue. A listener that blocks its thread cannot be cut off, but its event need not wait for it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::runtime_lag::RuntimeLag;
use crate::event::{EventId, Fence};

/// The event that each worker is handling, and when that must have ended.
#[derive(Debug)]
pub(crate) struct Visits(Box<[Mutex<Option<Visited>>]>);

#[derive(Debug)]
struct Visited {
    id: EventId,
    /// Which delivery it is; `None` for an event that was never stored.
    fence: Option<Fence>,
    until: Option<Instant>,
    /// Whether it was already logged as overdue.
    logged: bool,
}

/// A worker's visit with an event, as long as it lives.
pub(super) struct Watched<'a>(&'a Mutex<Option<Visited>>);

impl Visits {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Mutex::default()).collect())
    }

    /// Begins a worker's visit with an event. A worker has one at a time.
    pub(super) fn begin(&self, worker: usize, id: EventId, fence: Option<Fence>) -> Watched<'_> {
        let visit = &self.0[worker];
        *lock(visit) = Some(Visited { id, fence, until: None, logged: false });
        Watched(visit)
    }

    /// The deliveries whose visits should have ended before `now`.
    pub(super) fn overdue(&self, now: Instant) -> HashSet<(EventId, Option<Fence>)> {
        let of_visit =
            |visit| lock(visit).as_ref().filter(|visited| visited.is_overdue(now)).map(|visited| (visited.id, visited.fence));
        self.0.iter().filter_map(of_visit).collect()
    }

    /// Logs each visit once that should have ended before `now`. While the runtime lags, it logs none: a call that waits for a thread is
    /// overdue too.
    pub(super) fn log_overdue(&self, now: Instant, lag: &RuntimeLag) {
        if lag.is_recent(now) {
            return;
        }
        for visit in &self.0 {
            let mut visit = lock(visit);
            let Some(visited) = visit.as_mut().filter(|visited| visited.is_overdue(now)) else { continue };
            if !std::mem::replace(&mut visited.logged, true) {
                tracing::error!(
                    event.id = %visited.id,
                    "a listener or an interceptor blocks its thread and cannot be cut off; its event may be delivered again after a \
                     lease, and its worker is lost until it comes back"
                );
            }
        }
    }

    /// The deliveries whose visits should have ended before `since`, and that may be made again: no other of their events is
    /// stuck as well, and of `threads` more than one is left beside those that are. An event that blocks one thread after the
    /// other must not get all of them.
    pub(super) fn to_repeat(&self, since: Instant, threads: usize) -> Vec<(EventId, Fence)> {
        let stuck = self.overdue(since);
        if stuck.len() + 1 >= threads {
            return Vec::new();
        }
        let is_alone = |id: &EventId| stuck.iter().filter(|(other, _)| other == id).count() == 1;
        stuck.iter().filter(|(id, _)| is_alone(id)).filter_map(|(id, fence)| Some((*id, (*fence)?))).collect()
    }
}

impl Visited {
    fn is_overdue(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until < now)
    }
}

impl Watched<'_> {
    /// Sets when the next step of the visit must have ended.
    pub(super) fn until(&self, until: Instant) {
        if let Some(visited) = lock(self.0).as_mut() {
            visited.until = Some(until);
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        *lock(self.0) = None;
    }
}

fn lock(visit: &Mutex<Option<Visited>>) -> MutexGuard<'_, Option<Visited>> {
    visit.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::log_lines::LogLines;

    const SECOND: Duration = Duration::from_secs(1);

    fn id(text: &str) -> EventId {
        text.parse().expect("valid")
    }

    #[test]
    fn a_visit_is_overdue_from_its_time_until_its_end() {
        let (visits, start) = (Visits::new(2), Instant::now());
        let fence = Some(Fence { sequence: 1, claim: 1 });
        let watched = visits.begin(1, id("a"), fence);
        assert!(visits.overdue(start).is_empty(), "it has no time limit yet");
        watched.until(start + SECOND);
        assert!(visits.overdue(start).is_empty());
        assert_eq!(visits.overdue(start + 2 * SECOND), HashSet::from([(id("a"), fence)]));
        drop(watched);
        assert!(visits.overdue(start + 2 * SECOND).is_empty());
    }

    #[test]
    fn visit_is_logged_once_and_not_while_the_runtime_lags() {
        let (lines, visits, start) = (LogLines::of_this_thread(), Visits::new(1), Instant::now());
        let lag = RuntimeLag::new(SECOND, start);
        let watched = visits.begin(0, id("a"), None);
        watched.until(start);

        visits.log_overdue(start + 5 * SECOND, &lag);
        assert!(lines.containing("blocks its thread").is_empty(), "the tick is missing");
        lag.tick(start + 5 * SECOND);
        visits.log_overdue(start + 5 * SECOND, &lag);
        assert!(lines.containing("blocks its thread").is_empty(), "the tick was late");

        lag.tick(start + 6 * SECOND);
        for _ in 0..2 {
            visits.log_overdue(start + 6 * SECOND, &lag);
            assert_eq!(lines.containing("blocks its thread").len(), 1);
        }
    }

    #[test]
    fn a_delivery_that_is_stuck_is_made_again_once_and_only_where_threads_are_left() {
        let (visits, start) = (Visits::new(3), Instant::now());
        let fences = [1, 2].map(|claim| Fence { sequence: 1, claim });
        let first = visits.begin(0, id("a"), Some(fences[0]));
        first.until(start);
        assert!(visits.to_repeat(start, 3).is_empty(), "not yet");
        assert_eq!(visits.to_repeat(start + SECOND, 3), [(id("a"), fences[0])]);
        assert!(visits.to_repeat(start + SECOND, 2).is_empty(), "the second could block the last thread");

        let second = visits.begin(1, id("a"), Some(fences[1]));
        second.until(start);
        assert!(visits.to_repeat(start + SECOND, 8).is_empty(), "it blocked two: a third would be no better");
        let other = visits.begin(2, id("b"), None);
        other.until(start);
        assert!(visits.to_repeat(start + SECOND, 8).is_empty(), "what was never stored is not made again");
    }
}
