//! Due rows, claimed, into the cold queue.
//!
//! The poll is the truth; everything that wakes it early is a hint. It never rests while there is work and room for it.

mod config;
mod judge;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use config::PollerConfig;

use crate::event::{OwnerId, Route};
use crate::listener::Listeners;
use crate::metrics::Metrics;
use crate::order::{LOOK_AGAIN, Order, Partitions, Placing, Sweep};
use crate::queue::{Batches, Delivery, InFlight, Queue, Via};
use crate::readiness::Pulse;
use crate::recurring::Outage;
use crate::routes;
use crate::settlement::{SettlementRules, given_back, still_at_work};
use crate::settler::SettlerHandle;
use crate::store::{ClaimOrder, ClaimRequest, Claimed, Store, StoreError};
use crate::wake::Wake;
use judge::{Judged, is_delivered_alone};

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
    /// With it: only what belongs to this node's partitions is claimed, or only by the node that holds the single one.
    pub(crate) partitions: Option<Arc<Partitions>>,
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
    /// Everything due was taken.
    Drained,
    /// The queue has no room.
    NoRoom,
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
/// The least rest when something is due but was not ours to claim.
const NOT_OURS: Duration = Duration::from_millis(100);
/// The same where all events stand in one queue: nothing is ours until its front is.
const QUEUE_STOPPED: Duration = Duration::from_millis(500);
/// How often the room is looked at while listeners are busy.
const BUSY: Duration = Duration::from_millis(100);
/// How long a claim waits for events whose last outcome is stored, until the settler lets go of them.
const LETTING_GO: Duration = Duration::from_millis(100);
/// How soon there may be room in the queues.
const QUEUES_MOVE: Duration = Duration::from_millis(2);

impl Poller {
    /// Polls until it is stopped. Only rests are cut short by a stop, never a statement.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut changes = self.listeners.changes();
        changes.mark_changed();
        let mut after_a_rest = true;
        let (outage, mut rest) = (Outage::default(), FIRST_REST);
        while !*stopped.borrow() {
            let polled = self.turn(after_a_rest, &mut changes).await;
            let polled = outage.note(
                polled.inspect_err(|error| self.metrics.db_error(error)),
                |error| tracing::error!(%error, "the poller cannot claim events; trying again until it can"),
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
            tokio::select! {
                () = self.rest(turn) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
                Ok(()) = changes.changed(), if turn != Polled::Full => changes.mark_changed(),
            }
        }
    }

    async fn rest(&self, turn: Polled) {
        match turn {
            // What is claimed goes back to the table, for the sake of the few among it that others answer: no need to hurry.
            Polled::Full if self.queue.sends_back() => tokio::time::sleep(BUSY).await,
            Polled::Full => tokio::task::yield_now().await,
            Polled::NoRoom => {
                // The events of a listener take no room any more once it turns out to be slow, which nobody tells.
                let _ = tokio::time::timeout(BUSY, self.queue.cold_half_empty()).await;
                if self.order.is_some() {
                    // The room may be taken by events that wait in key queues, of which the queue knows nothing.
                    tokio::time::sleep(QUEUES_MOVE).await;
                }
            }
            Polled::Drained => self.wake.rest(Instant::now() + self.config.interval).await,
        }
    }

    /// One turn of the crank: unpark what has a listener now, claim, queue.
    async fn turn(&mut self, after_a_rest: bool, changes: &mut watch::Receiver<u64>) -> Result<Polled, StoreError> {
        // A poller that never rests, because its queue is full, must not forget those that are parked.
        let long_ago = self.unparked_at.elapsed() >= self.config.interval;
        let changed = changes.has_changed().unwrap_or(false);
        if changed || after_a_rest || self.unparking || long_ago {
            changes.mark_unchanged();
            self.unpark(changed).await?;
        }
        self.unblock(after_a_rest).await?;
        let (turn, claimed) =
            self.claim(if after_a_rest { self.config.batch_size } else { self.config.drain_batch_size }).await?;
        if turn == Polled::Drained && self.unparking {
            return Ok(Polled::Full);
        }
        if turn == Polled::Drained
            && let Some(due) = self.store.next_due().await?
        {
            // What others hold, or are about to hold, would keep us busy for nothing.
            let least = if self.is_one_queue() { QUEUE_STOPPED } else { NOT_OURS };
            self.wake.within(if claimed == 0 { due.max(least) } else { due });
        }
        Ok(turn)
    }

