//! Reading the due events of this host's partitions without a claim.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::claim::{Holds, MARK_PATIENCE, Placed, Taken, size_bytes};
use super::cursor::Ended;
use super::judge::stops_hosts;
use super::{Polled, Poller, STOPPED_FRONT_REST};
use crate::event::{Event, Fence};
use crate::partition::Careful;
use crate::queue::{Delivery, Left, NotMarked, Via};
use crate::settlement::given_back_for;
use crate::store::{Claimed, Due, ReadEvent, ReadRequest, StoreError};

/// Which of the events that were read are claimed before they are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claims {
    /// Events that the partition alone does not secure.
    AsNeeded,
    /// All of them.
    All,
}

impl Poller {
    /// Reads due events and queues them. Returns how many were queued or settled, too.
    pub(super) async fn read(
        &mut self,
        partitions: Vec<u16>,
        limit: u32,
        max_bytes: usize,
    ) -> Result<(Polled, usize), StoreError> {
        if !self.may_deliver() {
            return Ok((Polled::Drained, 0));
        }
        let in_flight = self.in_flight.clone();
        // Until the events that are read have been accepted.
        let reading = in_flight.begin_read();
        if self.order.is_some() && self.cursor.left_since(in_flight.ever_left()) {
            self.forget_lost();
            self.cursor.begin_again();
        }
        let beside = self.reads_front_beside();
        let (mut limit, mut max_bytes) = (limit, max_bytes);
        if beside && self.begin_front_read(&partitions) {
            // A part of the room is kept for what that read brings.
            let left = self.room();
            if left.events == 0 {
                return Ok((Polled::NoRoom, 0));
            }
            limit = limit.min(u32::try_from(left.events).unwrap_or(u32::MAX));
            max_bytes = max_bytes.min(left.bytes);
        }
        let (after, may_be_in_hand) = self.cursor.next(Instant::now(), beside);
        let order = self.order.as_ref().map(|order| order.reading());
        let request = ReadRequest {
            owner: self.owner.clone(),
            partitions,
            after,
            // Where order is kept, the store looks at these to tell what each event waits for.
            held: if may_be_in_hand || order.is_some() { self.not_to_read() } else { Vec::new() },
            busy: self.busy.leave_out(),
            limit,
            max_bytes,
            skip_recent: self.config.skip_recent,
            order,
        };
        let asked_at = Instant::now();
        let read = self.store.read(&request).await.inspect_err(|_| self.metrics.claims_failed.increment())?;
        let answered_at = Instant::now();
        let full = self.count_taken(read.len(), bytes_of(&read), limit, max_bytes);
        self.cursor.read(Ended { last: read.last().map(|last| last.position), more: full, asked_at, answered_at });
        let accepted = if self.queue.is_closed() { 0 } else { self.accept_read(read, answered_at, Claims::AsNeeded).await? };
        drop(reading);
        // Where nothing became of a full batch, because others have locked its rows, say, the next batch would be the same.
        Ok((if full && accepted > 0 { Polled::Full } else { Polled::Drained }, accepted))
    }

    /// Reads due events of partitions whose last owner went without giving them back, claims and queues them. Returns how many were
    /// queued or settled.
    pub(super) async fn read_carefully(
        &mut self,
        careful: &Careful,
        limit: u32,
        max_bytes: usize,
    ) -> Result<usize, StoreError> {
        let in_flight = self.in_flight.clone();
        // Until the events that are read have been accepted.
        let reading = in_flight.begin_read();
        let request = ReadRequest {
            owner: self.owner.clone(),
            partitions: careful.numbers(),
            after: careful.after(),
            held: self.not_to_read(),
            busy: Vec::new(),
            limit,
            max_bytes,
            skip_recent: self.config.skip_recent,
            order: self.order.as_ref().map(|order| order.reading()),
        };
        let read = self.store.read(&request).await.inspect_err(|_| self.metrics.claims_failed.increment())?;
        let answered_at = Instant::now();
        let full = self.count_taken(read.len(), bytes_of(&read), limit, max_bytes);
        let last = read.last().map(|last| last.position);
        let accepted = if self.queue.is_closed() { 0 } else { self.accept_read(read, answered_at, Claims::All).await? };
        drop(reading);
        // In one queue, the front is read again until it can be claimed.
        let is_front_locked = accepted == 0 && self.is_one_queue();
        self.partitions.read_carefully(careful, accepted, last.filter(|_| full || is_front_locked));
        Ok(accepted)
    }

