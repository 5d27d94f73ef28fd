//! Workers whose listener is overdue. A listener that blocks its thread cannot be cut off, but its event need not wait for it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::event::EventId;

/// The event that each worker is handling, and when that must have ended.
#[derive(Debug)]
pub(crate) struct Visits(Box<[Mutex<Option<Visited>>]>);

#[derive(Debug)]
struct Visited {
    id: EventId,
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
    pub(super) fn begin(&self, worker: usize, id: EventId) -> Watched<'_> {
        let visit = &self.0[worker];
        *lock(visit) = Some(Visited { id, until: None, logged: false });
        Watched(visit)
    }

    /// The events whose visits should have ended before `now`. Each is logged once.
    pub(super) fn overdue(&self, now: Instant) -> HashSet<EventId> {
        let mut overdue = HashSet::new();
        for visit in &self.0 {
            let mut visit = lock(visit);
            let Some(visited) = visit.as_mut().filter(|visited| visited.until.is_some_and(|until| until < now)) else {
                continue;
            };
            if !std::mem::replace(&mut visited.logged, true) {
                tracing::error!(
                    event.id = %visited.id,
                    "a listener or an interceptor blocks its thread and cannot be cut off; its event can be taken over when \
                     its lease ends, and its worker is lost until it comes back"
                );
            }
            overdue.insert(visited.id);
        }
        overdue
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

    #[test]
    fn a_visit_is_overdue_from_its_time_until_its_end() {
        let (visits, start) = (Visits::new(2), Instant::now());
        let id: EventId = "a".parse().expect("valid");
        let watched = visits.begin(1, id);
        assert!(visits.overdue(start).is_empty(), "it has no time limit yet");
        watched.until(start + Duration::from_secs(1));
        assert!(visits.overdue(start).is_empty());
        assert_eq!(visits.overdue(start + Duration::from_secs(2)), HashSet::from([id]));
        drop(watched);
        assert!(visits.overdue(start + Duration::from_secs(2)).is_empty());
    }
}