    /// Unparks a batch, also when nothing changed: an event may have been parked just after its listener came. No more than can
    /// be claimed at once: another host that has no listener for these events would claim the rest, and park it again.
    async fn unpark(&mut self, changed: bool) -> Result<(), StoreError> {
        let limit = self.room().0.min(UNPARK_BATCH);
        if changed {
            self.parked_after = None;
        }
        self.deciding |= changed || self.decided_at.elapsed() >= self.config.interval;
        if limit == 0 {
            self.unparking |= changed;
            return Ok(());
        }
        self.unparked_at = Instant::now();
        let mut routes = self.listeners.open_routes();
        if self.listeners.has_patterns() || (self.gives_up() && self.deciding) {
            routes.extend(self.parked_no_longer().await?);
            // The next look begins when something changes or the interval has passed; where relays have patterns, at once.
            self.deciding = self.parked_after.is_some();
            self.decided_at = Instant::now();
        }
        self.unparking = !routes.is_empty();
        if self.unparking {
            let limit = u32::try_from(limit).expect("at most a thousand");
            self.unparking = self.store.unpark(&routes, limit).await? == u64::from(limit);
        }
        Ok(())
    }

    /// Parked routes that are in no list of listeners, and whose events would not be parked now: a relay's pattern covers them, or
    /// nobody answers them, and the pause or the broken plugin that they waited for is gone. A few in each turn, from where the last
    /// one ended: nobody knows how many there are.
    async fn parked_no_longer(&mut self) -> Result<Vec<Route>, StoreError> {
        let mut free = Vec::new();
        for _ in 0..PARKED_ROUTES {
            self.parked_after = self.store.parked_route(self.parked_after.as_ref()).await?;
            let Some(route) = &self.parked_after else { break };
            let is_given_up = || self.gives_up() && self.listeners.awaited(route).is_none();
            if self.listeners.paused(route).is_none() && (self.listeners.find(route).is_some() || is_given_up()) {
                free.push(route.clone());
            }
        }
        Ok(free)
    }

    /// Lets events go on whose blocker is out of the way.
    async fn unblock(&mut self, after_a_rest: bool) -> Result<(), StoreError> {
        if let Some(order) = self.order.as_ref().filter(|_| !self.is_one_queue()) {
            let (room, _) = self.room();
            if room > 0 && order.unblock(&*self.store, after_a_rest, room).await? {
                self.wake.within(LOOK_AGAIN);
            }
            return Ok(());
        }
        if let Some(soon) = self.sweep.step(&*self.store).await? {
            self.wake.within(soon);
        }
        Ok(())
    }

    /// What may be claimed now; `None` when nothing may.
    async fn claim_order(&self) -> Result<Option<Option<ClaimOrder>>, StoreError> {
        let (Some(partitions), Some(order)) = (&self.partitions, &self.order) else { return Ok(Some(None)) };
        let open = partitions.open();
        if open.is_empty() {
            return Ok(None);
        }
        // The node before us may have died with events in its hands: they come first, when their leases end.
        if order.is_one_for_all() && !partitions.is_settled() {
            if !self.in_flight.is_empty() || self.store.stats().await?.in_flight > 0 {
                return Ok(None);
            }
            partitions.settled();
        }
        Ok(Some(Some(order.claiming(open))))
    }

    /// Whether an event that nobody answers, and that waits for nothing, is given up rather than parked.
    fn gives_up(&self) -> bool {
        !self.rules.park_unroutable
    }

    fn is_one_queue(&self) -> bool {
        self.order.as_ref().is_some_and(|order| order.is_one_for_all())
    }

    /// Room for events that wait in the queue or in key queues, and for their bytes.
    fn room(&self) -> (usize, usize) {
        let (room, bytes) = self.queue.cold_room();
        let (waiting, waiting_bytes) = self.order.as_ref().map_or((0, 0), |order| order.key_queues().waiting());
        if waiting_bytes > 0 && waiting_bytes >= bytes {
            return (0, 0);
        }
        let (free, free_bytes) = (room.saturating_sub(waiting), bytes - waiting_bytes);
        // A single queue moves one by one: it is filled up when half of it is free, not at each step.
        if self.is_one_queue() && (waiting > free || waiting_bytes > free_bytes) {
            return (0, 0);
        }
        (free, free_bytes)
    }

