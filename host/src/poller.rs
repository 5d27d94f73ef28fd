//! Due rows into the cold queue.
//!
//! Due rows of the partitions that this host holds are read, and nothing is written: the partition is the claim. Rows are claimed
//! one by one where the partition cannot say who delivers them. The poll is the truth; everything that wakes the poller early is a
//! hint. It never rests while there is work and room for it.

mod busy;
mod claim;
mod config;
mod cursor;
mod fitting;
mod front;
mod judge;
mod read;
mod room;
mod unpark;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use busy::Busy;
pub use config::PollerConfig;
pub(crate) use cursor::Cursor;
pub(crate) use fitting::Fitting;
pub(crate) use front::FrontRead;
pub(crate) use room::Headroom;
pub(crate) use unpark::Unparking;

use crate::event::OwnerId;
use crate::listener::Listeners;
use crate::metrics::Metrics;
use crate::order::{LOOK_AGAIN, Order, Sweep};
use crate::partition::{Careful, Open, Partitions};
use crate::queue::{Batches, InFlight, Queue, Room};
use crate::readiness::Pulse;
use crate::recurring::Outage;
use crate::settlement::SettlementRules;
use crate::settler::SettlerHandle;
use crate::store::{Store, StoreError};
use crate::wake::Wake;

/// Walks the table.
pub(crate) struct Poller {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) settler: SettlerHandle,
    pub(crate) wake: Arc<Wake>,
    pub(crate) batches: Arc<Batches>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) owner: OwnerId,
    pub(crate) lease: Duration,
    pub(crate) rules: SettlementRules,
    pub(crate) config: PollerConfig,
    /// For order by aggregate, or of all events.
    pub(crate) order: Option<Arc<Order>>,
    /// Only events of these are taken.
    pub(crate) partitions: Arc<Partitions>,
    /// Most events that one statement asks for: not many more than the last one could bring, where payloads are large.
    pub(crate) fitting: Fitting,
    /// How far the table was read.
    pub(crate) cursor: Cursor,
    /// The read at a slow front, beside the others.
    pub(crate) front: FrontRead,
    /// The listeners whose events a read leaves out; none where order is kept.
    pub(crate) busy: Busy,
    /// For order by aggregate.
    pub(crate) headroom: Headroom,
    /// When the store was last asked when the next event is due, and its answer: `None` where no event waits.
    pub(crate) known_due: Option<(Instant, Option<Instant>)>,
    /// Lets blocked events go on where order by aggregate is not asked for.
    pub(crate) sweep: Sweep,
    pub(crate) unparking: Unparking,
    /// Beats at each turn that came to its end; is told of each that failed.
    pub(crate) pulse: Arc<Pulse>,
}

/// What one turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    /// There may be more to take at once.
    Full,
    /// Everything due was taken, or what is left cannot be taken just now.
    Drained,
    /// The queue has no room.
    NoRoom,
}

/// How events may be taken.
enum Way {
    /// Not at all: others hold the partitions.
    Closed,
    /// By reading some partitions, whose last owner may have been stopped by one of their events, and claiming each event.
    Carefully { careful: Careful, others: Vec<u16> },
    /// By reading these partitions.
    Read(Vec<u16>),
}

/// An event that this many hosts held when they went may have stopped them; it is delivered alone from then on. One is not
/// enough: after every `kill -9`, every event that was in hand would have to be delivered alone.
pub(crate) const HOSTS_GONE: u32 = 2;
/// The rest after the first failure of the database, and the longest one: the rest is doubled at each failure.
const OUTAGE_FIRST_REST: Duration = Duration::from_millis(100);
const OUTAGE_LONGEST_REST: Duration = Duration::from_secs(2);
/// How long the answer when the next event is due is relied on, while nobody wakes the poller. An event that another program writes
/// without telling this host is found by the next read. Where reads are rare, only a fresh answer tells of an event that becomes
/// due before the next one.
const DUE_KNOWN_FOR: Duration = Duration::from_secs(5);
const DUE_KNOWN_FOR_IF_READS_ARE_RARE: Duration = Duration::from_secs(1);
/// The least rest when an event is due but this host took none: others hold it, or are about to.
const NONE_TAKEN_REST: Duration = Duration::from_millis(100);
/// The same where all events stand in one queue: no event can be taken before the one at the front.
const STOPPED_FRONT_REST: Duration = Duration::from_millis(500);
/// Most bytes of payload that one statement brings: its answer is in memory twice while it is read.
const BATCH_BYTES: usize = 4 << 20;
/// How often to look for room of which nobody tells, while events wait for slow listeners.
const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_millis(100);
/// How soon there may be room in the key queues.
const KEY_QUEUES_MOVE_WITHIN: Duration = Duration::from_millis(2);

