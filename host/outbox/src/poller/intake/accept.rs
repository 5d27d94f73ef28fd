//! Queues the events of a read.

use std::collections::HashMap;

use tokio::time::Instant;

use super::Intake;
use super::claim::{Holds, MARK_PATIENCE};
use super::judge::{Routes, stops_hosts};
use super::place::{Placed, RowState, Taken};
use crate::event::{Event, Fence};
use crate::partition::own_lease_end;
use crate::poller::{BATCH_BYTES, STOPPED_FRONT_REST};
use crate::queue::NotMarked;
use crate::settlement::given_back_for;
use crate::store::{Claimed, Due, ReadEvent, StoreError};

/// Which of the events that were read are claimed before they are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claims {
    /// Events that the partition alone does not secure.
    AsNeeded,
    /// All of them.
    All,
    /// All of them, because they were read without payloads, which the claims return.
    AllForPayloads,
}

/// How the events of a read were accepted.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    /// How many were queued, settled or blocked. Excludes events that another transaction has locked: the next read returns them again.
    pub(crate) count: usize,
    /// How the claims of these events ended, and whether there were any. `None` in the ordered modes, and if no event may be claimed.
    pub(crate) claims: Option<Result<bool, StoreError>>,
    /// Without an order: whether events are left in the table until claims succeed.
    pub(crate) left_unclaimed: bool,
}

impl Intake {
    /// Queues the events that were read, and claims first those that must not be delivered without a claim. Without an order, these are
    /// left in the table unless `may_claim` is true.
    ///
    /// # Errors
    /// In the ordered modes the database's own, if some events were not claimed.
    pub(crate) async fn accept_read(
        &self,
        read: Vec<ReadEvent>,
        answered_at: Instant,
        claims: Claims,
        may_claim: bool,
    ) -> Result<Accepted, StoreError> {
        if self.queue.is_closed() {
            // A stop has begun: the next owner of these partitions reads the events.
            return Ok(Accepted::default());
        }
        let batch = self.batch_numbers.next();
        let routes = self.ask_for_routes(read.iter().map(|one| &one.event)).await;
        let patience = Instant::now() + MARK_PATIENCE;
        let mut taken = Vec::with_capacity(read.len());
        let (mut to_claim, mut unreadable, mut holds) = (Vec::new(), Vec::new(), Holds::new());
        // Partitions that this host took over, during the read, from a host that died. Each of their events is claimed before its delivery.
        let careful = self.partitions.open().careful;
        let has_payloads = claims != Claims::AllForPayloads;
        // Without an order, two reads may return the same event, and a claim would take it from its listener.
        let known = if has_payloads || self.order.is_some() { Vec::new() } else { self.in_flight.known() };
        for ReadEvent { event: row, partition, was_claimed, .. } in read {
            if claims == Claims::AsNeeded && careful.contains(partition) || known.contains(&row.fence.sequence) {
                continue;
            }
            // The partition was given back or lost since the read began: the host that holds it now reads the event itself.
            let Some(hold) = self.partitions.hold(partition, row.fence.epoch()) else { continue };
            let (fence, state) = (row.fence, RowState::of(&row));
            let id = row.event.as_ref().ok().map(|event| event.id());
            if id.is_none() && self.order.is_none() && has_payloads {
                unreadable.push(fence);
                holds.insert(fence.sequence, hold);
                continue;
            }
            let event = match self.without_claim(row, was_claimed || claims != Claims::AsNeeded, routes) {
                Some(event) => event,
                // Another read has returned the event in the meantime: a claim would take it from its listener.
                None if self.order.is_none() && id.is_some_and(|id| self.in_flight.knows(&id, fence)) => continue,
                None => {
                    to_claim.push((fence, state.behind));
                    holds.insert(fence.sequence, hold);
                    continue;
                }
            };
            match self.in_flight.mark_read(event.id(), fence, hold, patience).await {
                Ok(mark) => taken.push(self.taken(event, mark, state, batch, answered_at)),
                Err(NotMarked::Known) => {}
                Err(NotMarked::InHand) => self.wake.within(MARK_PATIENCE),
            }
        }
        if self.order.is_some() {
            return Ok(Accepted { count: self.accept_in_order(taken, to_claim, holds).await?, ..Accepted::default() });
        }
        let queued = self.queue_placed(taken).await;
        if !may_claim {
            let left_unclaimed = !(to_claim.is_empty() && unreadable.is_empty());
            return Ok(Accepted { count: queued, claims: None, left_unclaimed });
        }
        let fences: Vec<Fence> = to_claim.into_iter().map(|(fence, _)| fence).collect();
        let (claimed, ended) = match self.claim(&fences, &mut holds).await {
            Ok(claimed) => (claimed, Ok(!fences.is_empty())),
            // The refused rows rest from now on, so the next claim reaches others. A careful read must not pass by these.
            Err(error) if claims == Claims::AsNeeded && self.is_one_refused(&fences) => {
                self.metrics.db_error(&error);
                (0, Ok(true))
            }
            Err(error) => (0, Err(error)),
        };
        let unreadable = self.claim_unreadable(&unreadable, &mut holds).await;
        let left_unclaimed = ended.is_err();
        Ok(Accepted { count: queued + claimed + unreadable, claims: Some(ended), left_unclaimed })
    }