    /// Claims and queues. Returns how many were claimed, too.
    async fn claim(&self, batch_size: u32) -> Result<(Polled, usize), StoreError> {
        let (room, max_bytes) = self.room();
        if room == 0 {
            return Ok((Polled::NoRoom, 0));
        }
        let Some(order) = self.claim_order().await? else { return Ok((Polled::Drained, 0)) };
        let limit = batch_size.min(u32::try_from(room).unwrap_or(u32::MAX));
        let request = ClaimRequest {
            owner: self.owner.clone(),
            lease: self.lease,
            limit,
            max_bytes,
            skip_recent: self.config.skip_recent,
            order,
        };
        // Taken before the statement is sent: by the database's clock the lease ends later than we believe, never earlier.
        let claimed_at = Instant::now();
        let claimed = self.store.claim(&request).await.inspect_err(|_| self.metrics.claims_failed.increment())?;
        // Taken after the answer: what was still wanted at the claim is not given up too early.
        let answered_at = Instant::now();
        if self.queue.is_closed() {
            // A stop has begun meanwhile, and nobody is going to deliver them here.
            for claim in claimed {
                self.settler.send_claim(claim.fence, given_back()).await;
            }
            return Ok((Polled::NoRoom, 0));
        }
        let taken = claimed.len();
        // A batch that its bytes cut short is a full one too: there may be more.
        let bytes: usize =
            claimed.iter().filter_map(|claim| claim.event.as_ref().ok()).map(|event| event.payload_bytes().len()).sum();
        let full = taken >= usize::try_from(limit).unwrap_or(usize::MAX) || bytes >= max_bytes;
        match (full, taken) {
            (true, _) => self.metrics.claims_full.increment(),
            (false, 0) => self.metrics.claims_empty.increment(),
            (false, _) => self.metrics.claims_partial.increment(),
        }
        let deliveries = self.accept(claimed, claimed_at + self.lease, answered_at).await;
        let count = deliveries.len();
        let refused = self.queue.push(Via::Cold, deliveries);
        self.metrics.cold_enqueued.add(u64::try_from(count - refused.len()).unwrap_or(0));
        for delivery in refused {
            self.settler.send(delivery, given_back()).await;
        }
        Ok((if full { Polled::Full } else { Polled::Drained }, taken))
    }

    /// Turns claims into deliveries; what can never be one is settled at once.
    async fn accept(&self, mut claimed: Vec<Claimed>, lease_end: Instant, answered_at: Instant) -> Vec<Delivery> {
        if self.partitions.is_none() && claimed.iter().any(is_delivered_alone) {
            // Those that may stop this host come last, the likeliest at the very end.
            claimed.sort_by_key(|claim| (is_delivered_alone(claim), claim.starts));
        }
        let batch = self.batches.next();
        let mut deliveries = Vec::with_capacity(claimed.len());
        let mut elsewhere = Vec::new();
        let routes_known = self.ask_for_routes(&claimed).await;
        let patience = Instant::now() + LETTING_GO;
        for claim in claimed {
            let (fence, behind, expires_in, deferrals) = (claim.fence, claim.behind, claim.expires_in, claim.deferrals);
            let alone = is_delivered_alone(&claim);
            match self.judge(claim, routes_known) {
                Judged::Settled(settlement, event) => {
                    self.tell_of_dead(fence.sequence, event.as_ref(), &settlement);
                    self.settler.send_claim(fence, settlement).await;
                }
                Judged::Wanted(event) => match self.in_flight.mark_claimed(event.id(), fence, lease_end, patience).await {
                    Some(mark) => {
                        let event = Arc::new(event);
                        let delivery = Delivery::new(event, mark, Via::Cold, batch).expiring(answered_at, expires_in);
                        let delivery = Delivery { deferrals, alone, ..delivery };
                        let Some(order) = &self.order else {
                            deliveries.push(delivery);
                            continue;
                        };
                        match order.place(delivery, behind) {
                            Placing::Start(delivery) => deliveries.push(delivery),
                            Placing::Waits => {}
                            Placing::Behind(delivery, last) => {
                                let settlement = order.behind(&delivery.event, last);
                                self.settler.send(delivery, settlement).await;
                            }
                            Placing::BehindOthers(delivery, nearest) => elsewhere.push((delivery, nearest)),
                        }
                    }
                    // Our own earlier claim of it ended, but its listener is still at work: its outcome is fenced off, so look
                    // again a little later.
                    None => self.settler.send_claim(fence, still_at_work()).await,
                },
            }
        }
        self.set_aside(elsewhere).await;
        deliveries
    }

    /// Sets events aside, each behind the head of its queue: when that is out of the way, all of them go on.
    async fn set_aside(&self, elsewhere: Vec<(Delivery, u64)>) {
        let Some(order) = &self.order else { return };
        if elsewhere.is_empty() {
            return;
        }
        let events: Vec<u64> = elsewhere.iter().map(|(delivery, _)| delivery.event.sequence()).collect();
        // Without an answer each waits behind the one before it: slower, and not wrong.
        let heads = self.store.heads(&events, order.waits_for()).await.inspect_err(|error| self.metrics.db_error(error));
        let heads: HashMap<u64, u64> = heads.unwrap_or_default().into_iter().collect();
        for (delivery, nearest) in elsewhere {
            let head = heads.get(&delivery.event.sequence()).copied().unwrap_or(nearest);
            let settlement = order.behind(&delivery.event, head);
            self.settler.send(delivery, settlement).await;
        }
    }

    /// Asks the table which routes have a listener in any host, before an event is given up because none is known here: another
    /// host may have started a moment ago. False when the table does not say.
    async fn ask_for_routes(&self, claimed: &[Claimed]) -> bool {
        let routes = claimed.iter().filter_map(|claim| claim.event.as_ref().ok()).map(|event| event.route());
        if !self.listeners.gives_up_any(routes) {
            return true;
        }
        let learned = routes::learn(&*self.store, &self.listeners).await;
        learned.inspect_err(|error| self.metrics.db_error(error)).is_ok()
    }
}