impl Poller {
    /// Polls until it is stopped. Only rests are cut short by a stop, never a statement.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut changes = self.listeners.changes();
        changes.mark_changed();
        let (mut after_a_rest, mut was_woken) = (true, true);
        let (outage, mut rest) = (Outage::default(), OUTAGE_FIRST_REST);
        while !*stopped.borrow() {
            let polled = self.turn(after_a_rest, was_woken, &mut changes).await;
            let polled = outage.note(
                polled.inspect_err(|error| self.metrics.db_error(error)),
                |error| tracing::error!(%error, "the poller cannot take events; trying again until it can"),
                || tracing::info!("the database answers the poller again"),
            );
            let Some(turn) = polled else {
                self.pulse.failed();
                let _ = tokio::time::timeout(rest, stopped.wait_for(|stopped| *stopped)).await;
                rest = (rest * 2).min(OUTAGE_LONGEST_REST);
                continue;
            };
            self.pulse.beat();
            rest = OUTAGE_FIRST_REST;
            after_a_rest = turn == Polled::Drained;
            tokio::select! {
                woken = self.rest(turn) => was_woken = woken,
                _ = stopped.wait_for(|stopped| *stopped) => return,
                Ok(()) = changes.changed(), if turn != Polled::Full => {
                    changes.mark_changed();
                    was_woken = true;
                }
            }
        }
    }

    /// Rests after a turn. Returns whether something other than time ended the rest.
    async fn rest(&mut self, turn: Polled) -> bool {
        match turn {
            // Most of the events that were taken go back to the table, and only the few of other listeners go on: no need to hurry.
            Polled::Full if !self.busy.are_left_out() && self.queue.one_is_full() => {
                tokio::time::sleep(LOOK_FOR_ROOM_EVERY).await;
            }
            Polled::Full => tokio::task::yield_now().await,
            Polled::NoRoom => {
                // Once a listener turns out to be slow, its events take no more room from others, and nobody tells of that.
                let _ = tokio::time::timeout(LOOK_FOR_ROOM_EVERY, self.queue.cold_half_empty()).await;
                if self.order.is_some() {
                    // The room may be taken by events that wait in key queues, of which the queue knows nothing.
                    tokio::time::sleep(KEY_QUEUES_MOVE_WITHIN).await;
                }
            }
            Polled::Drained => {
                return tokio::select! {
                    was_woken = self.wake.rest(Instant::now() + self.config.interval) => was_woken,
                    () = self.front.answered() => false,
                    () = self.in_flight.one_left() => true,
                    () = self.queue.one_is_free(self.busy.places()) => true,
                };
            }
        }
        true
    }

    /// One turn: unpark events that have a listener now, let blocked events go on, take due events and queue them.
    async fn turn(
        &mut self,
        after_a_rest: bool,
        was_woken: bool,
        changes: &mut watch::Receiver<u64>,
    ) -> Result<Polled, StoreError> {
        let changed = changes.has_changed().unwrap_or(false);
        if changed || (after_a_rest && was_woken) || self.must_unpark() {
            changes.mark_unchanged();
            self.unpark(changed).await?;
        }
        self.unblock(after_a_rest).await?;
        let (turn, taken) = self.take(if after_a_rest { self.config.batch_size } else { self.config.drain_batch_size }).await?;
        if turn == Polled::Drained && self.unparking.has_more() {
            return Ok(Polled::Full);
        }
        if turn == Polled::Drained
            && let Some(due) = self.next_due(taken, was_woken).await?
        {
            // Looking again and again for events that others hold, or are about to hold, would be work for nothing.
            let least = if self.is_one_queue() { STOPPED_FRONT_REST } else { NONE_TAKEN_REST };
            self.wake.within(if taken == 0 { due.max(least) } else { due });
        }
        Ok(turn)
    }

    /// Takes due events and queues them. Returns how many were taken, too.
    async fn take(&mut self, batch_size: u32) -> Result<(Polled, usize), StoreError> {
        self.note_busy_listeners();
        let accepted = self.accept_front().await?;
        if accepted > 0 {
            // The other reads go on with the next turn, which comes at once.
            return Ok((Polled::Full, accepted));
        }
        // Before anything is taken, since it makes room.
        self.give_back_leaving().await;
        let Room { events: room, bytes: max_bytes } = self.room_to_read();
        if room == 0 {
            return Ok((Polled::NoRoom, 0));
        }
        if self.order.is_none() {
            self.claim_left().await?;
        }
        let max_bytes = max_bytes.min(BATCH_BYTES);
        let limit = batch_size.min(u32::try_from(room).unwrap_or(u32::MAX)).min(self.fitting.most());
        match self.way().await? {
            Way::Closed => {
                self.cursor.rests();
                Ok((Polled::Drained, 0))
            }
            Way::Carefully { .. } if !self.may_deliver() => Ok((Polled::Drained, 0)),
            Way::Carefully { careful, others } => {
                let accepted = self.read_carefully(&careful, limit, max_bytes).await?;
                if accepted > 0 {
                    return Ok((Polled::Full, accepted));
                }
                if self.is_one_queue() {
                    // No event may overtake the front.
                    return Ok((Polled::Drained, 0));
                }
                // Other transactions may have locked many rows of those partitions: the other partitions do not wait for them.
                let accepted = if others.is_empty() { 0 } else { self.read(others, limit, max_bytes).await?.1 };
                Ok((Polled::Full, accepted))
            }
            Way::Read(partitions) => self.read(partitions, limit, max_bytes).await,
        }
    }

    /// How events may be taken now.
    async fn way(&self) -> Result<Way, StoreError> {
        let Open { mut all, careful } = self.partitions.open();
        if self.is_one_queue() && !self.is_front_ours().await? {
            return Ok(Way::Closed);
        }
        Ok(match (all.is_empty(), careful.is_empty()) {
            (true, _) => Way::Closed,
            (false, true) => Way::Read(all),
            (false, false) => {
                all.retain(|number| !careful.contains(*number));
                Way::Carefully { careful, others: all }
            }
        })
    }

    /// How long until the next event may be taken, after a turn that took this many; `None` when none waits.
    async fn next_due(&mut self, taken: usize, was_woken: bool) -> Result<Option<Duration>, StoreError> {
        let now = Instant::now();
        if self.reads_front_beside() && self.cursor.rest_of_a_slow_front().is_some() {
            return Ok(self.next_due_beside(now));
        }
        let known_for = match (self.cursor.rest_of_a_slow_front(), taken == 0 && !was_woken) {
            (Some(rest), _) => {
                self.wake.within(rest);
                // The store would walk along the same rows once more, while other events wait.
                rest
            }
            (None, true) => self.due_known_for(),
            (None, false) => Duration::ZERO,
        };
        if let Some((asked_at, next)) = self.known_due
            && now.saturating_duration_since(asked_at) < known_for
            && next.is_none_or(|next| next > now)
        {
            return Ok(next.map(|next| next.saturating_duration_since(now)));
        }
        let due = self.store.next_to_read(&self.owner, &self.not_to_read(), self.busy.routes()).await?;
        let now = Instant::now();
        self.known_due = Some((now, due.and_then(|due| now.checked_add(due))));
        // An event is due and was not read: perhaps this host no longer holds its partition. Where all events stand in one queue, a
        // due event may wait behind the front for any time.
        if taken == 0 && due.is_some_and(|due| due.is_zero()) && !self.is_one_queue() {
            self.partitions.doubt();
        }
        Ok(due)
    }

    fn due_known_for(&self) -> Duration {
        if self.config.interval <= DUE_KNOWN_FOR_IF_READS_ARE_RARE { DUE_KNOWN_FOR } else { DUE_KNOWN_FOR_IF_READS_ARE_RARE }
    }

    /// Lets events go on whose blocker is out of the way.
    async fn unblock(&mut self, after_a_rest: bool) -> Result<(), StoreError> {
        if let Some(order) = self.order.as_ref().filter(|_| !self.is_one_queue()) {
            let room = self.room().events;
            if room == 0 {
                return Ok(());
            }
            let let_go = order.unblock(&*self.store, after_a_rest, room).await?;
            if let_go.some {
                // The events that go on have been due for long, so they stand before the cursor.
                self.cursor.begin_again();
            }
            if let_go.more {
                self.wake.within(LOOK_AGAIN);
            }
            return Ok(());
        }
        if let Some(soon) = self.sweep.step(&*self.store).await? {
            self.wake.within(soon);
        }
        Ok(())
    }

    fn is_one_queue(&self) -> bool {
        self.order.as_ref().is_some_and(|order| order.is_one_for_all())
    }
}
