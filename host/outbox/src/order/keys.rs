//! Which events that were taken from the table may start, and which wait there behind others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::OrderConfig;
use super::blockers::Blockers;
use super::config::resolves;
use super::unblock::{log_refused, unblock_each};
use crate::event::Event;
use crate::metrics::Metrics;
use crate::queue::{Delivery, KeyAdmission, KeyQueueLimits, KeyQueues, Turn, key};
use crate::settlement::{given_back, not_its_turn};
use crate::store::{Blocker, ReadOrder, Settlement, Store, StoreError, WaitsFor};

/// Order by aggregate, or of all events, as this process keeps it.
#[derive(Debug)]
pub(crate) struct Order {
    waits_for: WaitsFor,
    /// Whether all events stand in one queue. Then nothing is set aside in the table: nothing but the front of the queue is
    /// taken, so what may not start is given back, and keeps its place.
    one_for_all: bool,
    key_queues: Arc<KeyQueues>,
    blockers: Mutex<Blockers>,
}

/// Which events in the table may go on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LetGo {
    /// Whether some events may go on now.
    pub(crate) some: bool,
    /// Whether more are to be let go soon.
    pub(crate) more: bool,
    /// How long until the first event that the database refuses to unblock is retried. `None` if it refuses none now.
    pub(crate) retry_in: Option<Duration>,
}

/// What follows the end of a turn.
#[derive(Debug)]
pub(crate) struct Next {
    /// Whose turn it is.
    pub(crate) start: Option<Delivery>,
    /// The events to be set aside, each with its settlement.
    pub(crate) aside: Vec<(Delivery, Settlement)>,
    /// Whether events in the table may go on.
    pub(crate) opens: bool,
}

impl Order {
    pub(crate) fn new(config: OrderConfig, limits: KeyQueueLimits) -> Self {
        let key_queues = Arc::new(KeyQueues::new(limits));
        Self { waits_for: config.waits_for(), one_for_all: false, key_queues, blockers: Mutex::default() }
    }

    /// One queue of all events. A dead one blocks nobody.
    pub(crate) fn one_for_all() -> Self {
        let key_queues = Arc::new(KeyQueues::one_for_all());
        Self { waits_for: WaitsFor::Unresolved, one_for_all: true, key_queues, blockers: Mutex::default() }
    }

    pub(crate) fn is_one_for_all(&self) -> bool {
        self.one_for_all
    }

    pub(crate) fn waits_for(&self) -> WaitsFor {
        self.waits_for
    }

    /// How events of the partitions are read now. One read at a time.
    pub(crate) fn reading(&self) -> ReadOrder {
        let queued = self.key_queues.asking();
        if self.one_for_all { ReadOrder::OneForAll } else { ReadOrder::ByAggregate { waits_for: self.waits_for, queued } }
    }

    /// The queues in this process's hands.
    pub(crate) fn key_queues(&self) -> &Arc<KeyQueues> {
        &self.key_queues
    }

    /// Gives an event that was taken from the table its place. Events must come in the order of their `seq`.
    pub(crate) fn place(&self, delivery: Delivery, behind: Option<u64>) -> KeyAdmission {
        match self.key_queues.admit(delivery, behind) {
            // In one queue of all events, no event is blocked in the table: it keeps its place, like one behind the queue.
            KeyAdmission::Elsewhere(delivery, nearest) if self.one_for_all => KeyAdmission::Behind(delivery, nearest),
            admission => admission,
        }
    }

    /// The settlement that sets an event aside behind another of its queue.
    pub(crate) fn behind(&self, event: &Event, blocker: u64) -> Settlement {
        if !self.one_for_all
            && let Some(key) = key(event)
        {
            self.lock().insert(blocker, key);
        }
        not_its_turn(blocker, self.one_for_all)
    }

    /// Ends a turn with what became of its event, once that is stored; `None` when it is not known.
    pub(crate) fn end(&self, turn: Turn, settlement: Option<&Settlement>) -> Next {
        let (sequence, key) = (turn.sequence(), turn.key().clone());
        let resolved = settlement.is_some_and(|settlement| resolves(settlement, self.waits_for));
        // Nothing has become of one that is given back at once: it is taken again with those that wait for it.
        let is_given_back = settlement == Some(&given_back());
        let after = self.key_queues.end(turn, resolved);
        let mut opens = false;
        if !self.one_for_all {
            let mut blockers = self.lock();
            // What was set aside in the table waits for the end of the queue that is in our hands.
            opens = resolved && after.next.is_none() && blockers.queue_ended(&key);
            if !after.behind.is_empty() && !is_given_back {
                blockers.insert(sequence, key);
            }
        }
        let instead = if is_given_back { given_back() } else { not_its_turn(sequence, self.one_for_all) };
        let aside = |delivery| (delivery, instead.clone());
        Next { start: after.next, aside: after.behind.into_iter().map(aside).collect(), opens }
    }

    /// Notes that an event was set aside in the table. Its blocker may have been resolved just before.
    pub(crate) fn set_aside(&self, event: Option<&Event>, blocker: u64) {
        let held = self.key_queues.holds(blocker);
        self.lock().touch(blocker, event.and_then(key), held);
    }

    /// Whether blockers learned before have been looked at, so that others can be learned.
    pub(crate) fn has_room_to_learn(&self) -> bool {
        self.lock().has_room_to_learn()
    }

    /// Learns of events that others wait behind. True when there are some that were not known.
    pub(crate) fn learn(&self, blockers: Vec<Blocker>) -> bool {
        let mut known = self.lock();
        let mut some = false;
        for Blocker { sequence, aggregate_type, aggregate_id } in blockers {
            // A name that is none belongs to rows of which no claim can be made; they are looked at now and then.
            let key = aggregate_type.parse().ok().map(|aggregate_type| (aggregate_type, aggregate_id.into()));
            some |= known.learn(sequence, key);
        }
        some
    }

    /// Lets events in the table go whose turn it is, no more than there is `room` for. What may be in the way no more is looked
    /// at always, all else now and then, and when `all` is asked for.
    ///
    /// If the database refuses to unblock an event, those behind other blockers are unblocked: it is found by halving, and rests. The
    /// error is that of events that were not tried.
    pub(crate) async fn unblock(
        &self,
        store: &dyn Store,
        metrics: &Metrics,
        all: bool,
        room: usize,
    ) -> (LetGo, Result<(), StoreError>) {
        let candidates = self.lock().candidates(all, |key, blocker| self.key_queues.comes_before(key, blocker));
        if candidates.is_empty() {
            return (LetGo { retry_in: self.lock().next_retry(Instant::now()), ..LetGo::default() }, Ok(()));
        }
        let limit = (room / candidates.len()).clamp(1, self.key_queues.longest().events);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let ended = unblock_each(store, &candidates, self.waits_for, limit).await;
        let some = !ended.unblocked.cleared.is_empty() || !ended.unblocked.left.is_empty();
        let (mut blockers, now) = (self.lock(), Instant::now());
        blockers.accepted(&ended.accepted);
        let mut looked_at = ended.accepted;
        looked_at.extend(ended.refused.iter().map(|(blocker, _)| *blocker));
        let more = blockers.note(&looked_at, &ended.unblocked);
        for (blocker, error) in &ended.refused {
            metrics.db_error(error);
            if blockers.refuse(*blocker, now) {
                log_refused(*blocker, error);
            }
        }
        (LetGo { some, more, retry_in: blockers.next_retry(now) }, ended.failed.map_or(Ok(()), Err))
    }

    fn lock(&self) -> MutexGuard<'_, Blockers> {
        self.blockers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