    /// Whether the database has refused the claim of one of these rows, so that it rests.
    fn is_one_refused(&self, fences: &[Fence]) -> bool {
        let resting = self.refused.resting(Instant::now());
        fences.iter().any(|fence| resting.contains(&fence.sequence))
    }

    /// Claims events that cannot be read, so that they become dead. Returns how many were claimed. If this claim fails, the read still
    /// succeeds: a database may lack the memory to write a very large row (SQLite rewrites the row in this process).
    async fn claim_unreadable(&self, fences: &[Fence], holds: &mut Holds) -> usize {
        self.claim(fences, holds).await.unwrap_or_else(|error| {
            self.metrics.db_error(&error);
            tracing::error!(
                events = fences.len(), event.sequence = fences[0].sequence, error = %crate::chain(&error),
                "events that cannot be read could not be claimed to be dead; other events go on"
            );
            0
        })
    }

    /// As [`accept_read`](Self::accept_read), in the ordered modes: claimed events keep their order among the others.
    async fn accept_in_order(
        &self,
        mut taken: Vec<Taken>,
        to_claim: Vec<(Fence, Option<u64>)>,
        mut holds: Holds,
    ) -> Result<usize, StoreError> {
        // How many events are settled without a call, and the error if some events were not claimed.
        let (mut settled, mut failed) = (0, None);
        if !to_claim.is_empty() {
            let mut behind: HashMap<u64, Option<u64>> =
                to_claim.iter().map(|(fence, behind)| (fence.sequence, *behind)).collect();
            // In one queue, no event is delivered before an earlier one whose claim was refused and waits for its next try.
            let rests_at = if self.is_one_queue() { self.refused.resting(Instant::now()).into_iter().min() } else { None };
            let fences = to_claim.into_iter().map(|(fence, _)| fence);
            let fences: Vec<Fence> = fences.filter(|fence| rests_at.is_none_or(|rests| fence.sequence < rests)).collect();
            let claimed_at = Instant::now();
            let (mut claimed, not_claimed) = self.claim_rows(&fences, &holds).await;
            failed = not_claimed;
            if claimed.is_empty()
                && let Some(error) = failed
            {
                // No delivery of these events has begun.
                taken.into_iter().for_each(|taken| taken.delivery.mark.unchanged());
                return Err(error);
            }
            settled = claimed.len();
            for claim in &mut claimed {
                claim.behind = behind.remove(&claim.fence.sequence).flatten();
            }
            if let Some(stopped_at) = behind.keys().min().filter(|_| self.is_one_queue()) {
                // No later event may be delivered before this one. No delivery of the later events has begun.
                let later = |taken: &mut Taken| taken.delivery.event.sequence() > *stopped_at;
                taken.extract_if(.., later).for_each(|taken| taken.delivery.mark.unchanged());
                for claim in claimed.extract_if(.., |claim| claim.fence.sequence > *stopped_at) {
                    self.settler.send_claim(claim.fence, given_back_for(STOPPED_FRONT_REST));
                }
                settled = claimed.len();
            }
            let lease_end = own_lease_end(claimed_at, self.lease);
            let accepted = self.accept_claimed(claimed, lease_end, Instant::now(), &mut holds).await;
            settled -= accepted.len();
            taken.extend(accepted);
        }
        taken.sort_unstable_by_key(|taken| taken.delivery.event.sequence());
        let queued = self.queue_placed(taken).await;
        match failed {
            Some(error) => Err(error),
            None => Ok(settled + queued),
        }
    }

    /// Queues the events that may start; the others wait in key queues or in the table. Returns how many were placed.
    async fn queue_placed(&self, taken: Vec<Taken>) -> usize {
        let Placed { start, others } = self.place_all(taken).await;
        let count = start.len() + others;
        self.queue_all(start);
        count
    }

    /// The event if it may be delivered without a claim. `None` if it must be claimed first: a call by its last holder may still be
    /// running, or this host dropped it without an outcome. Also `None` if it may have stopped its host, or is settled without a call.
    fn without_claim(&self, row: Claimed, must_be_claimed: bool, routes: Routes) -> Option<Event> {
        let is_dropped = self.order.is_some() && row.event.as_ref().is_ok_and(|event| self.in_flight.is_dropped(&event.id()));
        let Due::Since(waited) = row.due else { return None };
        // The last owner may have delivered the event under the `claim_seq` that it has now.
        let is_refused = self.refused.knows(&row.fence.sequence);
        // The claim that would follow counts for `stops_hosts`.
        if must_be_claimed || is_dropped || is_refused || stops_hosts(row.claims.saturating_add(1), row.starts) {
            return None;
        }
        let event = row.event.ok()?;
        self.may_go_on(event.route(), waited, routes).then_some(event)
    }
}

/// The approximate size of these events, in bytes.
pub(crate) fn bytes_of(read: &[ReadEvent]) -> usize {
    read.iter().map(|one| size_bytes(&one.event)).sum()
}

/// The approximate size of an event, in bytes. Not less than what a store counts, or a batch that reached the byte limit would not look
/// full. An unreadable event counts as a full batch, because it may have reached the limit.
fn size_bytes(claimed: &Claimed) -> usize {
    claimed.event.as_ref().map_or(BATCH_BYTES, |event| event.size_bytes())
}
