//! Claims rows and queues the claimed events.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Intake;
use super::judge::{Judged, is_delivered_alone};
use super::place::{RowState, Taken};
use crate::event::Fence;
use crate::halving::{Halved, Halving, answers};
use crate::partition::{Hold, own_lease_end};
use crate::queue::{Delivery, Dropped};
use crate::settlement::{given_back, still_at_work};
use crate::store::{Claimed, StoreError};

/// The holds of events that were read and must be claimed before their delivery, by `seq`. A hold keeps the event's partition until the
/// claim is answered; in the ordered modes until the claimed event has ended.
pub(crate) type Holds = HashMap<u64, Hold>;

/// How long to wait for the release of the mark of an earlier delivery: its outcome is stored, and the settler is about to release the
/// mark.
pub(super) const MARK_PATIENCE: Duration = Duration::from_millis(100);

impl Intake {
    /// Claims these events and queues them. Returns how many were claimed. Skips rows that another transaction has locked or that the
    /// database refuses.
    ///
    /// # Errors
    /// The database's own, if some rows were not tried. The claimed events are queued.
    pub(crate) async fn claim(&self, fences: &[Fence], holds: &mut Holds) -> Result<usize, StoreError> {
        if fences.is_empty() {
            return Ok(0);
        }
        let claimed_at = Instant::now();
        let (claimed, failed) = self.claim_rows(fences, holds).await;
        let count = claimed.len();
        if count > 0 {
            self.queue_claimed(claimed, own_lease_end(claimed_at, self.lease), holds).await;
        }
        failed.map_or(Ok(count), Err)
    }

    /// Claims the events that this host read and dropped without an outcome, if it still holds their partitions. The progress of their
    /// listeners is unknown, so their next deliveries need another `claim_seq`.
    pub(crate) async fn claim_dropped(&self) -> Result<(), StoreError> {
        let dropped = self.in_flight.take_dropped();
        if dropped.is_empty() {
            return Ok(());
        }
        let (mut ours, mut holds) = (Vec::new(), Holds::new());
        for one in dropped {
            let (number, epoch) = one.partition;
            match (self.partitions.hold(number, epoch), self.partitions.is_held(number, epoch)) {
                (Some(hold), Some(true)) => {
                    holds.insert(one.fence.sequence, hold);
                    ours.push(one);
                }
                // The host that holds the partition now reads the event under another epoch.
                (_, Some(false)) => self.in_flight.forget(&one),
                _ => self.in_flight.put_back([one]),
            }
        }
        if ours.is_empty() {
            return Ok(());
        }
        let fences: Vec<Fence> = ours.iter().map(|one: &Dropped| one.fence).collect();
        let claimed_at = Instant::now();
        let (claimed, locked) = match self.claim_or_lock(&fences, &holds).await {
            Ok(taken) => taken,
            Err(error) => {
                self.in_flight.put_back(ours);
                return Err(error);
            }
        };
        let (waiting, over): (Vec<Dropped>, Vec<Dropped>) =
            ours.into_iter().partition(|one| locked.contains(&one.fence.sequence));
        self.in_flight.put_back(waiting);
        // An event that is neither claimed nor locked has changed in the meantime, or another host holds its partition now.
        over.iter().for_each(|one| self.in_flight.forget(one));
        self.queue_claimed(claimed, own_lease_end(claimed_at, self.lease), &mut holds).await;
        Ok(())
    }

    /// Claims rows. If the database refuses one of them, for example because of a trigger or a constraint, halving finds that row. Its next
    /// claim is delayed, and the other rows are claimed. The error is that of rows that were not tried.
    pub(super) async fn claim_rows(&self, fences: &[Fence], holds: &Holds) -> (Vec<Claimed>, Option<StoreError>) {
        let (mut halving, mut claimed) = (Halving::new(fences), Vec::new());
        while let Some(part) = halving.next_part() {
            match self.store.claim(&self.owner, self.lease, part).await {
                Ok(more) if more.is_empty() => {}
                Ok(more) => {
                    halving.accepted();
                    claimed.extend(more);
                }
                Err(error) => halving.failed(part, error, answers(&*self.store)).await,
            }
            if self.is_one_queue() && halving.has_refused() {
                // No later event is delivered before the refused one, and the halves are claimed in order.
                break;
            }
        }
        let Halved { refused, failed } = halving.end();
        self.refused.accepted(claimed.iter().map(|claim: &Claimed| claim.fence.sequence));
        self.metrics.stuck_claims.forget(claimed.iter().map(|claim: &Claimed| claim.fence.sequence));
        for (fence, error) in &refused {
            self.refuse(fence.sequence, holds.get(&fence.sequence).map(Hold::partition), error);
        }
        (claimed, failed)
    }

