//! Due rows into the cold queue.
//!
//! Of the partitions that this host holds, what is due is read and nothing is written: the partition is the claim. Rows are claimed
//! one by one where that cannot say who delivers them. The poll is the truth; everything that wakes it early is a hint. It never
//! rests while there is work and room for it.

mod busy;
mod claim;
mod config;
mod cursor;
mod fitting;
mod front;
mod judge;
mod read;
mod room;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use busy::Busy;
pub use config::PollerConfig;
pub(crate) use cursor::Cursor;
pub(crate) use fitting::Fitting;
pub(crate) use front::FrontRead;
pub(crate) use room::LastRoom;
use room::Room;

use crate::event::{OwnerId, Route};
use crate::listener::Listeners;
use crate::metrics::Metrics;
use crate::order::{LOOK_AGAIN, Order, Sweep};
use crate::partition::{Open, Partitions};
use crate::queue::{Batches, InFlight, Queue};
use crate::readiness::Pulse;
use crate::recurring::Outage;
use crate::settlement::SettlementRules;
use crate::settler::SettlerHandle;
use crate::store::{ClaimOrder, Store, StoreError, WaitsFor};
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
    /// Only what belongs to these is taken.
    pub(crate) partitions: Arc<Partitions>,
    /// Most events that one statement asks for: not many more than the last one could bring, where payloads are large.
    pub(crate) fitting: Fitting,
    /// How far the table was read.
    pub(crate) cursor: Cursor,
    /// A read at the front that takes long, beside the others.
    pub(crate) front: FrontRead,
    /// Whose events the last read left out.
    pub(crate) busy: Busy,
    /// Where order by aggregate is kept.
    pub(crate) last_room: LastRoom,
    /// When it was last asked when the next event is due, and that time; `None` within for none.
    pub(crate) next_known: Option<(Instant, Option<Instant>)>,
    /// Where order by aggregate is not asked for.
    pub(crate) sweep: Sweep,
    /// Whether the last batch of unparked events was a full one.
    pub(crate) unparking: bool,
    /// When parked events were looked for last.
    pub(crate) unparked_at: Instant,
    /// Whether a look at all parked routes is under way, and when one went on last.
    pub(crate) deciding: bool,
    pub(crate) decided_at: Instant,
    /// The parked route that was looked at last; `None` to begin with the first.
    pub(crate) parked_after: Option<Route>,
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
    /// Row by row, of these partitions, whose last owner may have been stopped by one of their events.
    ClaimCarefully(Vec<u16>),
    /// By reading these partitions.
    Read(Vec<u16>),
}

/// Most parked routes that one turn looks at, one by one.
const PARKED_ROUTES: usize = 16;
/// Most parked events given back to time by one turn.
const UNPARK_BATCH: usize = 1_000;
/// An event that so many hosts held when they went may have stopped them; it is delivered alone from then on. One is not
/// enough: after every `kill -9`, all that was in hand would have to go one by one.
pub(crate) const HOSTS_GONE: u32 = 2;
/// The rest after a first failure of the database; doubled up to the last.
const FIRST_REST: Duration = Duration::from_millis(100);
const LAST_REST: Duration = Duration::from_secs(2);
/// How long it is taken to be known when the next event is due, while nobody wakes the poller: what others write without a word is found
/// by the next read. Where reads are rare, an event that becomes due sooner is delivered by this knowledge alone.
const NEXT_KNOWN_FOR: Duration = Duration::from_secs(5);
const NEXT_KNOWN_AMONG_RARE_READS: Duration = Duration::from_secs(1);
/// How often a poller that nothing wakes looks for parked events that may go on: they were parked just after what they wait for came.
const PARKED_EVERY: Duration = Duration::from_secs(1);
/// The least rest when something is due but was not ours to claim.
const NOT_OURS: Duration = Duration::from_millis(100);
/// The same where all events stand in one queue: nothing is ours until its front is.
const QUEUE_STOPPED: Duration = Duration::from_millis(500);
/// Most bytes of payload that one statement brings: what it answers is in memory twice while it is read.
const BATCH_BYTES: usize = 4 << 20;
/// How often the room is looked at while listeners are busy.
const BUSY: Duration = Duration::from_millis(100);
/// How soon there may be room in the queues.
const QUEUES_MOVE: Duration = Duration::from_millis(2);