    /// Whether an event that is read now could be delivered: the lease holds, and the session is proven.
    pub(super) fn may_deliver(&mut self) -> bool {
        let may = self.partitions.lease_end() > Instant::now() && self.partitions.may_begin();
        if !may {
            self.partitions.doubt();
            self.cursor.rests();
        }
        may
    }

    /// The `seq` of events that no read needs to bring. Where order is kept, a read brings events that were let go without an
    /// outcome, to tell what they wait for.
    pub(super) fn not_to_read(&self) -> Vec<u64> {
        if self.order.is_some() { self.in_flight.in_hand() } else { self.in_flight.known() }
    }

    /// Forgets the events that were let go here without an outcome and whose partitions another host holds by now, which reads them
    /// under another epoch. The others are claimed when a read brings them. No read brings those that somebody else has ended.
    fn forget_lost(&self) {
        let is_lost = |one: &&Left| self.partitions.is_held(one.partition.0, one.partition.1) == Some(false);
        self.in_flight.left().iter().filter(is_lost).for_each(|one| self.in_flight.forget(one));
    }

    /// Queues the events that were read; those that may not be delivered without a claim are claimed first. Returns how many were
    /// queued, settled or set aside: an event that somebody has locked is not, and the next read brings it again.
    pub(super) async fn accept_read(
        &self,
        read: Vec<ReadEvent>,
        answered_at: Instant,
        claims: Claims,
    ) -> Result<usize, StoreError> {
        let batch = self.batches.next();
        let routes_known = self.ask_for_routes(read.iter().map(|one| &one.event)).await;
        let patience = Instant::now() + MARK_PATIENCE;
        let mut taken = Vec::with_capacity(read.len());
        let (mut to_claim, mut unreadable, mut holds) = (Vec::new(), Vec::new(), Holds::new());
        // Partitions that were taken over from a host that is gone, while the read was on its way: their events are claimed one by
        // one.
        let careful = self.partitions.open().careful;
        for ReadEvent { event: row, partition, was_claimed, .. } in read {
            if claims == Claims::AsNeeded && careful.contains(partition) {
                continue;
            }
            // The partition was given back or lost since the read began: the host that holds it now reads the event itself.
            let Some(hold) = self.partitions.hold(partition, row.fence.epoch()) else { continue };
            let (fence, behind, expires_in, deferrals) = (row.fence, row.behind, row.expires_in, row.deferrals);
            let id = row.event.as_ref().ok().map(|event| event.id());
            if id.is_none() && self.order.is_none() {
                unreadable.push(fence);
                holds.insert(fence.sequence, hold);
                continue;
            }
            let event = match self.without_claim(row, was_claimed || claims == Claims::All, routes_known) {
                Some(event) => event,
                // Another read has brought it meanwhile: a claim would take it from its listener.
                None if self.order.is_none() && id.is_some_and(|id| self.in_flight.knows(&id, fence)) => continue,
                None => {
                    to_claim.push((fence, behind));
                    holds.insert(fence.sequence, hold);
                    continue;
                }
            };
            match self.in_flight.mark_read(event.id(), fence, hold, patience).await {
                Ok(mark) => {
                    let counted_bytes = Some(self.queue.count_bytes(event.size_bytes()));
                    let delivery = Delivery::new(Arc::new(event), mark, Via::Cold, batch).expiring(answered_at, expires_in);
                    taken.push(Taken { delivery: Delivery { deferrals, counted_bytes, ..delivery }, behind });
                }
                Err(NotMarked::Known) => {}
                Err(NotMarked::InHand) => self.wake.within(MARK_PATIENCE),
            }
        }
        if self.order.is_some() {
            return self.accept_in_order(taken, to_claim, holds).await;
        }
        let queued = self.queue_placed(taken).await;
        let fences: Vec<Fence> = to_claim.into_iter().map(|(fence, _)| fence).collect();
        let claimed = self.claim(&fences, &mut holds).await?;
        Ok(queued + claimed + self.claim_unreadable(&unreadable, &mut holds).await)
    }

