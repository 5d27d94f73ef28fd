//! The ids of events whose transaction nobody told the end of.
//!
//! The claims that their rows were inserted with are given back by id. An event with such an id that is written again would
//! have its claim taken from it while it is delivered, and would be delivered twice. So a second insert of such an id is not
//! delivered from memory either: its claim goes back too, and the poller takes the event under a claim of its own.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::event::EventId;

/// The ids of events whose transaction nobody told the end of, each until its claim has ended.
#[derive(Debug, Default)]
pub(crate) struct Abandoned {
    /// Spares the hot path the lock where every receipt is told its end.
    any: AtomicBool,
    until: Mutex<HashMap<EventId, Instant>>,
}

impl Abandoned {
    /// Adds ids whose claims end at `until`, and forgets those whose claims have ended.
    pub(super) fn add(&self, ids: &[EventId], until: Instant) {
        let mut known = self.lock();
        let now = Instant::now();
        if known.len() == known.capacity() {
            known.retain(|_, until| *until > now);
        }
        for id in ids {
            let end = known.entry(*id).or_insert(until);
            *end = until.max(*end);
        }
        self.any.store(!known.is_empty(), Ordering::SeqCst);
    }

    /// Whether an event with this id was abandoned and its claim may be given back still.
    pub(super) fn contains(&self, id: &EventId) -> bool {
        self.any.load(Ordering::SeqCst) && self.lock().contains_key(id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EventId, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::system_clock;

    #[test]
    fn ids_are_known_until_their_claims_have_ended_and_cost_no_memory_after() {
        let abandoned = Abandoned::default();
        let ids: Vec<EventId> = (0..1_000).map(|_| EventId::generate(system_clock().now())).collect();
        let (past, later) = (Instant::now(), Instant::now() + Duration::from_secs(3_600));
        abandoned.add(&ids[..1], later);
        abandoned.add(&ids[..1], past);
        assert!(abandoned.contains(&ids[0]), "the longer claim counts");

        for id in &ids[1..] {
            abandoned.add(&[*id], past);
        }

        assert!(abandoned.contains(&ids[0]));
        assert!(abandoned.lock().len() < 100, "{} are known still", abandoned.lock().len());
    }
}
