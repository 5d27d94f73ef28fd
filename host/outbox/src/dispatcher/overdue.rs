//! Workers whose listener is overdue. A listener that blocks its thread cannot be cut off, but its event need not wait for it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

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

    /// The deliveries whose visits should have ended before `now`. Each is logged once.
    pub(super) fn overdue(&self, now: Instant) -> HashSet<(EventId, Option<Fence>)> {
        let mut overdue = HashSet::new();
        for visit in &self.0 {
            let mut visit = lock(visit);
            let Some(visited) = visit.as_mut().filter(|visited| visited.until.is_some_and(|until| until < now)) else {
                continue;
            };
            if !std::mem::replace(&mut visited.logged, true) {
                tracing::error!(
                    event.id = %visited.id,
                    "a listener or an interceptor blocks its thread and cannot be cut off; its event may be delivered again after a \
                     lease, and its worker is lost until it comes back"
                );
            }
            overdue.insert((visited.id, visited.fence));
        }
        overdue
    }
}

impl Visits {
    /// The deliveries whose visits should have ended before `since`, and that may be made again: no other of their events is
    /// stuck as well, and of `threads` more than one is left beside those that are. An event that blocks one thread after the
    /// other must not get all of them.
    pub(super) fn to_repeat(&self, since: Instant, threads: usize) -> Vec<(EventId, Fence)> {
        let is_stuck = |visited: &Visited| visited.until.is_some_and(|until| until < since);
        let of_visit =
            |visit| lock(visit).as_ref().filter(|visited| is_stuck(visited)).map(|visited| (visited.id, visited.fence));
        let stuck: Vec<(EventId, Option<Fence>)> = self.0.iter().filter_map(of_visit).collect();
        if stuck.len() + 1 >= threads {
            return Vec::new();
        }
        let is_alone = |id: &EventId| stuck.iter().filter(|(other, _)| other == id).count() == 1;
        stuck.iter().filter(|(id, _)| is_alone(id)).filter_map(|(id, fence)| Some((*id, (*fence)?))).collect()
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