    /// Claims events that cannot be read, which are dead then. Returns how many were claimed. If this claim fails, the read still
    /// succeeds: a database may not have the memory to write a very large row (SQLite writes it anew, and in this process).
    async fn claim_unreadable(&self, fences: &[Fence], holds: &mut Holds) -> usize {
        self.claim(fences, holds).await.unwrap_or_else(|error| {
            tracing::error!(
                events = fences.len(), event.sequence = fences[0].sequence, error = %crate::chain(&error),
                "events that cannot be read could not be claimed to be dead; other events go on"
            );
            0
        })
    }

    /// The same where order is kept: events that must be claimed have their places among the others.
    async fn accept_in_order(
        &self,
        mut taken: Vec<Taken>,
        to_claim: Vec<(Fence, Option<u64>)>,
        mut holds: Holds,
    ) -> Result<usize, StoreError> {
        // How many events are settled without a call.
        let mut settled = 0;
        if !to_claim.is_empty() {
            let mut behind: HashMap<u64, Option<u64>> =
                to_claim.iter().map(|(fence, behind)| (fence.sequence, *behind)).collect();
            let fences: Vec<Fence> = to_claim.into_iter().map(|(fence, _)| fence).collect();
            let claimed_at = Instant::now();
            match self.store.claim(&self.owner, self.lease, &fences).await {
                Ok(mut claimed) => {
                    settled = claimed.len();
                    for claim in &mut claimed {
                        claim.behind = behind.remove(&claim.fence.sequence).flatten();
                    }
                    if let Some(stopped_at) = behind.keys().min().filter(|_| self.is_one_queue()) {
                        // No event behind it may go on, and none of them has begun.
                        let later = |taken: &mut Taken| taken.delivery.event.sequence() > *stopped_at;
                        taken.extract_if(.., later).for_each(|taken| taken.delivery.mark.unchanged());
                        for claim in claimed.extract_if(.., |claim| claim.fence.sequence > *stopped_at) {
                            self.settler.send_claim(claim.fence, given_back_for(STOPPED_FRONT_REST)).await;
                        }
                        settled = claimed.len();
                    }
                    let accepted = self.accept_claimed(claimed, claimed_at + self.lease, Instant::now(), &mut holds).await;
                    settled -= accepted.len();
                    taken.extend(accepted);
                }
                Err(error) => {
                    self.metrics.claims_failed.increment();
                    // None of them has begun.
                    taken.into_iter().for_each(|taken| taken.delivery.mark.unchanged());
                    return Err(error);
                }
            }
        }
        taken.sort_unstable_by_key(|taken| taken.delivery.event.sequence());
        Ok(settled + self.queue_placed(taken).await)
    }

    /// Queues the events that may start, and puts the others in their places. Returns how many have one.
    async fn queue_placed(&self, taken: Vec<Taken>) -> usize {
        let Placed { start, others } = self.place_all(taken).await;
        let count = start.len() + others;
        self.queue_all(start).await;
        count
    }

    /// The event, if it may be delivered without a claim. `None` if a claim must come first: its last holder may still be at work, or
    /// this host dropped it without an outcome. The same holds if it may have stopped its host, or is settled without a call.
    fn without_claim(&self, row: Claimed, must_be_claimed: bool, routes_known: bool) -> Option<Event> {
        let is_left = self.order.is_some() && row.event.as_ref().is_ok_and(|event| self.in_flight.is_left(&event.id()));
        // The claim that would follow counts for `stops_hosts`.
        if must_be_claimed || is_left || stops_hosts(row.claims.saturating_add(1), row.starts) || row.due != Due::Now {
            return None;
        }
        let event = row.event.ok()?;
        (routes_known || !self.listeners.gives_up_any(std::iter::once(event.route()))).then_some(event)
    }
}

/// Roughly how many bytes these events take.
pub(super) fn bytes_of(read: &[ReadEvent]) -> usize {
    read.iter().map(|one| size_bytes(&one.event)).sum()
}
