//! Which events are in this process's hands, from enqueue until their outcome is stored.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::event::{EventId, Fence};

const SHARDS: usize = 16;
/// How soon to look whether a mark that is about to go has gone.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Which events are in this process's hands. An event is there once.
#[derive(Debug, Default)]
pub struct InFlight {
    hasher: foldhash::fast::RandomState,
    shards: [Mutex<HashMap<EventId, Entry, foldhash::fast::RandomState>>; SHARDS],
    /// How many rests in memory have ended.
    rests_ended: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    fence: Option<Fence>,
    /// When the claim ends, by this process's own monotonic clock; `None` when it was lost before.
    lease_end: Option<Instant>,
    /// Whether it waits in memory for its next attempt.
    rests: bool,
}

impl InFlight {
    /// Marks an event whose claim holds for `lease` from now. `None` when it is marked already: somebody has it.
    #[must_use]
    pub fn mark(self: &Arc<Self>, id: EventId, fence: Option<Fence>, lease: Duration) -> Option<Mark> {
        self.mark_until(id, fence, Instant::now() + lease)
    }

    /// Marks an event whose claim holds until `lease_end`. `None` when it is marked already: somebody has it.
    #[must_use]
    pub fn mark_until(self: &Arc<Self>, id: EventId, fence: Option<Fence>, lease_end: Instant) -> Option<Mark> {
        let mut shard = self.shard(&id);
        if shard.contains_key(&id) {
            return None;
        }
        shard.insert(id, Entry { fence, lease_end: Some(lease_end), rests: false });
        Some(Mark { in_flight: self.clone(), id, fence })
    }

