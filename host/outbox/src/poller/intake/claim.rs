//! Claims rows, queues the claimed events, and gives events back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Intake;
use super::judge::{Judged, is_delivered_alone};
use crate::event::Fence;
use crate::order::Placing;
use crate::partition::Hold;
use crate::poller::{BATCH_BYTES, STOPPED_FRONT_REST};
use crate::queue::{Delivery, Left, Via};
use crate::routes;
use crate::settlement::{given_back, given_back_for, still_at_work};
use crate::store::{Claimed, StoreError};

/// An event that was taken from the table, and the `seq` of the last one that it waits for.
pub(super) struct Taken {
    pub(super) delivery: Delivery,
    pub(super) behind: Option<u64>,
}

/// By `seq`, the holds of events that were read and are claimed before they are delivered. Each keeps its event's partition while the
/// claim is on its way; in the ordered modes until the claimed event has ended.
pub(crate) type Holds = HashMap<u64, Hold>;

/// What became of events where order is kept.
pub(super) struct Placed {
    /// The events that may start.
    pub(super) start: Vec<Delivery>,
    /// How many others wait, in this process's hands or set aside in the table.
    pub(super) others: usize,
}

/// How long to wait for the mark of an earlier delivery of an event: its outcome is stored, and the settler is about to let it go.
pub(super) const MARK_PATIENCE: Duration = Duration::from_millis(100);

impl Intake {
    /// Whether nobody else has an event of the one queue in hand.
    pub(crate) async fn is_front_ours(&self) -> Result<bool, StoreError> {
        // The host before this one may have died with events in its hands: they come first, when their leases end.
        if !self.partitions.is_settled() {
            let is_ours_alone = self.partitions.is_whole() && self.in_flight.is_empty();
            if !is_ours_alone || self.store.stats().await?.in_flight > 0 {
                return Ok(false);
            }
            self.partitions.mark_settled();
        }
        Ok(true)
    }

    /// Claims these events and queues them. Returns how many were claimed: a row that somebody has locked is passed by.
    pub(crate) async fn claim(&self, fences: &[Fence], holds: &mut Holds) -> Result<usize, StoreError> {
        if fences.is_empty() {
            return Ok(0);
        }
        let claimed_at = Instant::now();
        let claimed = self.store.claim(&self.owner, self.lease, fences).await;
        let claimed = claimed.inspect_err(|_| self.metrics.claims_failed.increment())?;
        let count = claimed.len();
        self.queue_claimed(claimed, claimed_at + self.lease, holds).await;
        Ok(count)
    }

    /// Gives back the events of partitions that are to go to another host, as far as they wait for a worker or for their listener:
    /// none of them has begun, and neither host reads these partitions before the events are back.
    pub(crate) async fn give_back_leaving(&self) {
        if !self.partitions.is_leaving() {
            return;
        }
        // First the events that wait for others: given back later, they would be set aside in the table when the others end.
        let is_leaving = |delivery: &Delivery| delivery.mark.is_leaving();
        let mut leaving = self.order.as_ref().map_or_else(Vec::new, |order| order.key_queues().take_out(is_leaving));
        leaving.extend(self.queue.take_out(is_leaving));
        for delivery in leaving {
            self.settler.send(delivery, given_back()).await;
        }
    }

    /// Claims the events that were read here and let go without an outcome, as far as this host still holds their partitions:
    /// nobody knows how far their listeners came, so their next deliveries must have other numbers.
    pub(crate) async fn claim_left(&self) -> Result<(), StoreError> {
        let left = self.in_flight.take_left();
        if left.is_empty() {
            return Ok(());
        }
        let (mut ours, mut holds) = (Vec::new(), Holds::new());
        for one in left {
            let (number, epoch) = one.partition;
            match (self.partitions.hold(number, epoch), self.partitions.is_held(number, epoch)) {
                (Some(hold), Some(true)) => {
                    holds.insert(one.fence.sequence, hold);
                    ours.push(one);
                }
                // Whoever has the partition now reads it under another epoch.
                (_, Some(false)) => self.in_flight.forget(&one),
                _ => self.in_flight.put_back([one]),
            }
        }
        if ours.is_empty() {
            return Ok(());
        }
        let fences: Vec<Fence> = ours.iter().map(|one: &Left| one.fence).collect();
        let claimed_at = Instant::now();
        let (claimed, locked) = match self.claim_or_lock(&fences).await {
            Ok(taken) => taken,
            Err(error) => {
                self.metrics.claims_failed.increment();
                self.in_flight.put_back(ours);
                return Err(error);
            }
        };
        let (waiting, over): (Vec<Left>, Vec<Left>) = ours.into_iter().partition(|one| locked.contains(&one.fence.sequence));
        self.in_flight.put_back(waiting);
        // An event that is neither claimed nor locked has changed meanwhile, or another host holds its partition by now.
        over.iter().for_each(|one| self.in_flight.forget(one));
        self.queue_claimed(claimed, claimed_at + self.lease, &mut holds).await;
        Ok(())
    }

