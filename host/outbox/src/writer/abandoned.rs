//! The ids of events whose transaction nobody told the end of.
//!
//! The claims that their rows were inserted with are given back by id. An event with such an id that is written again would
//! have its claim taken from it while it is delivered, and would be delivered twice. So a second insert of such an id is not
//! delivered from memory either: its claim goes back too, and the poller takes the event under a claim of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::event::EventId;

/// How much longer than its claim an id is known: a statement that gives claims back may be under way when they end.
const SLACK: Duration = Duration::from_secs(60);

/// The ids of events whose transaction nobody told the end of, each until its claim has ended.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    /// Spares the hot path the lock while there is none.
    any: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    until: HashMap<EventId, Instant>,
    /// When the last of them ends.
    last: Option<Instant>,
}

impl Abandoned {
    /// Adds ids whose claims end at `until`.
    pub(super) fn add(&self, ids: &[EventId], until: Instant) {
        if ids.is_empty() {
            return;
        }
        let until = until + SLACK;
        let mut known = self.lock();
        // Before the map grows, and so no more often than it doubles.
        if known.until.len() == known.until.capacity() {
            let now = Instant::now();
            known.until.retain(|_, until| *until > now);
        }
        for id in ids {
            let end = known.until.entry(*id).or_insert(until);
            *end = until.max(*end);
        }
        known.last = known.last.max(Some(until));
        self.any.store(true, Ordering::SeqCst);
    }

    /// Whether an event with this id was abandoned, so that its claim may be given back still.
    pub(super) fn contains(&self, id: &EventId) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let mut known = self.lock();
        let now = Instant::now();
        if known.last.is_none_or(|last| last <= now) {
            *known = Known::default();
            self.any.store(false, Ordering::SeqCst);
        }
        known.until.get(id).is_some_and(|until| *until > now)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::system_clock;

    fn ids(count: usize) -> Vec<EventId> {
        (0..count).map(|_| EventId::generate(system_clock().now())).collect()
    }

    /// When a claim ended whose id need not be known any more.
    fn long_ago() -> Instant {
        Instant::now().checked_sub(2 * SLACK).expect("the machine has run for two minutes")
    }

    #[test]
    fn ids_are_known_until_their_claims_have_ended_and_cost_no_memory_after() {
        let (abandoned, ids) = (Abandoned::default(), ids(1_000));
        abandoned.add(&ids[..1], Instant::now() + Duration::from_secs(3_600));
        abandoned.add(&ids[..1], long_ago());
        assert!(abandoned.contains(&ids[0]), "the longer claim counts");

        for id in &ids[1..] {
            abandoned.add(&[*id], long_ago());
        }

        assert!(abandoned.contains(&ids[0]) && !abandoned.contains(&ids[999]));
        assert!(abandoned.lock().until.len() < 100, "{} are known still", abandoned.lock().until.len());
    }

    #[test]
    fn once_all_claims_have_ended_the_hot_path_takes_no_lock_any_more() {
        let (abandoned, ids) = (Abandoned::default(), ids(2));
        abandoned.add(&[], Instant::now() + Duration::from_secs(3_600));
        assert!(!abandoned.any.load(Ordering::SeqCst), "nothing was abandoned");
        abandoned.add(&ids[..1], long_ago());
        assert!(abandoned.any.load(Ordering::SeqCst));

        assert!(!abandoned.contains(&ids[1]));

        assert!(!abandoned.any.load(Ordering::SeqCst));
        abandoned.add(&ids, Instant::now());
        assert!(abandoned.contains(&ids[1]));
    }
}