    /// As [`mark_until`](Self::mark_until), for an event that was claimed from the table just now: where an earlier claim of ours has
    /// not ended, its outcome is stored, and its mark is about to go. Waits for that until `patience`.
    pub(crate) async fn mark_claimed(
        self: &Arc<Self>,
        id: EventId,
        fence: Fence,
        lease_end: Instant,
        patience: Instant,
    ) -> Option<Mark> {
        loop {
            if let Some(mark) = self.mark_until(id, Some(fence), lease_end) {
                return Some(mark);
            }
            let now = Instant::now();
            let is_going = |entry: &Entry| entry.lease_end.is_some_and(|end| end > now);
            if now >= patience || !self.shard(&id).get(&id).is_none_or(is_going) {
                return None;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Whether an event is marked.
    #[must_use]
    pub fn contains(&self, id: &EventId) -> bool {
        self.shard(id).contains_key(id)
    }

    /// How many events are marked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    /// How many events are marked and do not rest.
    pub(crate) fn busy(&self) -> usize {
        let busy = |shard: &Mutex<HashMap<_, Entry, _>>| {
            shard.lock().unwrap_or_else(PoisonError::into_inner).values().filter(|entry| !entry.rests).count()
        };
        self.shards.iter().map(busy).sum()
    }

    /// How many rests have ended so far. Whoever finds none busy twice, and this number as it was, knows that none was between.
    pub(crate) fn rests_ended(&self) -> u64 {
        self.rests_ended.load(Ordering::Relaxed)
    }

    /// Whether none is marked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The claims that may be renewed: of stored events, not lost.
    #[must_use]
    pub fn held(&self) -> Vec<(EventId, Fence)> {
        let mut held = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            held.extend(
                shard.iter().filter(|(_, entry)| entry.lease_end.is_some()).filter_map(|(id, entry)| Some((*id, entry.fence?))),
            );
        }
        held
    }

    /// Notes that a claim was renewed until `lease_end`, or lost (`None`).
    pub fn renewed(&self, id: EventId, fence: Fence, lease_end: Option<Instant>) {
        if let Some(entry) = self.shard(&id).get_mut(&id).filter(|entry| entry.fence == Some(fence)) {
            entry.lease_end = lease_end;
        }
    }

    fn shard(&self, id: &EventId) -> MutexGuard<'_, HashMap<EventId, Entry, foldhash::fast::RandomState>> {
        let hash = self.hasher.hash_one(id);
        let index = usize::try_from(hash % SHARDS as u64).expect("below 16");
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that an event is in this process's hands, as long as it lives; let go even when a worker panics.
#[derive(Debug)]
pub struct Mark {
    in_flight: Arc<InFlight>,
    id: EventId,
    fence: Option<Fence>,
}

impl Mark {
    /// The proof that the claim is ours; `None` for an event that was never stored.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// When the claim ends as of now; renewals move it. `None` when it was lost.
    #[must_use]
    pub fn lease_end(&self) -> Option<Instant> {
        self.in_flight.shard(&self.id).get(&self.id).and_then(|entry| entry.lease_end)
    }

    /// Says that the event waits in memory for its next attempt.
    pub(crate) fn rest(&self) {
        self.set_rests(true);
    }

    /// Says that its wait has ended.
    pub(crate) fn end_rest(&self) {
        self.in_flight.rests_ended.fetch_add(1, Ordering::Relaxed);
        self.set_rests(false);
    }

    fn set_rests(&self, rests: bool) {
        if let Some(entry) = self.in_flight.shard(&self.id).get_mut(&self.id) {
            entry.rests = rests;
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.in_flight.shard(&self.id).remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_marked_once_and_let_go_even_by_a_panic() {
        let in_flight = Arc::new(InFlight::default());
        let id: EventId = "a".parse().expect("valid");
        let mark = in_flight.mark(id, None, Duration::from_secs(1)).expect("free");
        assert!(in_flight.mark(id, None, Duration::from_secs(1)).is_none(), "somebody has it");
        let panicked = std::thread::spawn(move || {
            let _mark = mark;
            panic!("a worker panics");
        });
        assert!(panicked.join().is_err());
        assert!(in_flight.mark(id, None, Duration::from_secs(1)).is_some(), "free again");
    }

    #[test]
    fn claims_of_stored_events_are_held_and_a_renewal_counts_for_its_own_claim_alone() {
        let in_flight = Arc::new(InFlight::default());
        let [stored, never] = ["a", "b"].map(|id| id.parse::<EventId>().expect("valid"));
        let fence = Fence { sequence: 1, claim: 2 };
        let end = Instant::now() + Duration::from_secs(1);
        let mark = in_flight.mark_until(stored, Some(fence), end).expect("free");
        let excluded = in_flight.mark_until(never, None, end).expect("free");

        assert_eq!((in_flight.held(), in_flight.len()), (vec![(stored, fence)], 2));
        let later = end + Duration::from_secs(60);
        in_flight.renewed(stored, Fence { claim: 1, ..fence }, Some(later));
        in_flight.renewed(never, fence, Some(later));
        assert_eq!((mark.lease_end(), excluded.lease_end()), (Some(end), Some(end)), "by another claim, and of none");
        in_flight.renewed(stored, fence, Some(later));
        assert_eq!(mark.lease_end(), Some(later));
        drop((mark, excluded));
        in_flight.renewed(stored, fence, Some(later));
        assert!(in_flight.is_empty() && in_flight.held().is_empty(), "a late renewal does not bring it back");
    }

    #[test]
    fn an_event_that_rests_is_marked_and_not_busy_and_the_end_of_its_rest_is_counted() {
        let in_flight = Arc::new(InFlight::default());
        let mark = in_flight.mark("a".parse().expect("valid"), None, Duration::from_secs(1)).expect("free");
        assert_eq!((in_flight.len(), in_flight.busy(), in_flight.rests_ended()), (1, 1, 0));
        mark.rest();
        assert_eq!((in_flight.len(), in_flight.busy(), in_flight.rests_ended()), (1, 0, 0));
        mark.end_rest();
        assert_eq!((in_flight.len(), in_flight.busy(), in_flight.rests_ended()), (1, 1, 1));
    }

    #[tokio::test]
    async fn an_event_that_is_claimed_before_its_last_mark_has_gone_is_marked_as_soon_as_it_has() {
        let in_flight = Arc::new(InFlight::default());
        let id: EventId = "a".parse().expect("valid");
        let [before, now] = [1, 2].map(|claim| Fence { sequence: 1, claim });
        let end = Instant::now() + Duration::from_secs(60);
        let mark = in_flight.mark_until(id, Some(before), end).expect("free");

        let again = in_flight.mark_claimed(id, now, end, end);
        let let_go = async {
            tokio::task::yield_now().await;
            drop(mark);
        };
        let (again, ()) = tokio::join!(again, let_go);

        assert_eq!(again.expect("it was let go").fence(), Some(now));
    }

    #[tokio::test]
    async fn an_event_whose_listener_is_at_work_after_its_claim_has_ended_is_not_waited_for() {
        let in_flight = Arc::new(InFlight::default());
        let id: EventId = "a".parse().expect("valid");
        let [before, again] = [1, 2].map(|claim| Fence { sequence: 1, claim });
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let mark = in_flight.mark_until(id, Some(before), now).expect("free");
        assert!(in_flight.mark_claimed(id, again, later, later).await.is_none(), "its claim has ended");
        in_flight.renewed(id, before, None);
        assert!(in_flight.mark_claimed(id, again, later, later).await.is_none(), "its claim was lost");
        drop(mark);
        let _stuck = in_flight.mark_until(id, Some(before), later).expect("free");
        assert!(in_flight.mark_claimed(id, again, later, now).await.is_none(), "patience ends");
    }

    #[test]
    fn a_lost_claim_is_not_renewed_again() {
        let in_flight = Arc::new(InFlight::default());
        let id: EventId = "a".parse().expect("valid");
        let fence = Fence { sequence: 1, claim: 1 };
        let mark = in_flight.mark(id, Some(fence), Duration::from_secs(1)).expect("free");
        in_flight.renewed(id, fence, None);
        assert_eq!(mark.lease_end(), None);
        assert!(in_flight.held().is_empty());
    }
}