    /// Claims these events, and returns the `seq` of those that somebody has locked: they cannot be claimed yet.
    async fn claim_or_lock(&self, fences: &[Fence]) -> Result<(Vec<Claimed>, Vec<u64>), StoreError> {
        let mut claimed = self.store.claim(&self.owner, self.lease, fences).await?;
        let is_claimed = |fence: &&Fence| claimed.iter().any(|claimed| claimed.fence.sequence == fence.sequence);
        let others: Vec<u64> = fences.iter().filter(|fence| !is_claimed(fence)).map(|fence| fence.sequence).collect();
        if others.is_empty() {
            return Ok((claimed, others));
        }
        // Without an answer all of them wait: a claim is lost with its lease, and a second look costs nothing.
        let locked = self.store.locked(&others).await.inspect_err(|error| self.metrics.db_error(error));
        let mut locked = locked.unwrap_or_else(|_| others.clone());
        let is_free = |fence: &&Fence| others.contains(&fence.sequence) && !locked.contains(&fence.sequence);
        let free: Vec<Fence> = fences.iter().filter(is_free).copied().collect();
        if free.is_empty() {
            return Ok((claimed, locked));
        }
        // A row that was locked at the claim may have been unlocked before the look. If its event were taken for one that has
        // changed, it would be read again, and delivered under the same number.
        match self.store.claim(&self.owner, self.lease, &free).await.inspect_err(|error| self.metrics.db_error(error)) {
            Ok(more) => claimed.extend(more),
            Err(_) => locked.extend(free.iter().map(|fence| fence.sequence)),
        }
        Ok((claimed, locked))
    }

    /// Queues claimed events.
    async fn queue_claimed(&self, claimed: Vec<Claimed>, lease_end: Instant, holds: &mut Holds) {
        // Taken after the answer, so that no event expires too early.
        let answered_at = Instant::now();
        if self.queue.is_closed() {
            // A stop has begun meanwhile: this host delivers none of them.
            for claim in claimed {
                self.settler.send_claim(claim.fence, given_back()).await;
            }
            return;
        }
        let deliveries = self.accept(claimed, lease_end, answered_at, holds).await;
        self.queue_all(deliveries).await;
    }

    /// Puts deliveries into the cold queue; they go back to the table when it was closed meanwhile.
    pub(super) async fn queue_all(&self, deliveries: Vec<Delivery>) {
        let count = deliveries.len();
        let refused = self.queue.push(Via::Cold, deliveries);
        self.metrics.cold_enqueued.add(u64::try_from(count - refused.len()).unwrap_or(0));
        for delivery in refused {
            self.settler.send(delivery, given_back()).await;
        }
    }

    /// Turns claims into deliveries, and returns those that may start; an event that is not delivered is settled at once.
    async fn accept(
        &self,
        claimed: Vec<Claimed>,
        lease_end: Instant,
        answered_at: Instant,
        holds: &mut Holds,
    ) -> Vec<Delivery> {
        let accepted = self.accept_claimed(claimed, lease_end, answered_at, holds).await;
        self.place_all(accepted).await.start
    }