    /// Claims these events, and returns the `seq` of those that cannot be claimed yet: another transaction has locked them, or the database
    /// refuses.
    async fn claim_or_lock(&self, fences: &[Fence], holds: &Holds) -> Result<(Vec<Claimed>, Vec<u64>), StoreError> {
        let (mut claimed, failed) = self.claim_rows(fences, holds).await;
        match failed {
            Some(error) if claimed.is_empty() => return Err(error),
            Some(error) => self.metrics.db_error(&error),
            None => {}
        }
        let is_claimed = |fence: &&Fence| claimed.iter().any(|claimed| claimed.fence.sequence == fence.sequence);
        let others: Vec<u64> = fences.iter().filter(|fence| !is_claimed(fence)).map(|fence| fence.sequence).collect();
        if others.is_empty() {
            return Ok((claimed, others));
        }
        // If the query fails, all of them count as locked: a lost claim ends with its lease, and a second check costs nothing.
        let locked = self.store.locked(&others).await.inspect_err(|error| self.metrics.db_error(error));
        let mut locked = locked.unwrap_or_else(|_| others.clone());
        let is_refused = |sequence: &u64| self.refused.knows(sequence);
        locked.extend(others.iter().copied().filter(is_refused));
        let is_free = |fence: &&Fence| others.contains(&fence.sequence) && !locked.contains(&fence.sequence);
        let free: Vec<Fence> = fences.iter().filter(is_free).copied().collect();
        if free.is_empty() {
            return Ok((claimed, locked));
        }
        // A row that was locked at the claim may have been unlocked before this check. If its event counted as changed, it would be read
        // again and delivered under the same `claim_seq`.
        let (more, failed) = self.claim_rows(&free, holds).await;
        let is_claimed = |sequence: &u64| more.iter().any(|claimed| claimed.fence.sequence == *sequence);
        let waits = |sequence: &u64| failed.is_some() && !is_claimed(sequence) || is_refused(sequence);
        locked.extend(free.iter().map(|fence| fence.sequence).filter(waits));
        if let Some(error) = &failed {
            self.metrics.db_error(error);
        }
        claimed.extend(more);
        Ok((claimed, locked))
    }

    /// Queues claimed events.
    async fn queue_claimed(&self, claimed: Vec<Claimed>, lease_end: Instant, holds: &mut Holds) {
        // Taken after the answer, so that no event expires too early.
        let answered_at = Instant::now();
        if self.queue.is_closed() {
            // A stop has begun in the meantime: this host delivers none of these events.
            for claim in claimed {
                self.settler.send_claim(claim.fence, given_back());
            }
            return;
        }
        let deliveries = self.accept(claimed, lease_end, answered_at, holds).await;
        self.queue_all(deliveries);
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
            // Events that may stop this host are delivered last, the most likely cause at the very end.
            claimed.sort_by_key(|claim| (is_delivered_alone(claim), claim.starts));
        }
        let batch = self.batch_numbers.next();
        let mut accepted = Vec::with_capacity(claimed.len());
        let routes = self.ask_for_routes(claimed.iter()).await;
        let patience = Instant::now() + MARK_PATIENCE;
        for claim in claimed {
            let (fence, state) = (claim.fence, RowState::of(&claim));
            match self.judge(claim, routes) {
                Judged::Settled(settlement, event) => {
                    self.log_dead(fence.sequence, event.as_ref(), &settlement);
                    self.settler.send_claim(fence, settlement);
                }
                Judged::Wanted(event) => match self
                    .in_flight
                    .mark_claimed(event.id(), fence, lease_end, self.hold_for_order(fence, holds), patience)
                    .await
                {
                    Some(mark) => accepted.push(self.taken(event, mark, state, batch, answered_at)),
                    // This host's earlier claim of the event has ended, but its listener is still running. The outcome of that call will be
                    // fenced off, so the event is given back for a while.
                    None => self.settler.send_claim(fence, still_at_work()),
                },
            }
        }
        accepted
    }

    /// The hold of an event's partition in the ordered modes. In other modes the claim alone secures the event, so the partition may move
    /// to another host at once. Otherwise a listener that never returns would keep the partition as long as this host runs.
    fn hold_for_order(&self, fence: Fence, holds: &mut Holds) -> Option<Hold> {
        holds.remove(&fence.sequence).filter(|_| self.order.is_some())
    }
}