impl Poller {
    /// Polls until it is stopped. Only rests are cut short by a stop, never a statement.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut changes = self.listeners.changes();
        changes.mark_changed();
        let (mut after_a_rest, mut was_woken) = (true, true);
        let (outage, mut rest) = (Outage::default(), FIRST_REST);
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
                rest = (rest * 2).min(LAST_REST);
                continue;
            };
            self.pulse.beat();
            rest = FIRST_REST;
            after_a_rest = turn == Polled::Drained;
            // What is left in the table for a listener that is busy here could go on elsewhere.
            self.partitions.set_backlog(!after_a_rest || !self.busy.places().is_empty());
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

    /// Returns whether it was ended by more than time.
    async fn rest(&mut self, turn: Polled) -> bool {
        match turn {
            // What is claimed goes back to the table, for the sake of the few among it that others answer: no need to hurry.
            Polled::Full if !self.busy.are_left_out() && self.queue.sends_back() => tokio::time::sleep(BUSY).await,
            Polled::Full => tokio::task::yield_now().await,
            Polled::NoRoom => {
                // The events of a listener take no room any more once it turns out to be slow, which nobody tells.
                let _ = tokio::time::timeout(BUSY, self.queue.cold_half_empty()).await;
                if self.order.is_some() {
                    // The room may be taken by events that wait in key queues, of which the queue knows nothing.
                    tokio::time::sleep(QUEUES_MOVE).await;
                }
            }
            Polled::Drained => {
                return tokio::select! {
                    was_woken = self.wake.rest(Instant::now() + self.config.interval) => was_woken,
                    () = self.front.answered() => false,
                    () = self.in_flight.one_left() => true,
                    () = self.queue.thins_out(self.busy.places()) => true,
                };
            }
        }
        true
    }

    /// One turn of the crank: unpark what has a listener now, claim, queue.
    async fn turn(
        &mut self,
        after_a_rest: bool,
        was_woken: bool,
        changes: &mut watch::Receiver<u64>,
    ) -> Result<Polled, StoreError> {
        // A poller that never rests, because its queue is full, must not forget those that are parked.
        let long_ago = self.unparked_at.elapsed() >= self.parked_every();
        let changed = changes.has_changed().unwrap_or(false);
        if changed || (after_a_rest && was_woken) || self.unparking || long_ago {
            changes.mark_unchanged();
            self.unpark(changed).await?;
        }
        self.unblock(after_a_rest).await?;
        let (turn, taken) = self.take(if after_a_rest { self.config.batch_size } else { self.config.drain_batch_size }).await?;
        if turn == Polled::Drained && self.unparking {
            return Ok(Polled::Full);
        }
        if turn == Polled::Drained
            && let Some(due) = self.next_due(taken, was_woken).await?
        {
            // What others hold, or are about to hold, would keep us busy for nothing.
            let least = if self.is_one_queue() { QUEUE_STOPPED } else { NOT_OURS };
            self.wake.within(if taken == 0 { due.max(least) } else { due });
        }
        Ok(turn)
    }

    /// Takes what is due and queues it. Returns how many events were taken, too.
    async fn take(&mut self, batch_size: u32) -> Result<(Polled, usize), StoreError> {
        self.look_who_is_busy();
        if let Some(accepted) = self.accept_front().await?
            && accepted > 0
        {
            // The other reads go on after these have had their turn.
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
            Way::ClaimCarefully(partitions) => {
                let order = match &self.order {
                    Some(order) => order.claiming(partitions.clone()),
                    None => ClaimOrder::ByAggregate { partitions: partitions.clone(), waits_for: WaitsFor::Nothing },
                };
                let (turn, claimed) = self.claim(order, limit, max_bytes).await?;
                self.partitions.claimed_carefully(&partitions, claimed, turn == Polled::Full);
                // The other partitions come next.
                Ok((Polled::Full, claimed))
            }
            Way::Read(partitions) => self.read(partitions, limit, max_bytes).await,
        }
    }

    /// How events may be taken now.
    async fn way(&self) -> Result<Way, StoreError> {
        let Open { all, careful } = self.partitions.open();
        if self.is_one_queue() && !self.is_front_ours().await? {
            return Ok(Way::Closed);
        }
        Ok(match (all.is_empty(), careful.is_empty()) {
            (true, _) => Way::Closed,
            (false, true) => Way::Read(all),
            (false, false) => Way::ClaimCarefully(careful),
        })
    }

    /// How long until the next event may be taken, once so many were taken.
    async fn next_due(&mut self, taken: usize, was_woken: bool) -> Result<Option<Duration>, StoreError> {
        let now = Instant::now();
        if self.reads_front_beside() && self.cursor.rest_of_a_slow_front().is_some() {
            return Ok(self.next_due_beside(now));
        }
        let known_for = match (self.cursor.rest_of_a_slow_front(), taken == 0 && !was_woken) {
            (Some(rest), _) => {
                self.wake.within(rest);
                // The same walk once more would keep the events of others waiting.
                rest
            }
            (None, true) => self.next_known_for(),
            (None, false) => Duration::ZERO,
        };
        if let Some((asked_at, next)) = self.next_known
            && now.saturating_duration_since(asked_at) < known_for
            && next.is_none_or(|next| next > now)
        {
            return Ok(next.map(|next| next.saturating_duration_since(now)));
        }
        let due = self.store.next_to_read(&self.owner, &self.not_to_read(), self.busy.routes()).await?;
        let now = Instant::now();
        self.next_known = Some((now, due.and_then(|due| now.checked_add(due))));
        // Where all events stand in one queue, what is due waits for the front for as long as it takes.
        if taken == 0 && due.is_some_and(|due| due.is_zero()) && !self.is_one_queue() {
            self.partitions.doubt();
        }
        Ok(due)
    }

    fn next_known_for(&self) -> Duration {
        if self.config.interval <= NEXT_KNOWN_AMONG_RARE_READS { NEXT_KNOWN_FOR } else { NEXT_KNOWN_AMONG_RARE_READS }
    }

    fn parked_every(&self) -> Duration {
        self.config.interval.max(PARKED_EVERY)
    }

    /// Unparks a batch, also when nothing changed: an event may have been parked just after its listener came. No more than can
    /// be claimed at once: another host that has no listener for these events would claim the rest, and park it again. Where order is
    /// kept, nobody but the host that holds an event's partition delivers it, so it alone unparks it.
    async fn unpark(&mut self, changed: bool) -> Result<(), StoreError> {
        let limit = self.room().events.min(UNPARK_BATCH);
        if changed {
            self.parked_after = None;
        }
        self.deciding |= changed || self.decided_at.elapsed() >= self.parked_every();
        if limit == 0 {
            self.unparking |= changed;
            return Ok(());
        }
        let partitions = self.order.as_ref().map(|_| self.partitions.open().all);
        if partitions.as_ref().is_some_and(Vec::is_empty) {
            self.unparking = false;
            return Ok(());
        }
        let began_at = Instant::now();
        let mut routes = self.listeners.open_routes();
        if self.listeners.has_patterns() || (self.gives_up() && self.deciding) {
            match self.parked_no_longer().await? {
                Some(free) => routes.extend(free),
                None => routes.clear(),
            }
            routes.sort_unstable();
            routes.dedup();
            // The next look begins when something changes or the interval has passed; where relays have patterns, at once.
            self.deciding = self.parked_after.is_some();
            self.decided_at = Instant::now();
        }
        self.unparking = !routes.is_empty();
        if self.unparking {
            let limit = u32::try_from(limit).expect("at most a thousand");
            let unparked = self.store.unpark(&self.owner, &routes, partitions.as_deref(), limit).await?;
            self.unparking = unparked.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
            if self.order.is_none() {
                // At once: the host that holds their partitions may have no listener for them, and would park them again.
                self.claim_these(&unparked).await?;
            } else if !unparked.is_empty() {
                self.cursor.begin_again();
            }
        }
        // Where it fails, the next turn tries again, or a database that takes no writes would seem well at every other turn.
        self.unparked_at = began_at;
        Ok(())
    }

    /// Parked routes that are in no list of listeners, and whose events would not be parked now: a relay's pattern covers them, or
    /// nobody answers them, and the pause or the broken plugin that they waited for is gone. A few in each turn, from where the last
    /// one ended: nobody knows how many there are. `None` when no event is parked at all.
    async fn parked_no_longer(&mut self) -> Result<Option<Vec<Route>>, StoreError> {
        let (mut free, from_the_first) = (Vec::new(), self.parked_after.is_none());
        for looked_at in 0..PARKED_ROUTES {
            self.parked_after = self.store.parked_route(self.parked_after.as_ref()).await?;
            let Some(route) = &self.parked_after else {
                if from_the_first && looked_at == 0 {
                    return Ok(None);
                }
                break;
            };
            let is_given_up = || self.gives_up() && self.listeners.awaited(route).is_none();
            if self.listeners.paused(route).is_none() && (self.listeners.find(route).is_some() || is_given_up()) {
                free.push(route.clone());
            }
        }
        Ok(Some(free))
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
                // What may go on has been due for long.
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

    /// Whether an event that nobody answers, and that waits for nothing, is given up rather than parked.
    fn gives_up(&self) -> bool {
        !self.rules.park_unroutable
    }

    fn is_one_queue(&self) -> bool {
        self.order.as_ref().is_some_and(|order| order.is_one_for_all())
    }
}