    /// Turns claims into deliveries, each with the event that it waits for; an event that is not delivered is settled at once.
    pub(super) async fn accept_claimed(
        &self,
        mut claimed: Vec<Claimed>,
        lease_end: Instant,
        answered_at: Instant,
        holds: &mut Holds,
    ) -> Vec<Taken> {
        if self.order.is_none() && claimed.iter().any(is_delivered_alone) {
            // Events that may stop this host come last, the likeliest at the very end.
            claimed.sort_by_key(|claim| (is_delivered_alone(claim), claim.starts));
        }
        let batch = self.batches.next();
        let mut accepted = Vec::with_capacity(claimed.len());
        let routes_known = self.ask_for_routes(claimed.iter()).await;
        let patience = Instant::now() + MARK_PATIENCE;
        for claim in claimed {
            let (fence, behind, expires_in, deferrals) = (claim.fence, claim.behind, claim.expires_in, claim.deferrals);
            let alone = is_delivered_alone(&claim);
            match self.judge(claim, routes_known) {
                Judged::Settled(settlement, event) => {
                    self.log_dead(fence.sequence, event.as_ref(), &settlement);
                    self.settler.send_claim(fence, settlement).await;
                }
                Judged::Wanted(event) => match self
                    .in_flight
                    .mark_claimed(event.id(), fence, lease_end, self.hold_for_order(fence, holds), patience)
                    .await
                {
                    Some(mark) => {
                        let counted_bytes = Some(self.queue.count_bytes(event.size_bytes()));
                        let delivery = Delivery::new(Arc::new(event), mark, Via::Cold, batch).expiring(answered_at, expires_in);
                        accepted.push(Taken { delivery: Delivery { deferrals, alone, counted_bytes, ..delivery }, behind });
                    }
                    // This host's earlier claim of it has ended, but its listener is still at work. Its outcome will be fenced off,
                    // so the event is given back for a while.
                    None => self.settler.send_claim(fence, still_at_work()).await,
                },
            }
        }
        accepted
    }

    /// The hold of an event's partition, in the ordered modes. In the others the claim alone secures the event, so the partition may go to
    /// another host at once. Otherwise a listener that never returns would keep it for as long as this host runs.
    fn hold_for_order(&self, fence: Fence, holds: &mut Holds) -> Option<Hold> {
        holds.remove(&fence.sequence).filter(|_| self.order.is_some())
    }

    /// Gives each event its place where order is kept. They must come in the order of their `seq`.
    pub(super) async fn place_all(&self, taken: Vec<Taken>) -> Placed {
        let Some(order) = &self.order else {
            return Placed { start: taken.into_iter().map(|taken| taken.delivery).collect(), others: 0 };
        };
        let mut placed = Placed { start: Vec::with_capacity(taken.len()), others: 0 };
        let mut elsewhere = Vec::new();
        for Taken { delivery, behind } in taken {
            match order.place(delivery, behind) {
                Placing::Start(delivery) => placed.start.push(delivery),
                Placing::Waits => placed.others += 1,
                Placing::Behind(delivery, last) => {
                    // In one queue of all it only keeps its place. One that was claimed rests: given back at once, it would be read and
                    // claimed again and again, until the outcome of the one before it is stored. After a stop another host takes it.
                    let is_one_queue = order.is_one_for_all();
                    let must_rest = is_one_queue && !delivery.mark.is_read() && !self.queue.is_closed();
                    let settlement =
                        if must_rest { given_back_for(STOPPED_FRONT_REST) } else { order.behind(&delivery.event, last) };
                    placed.others += usize::from(!is_one_queue);
                    self.settler.send(delivery, settlement).await;
                }
                Placing::BehindOthers(delivery, nearest) => elsewhere.push((delivery, nearest)),
            }
        }
        placed.others += elsewhere.len();
        self.set_aside(elsewhere).await;
        placed
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
    pub(super) async fn ask_for_routes(&self, claimed: impl Iterator<Item = &Claimed>) -> bool {
        let routes = claimed.filter_map(|claim| claim.event.as_ref().ok()).map(|event| event.route());
        if !self.listeners.gives_up_any(routes) {
            return true;
        }
        let learned = routes::learn(&*self.store, &self.listeners).await;
        learned.inspect_err(|error| self.metrics.db_error(error)).is_ok()
    }
}

/// Roughly how many bytes an event takes. No fewer than a store counts, or a batch that its bytes cut short would not look full: one that
/// cannot be read may have cut it.
pub(super) fn size_bytes(claimed: &Claimed) -> usize {
    claimed.event.as_ref().map_or(BATCH_BYTES, |event| event.size_bytes())
}
