//! Steps that claim, renew, start and settle.

use std::time::{Duration, Instant};

use outbox::EventId;
use outbox::event::{Cost, Fence, OwnerId};
use outbox::store::{
    AttemptCost, ClaimStore, Claimed, Due, LeaseStore, Position, ReadEvent, ReadOrder, ReadRequest, ReadStore, SettleStore,
    Settled, Settlement,
};
use support::{Database, PATIENCE};

use super::compare::{Times, agree};
use super::parts::{FenceChoice, Outcome, span};
use super::play::{Player, round, route, said};
use super::step::Step;
use super::table::Fault;
use super::taking::Taken;
use super::tally::Met;

/// What goes wrong: nothing to say, text that is no SQL, text with what not every database stores, and too much of it.
const ERRORS: [&str; 3] = ["no luck", "it's \"späti\" \\ %", "a\0b"];
const TOO_LONG: usize = 4_100;

impl<D: Database> Player<'_, D> {
    pub(super) async fn hold(&mut self, step: &Step) -> Result<(), Fault> {
        match step {
            Step::ClaimDue { owner, lease, limit } => {
                let fences = self.table.due(*limit);
                self.claim(&self.owner(*owner), span(*lease), &fences).await
            }
            Step::Read { owner, partitions, limit, max_bytes, skip_recent, with_some_in_hand, busy, order } => {
                let hand = &self.hands[*owner % self.hands.len()];
                let held: Vec<u64> =
                    if *with_some_in_hand { hand.iter().map(|fence| fence.sequence).collect() } else { Vec::new() };
                // Each other one of them is about to be set aside.
                let order = order.clone().map(|order| match order {
                    ReadOrder::ByAggregate { waits_for, .. } => {
                        ReadOrder::ByAggregate { waits_for, queued: held.iter().copied().step_by(2).collect() }
                    }
                    ReadOrder::OneForAll => order,
                });
                let request = ReadRequest {
                    owner: self.owner(*owner),
                    partitions: partitions.numbers(),
                    after: None,
                    held,
                    busy: busy.iter().copied().map(route).collect(),
                    limit: *limit,
                    max_bytes: *max_bytes,
                    skip_recent: span(*skip_recent),
                    order,
                };
                self.read(request).await
            }
            Step::Claim { owner, lease, fences } => {
                let fences: Vec<Fence> = fences.iter().map(|choice| self.fence(*choice)).collect();
                self.claim(&self.owner(*owner), span(*lease), &fences).await
            }
            Step::Renew { fences, lease } => {
                let mut fences: Vec<Fence> = fences.iter().map(|choice| self.fence(*choice)).collect();
                fences.sort_unstable_by_key(claim);
                fences.dedup_by_key(|fence| claim(fence));
                self.tick().await;
                let mut renewed = said("renew", self.store.renew(&fences, span(*lease)).await)?;
                // A transaction that broke off is rolled back by its connection, which may be after its call has ended.
                let started = Instant::now();
                while !renewed.locked.is_empty() && started.elapsed() < PATIENCE {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    renewed = said("renew", self.store.renew(&fences, span(*lease)).await)?;
                }
                renewed.held.sort_unstable();
                self.watch.renewed(self.table.now, span(*lease), &renewed.held);
                self.meets(Met::RenewalRefused, fences.len() - renewed.held.len());
                agree("renewed", self.table.renew(&fences, span(*lease)), renewed.held)?;
                agree("locked by others while renewing", Vec::new(), renewed.locked)
            }
            Step::CountStart { fence } => {
                let fence = self.fence(*fence);
                self.tick().await;
                agree("counted", self.table.count_start(fence), said("count_start", self.store.count_start(fence).await)?)
            }
            Step::UncountStart { fence } => {
                let Fence { sequence, .. } = self.fence(*fence);
                self.tick().await;
                self.table.uncount_start(sequence);
                said("uncount_start", self.store.uncount_start(sequence).await)
            }
            Step::GiveBack { owner, events } => self.give_back(*owner, events).await,
            Step::Settle { outcomes } => self.settle(outcomes).await,
            other => Err(format!("{other:?} holds nothing")),
        }
    }

    async fn give_back(&mut self, owner: usize, events: &[usize]) -> Result<(), Fault> {
        let used: Vec<EventId> = (0..self.ids).map(|number| self.event_id(number)).collect();
        let mut ids: Vec<EventId> = events.iter().filter_map(|number| round(&used, *number).copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        let owner = self.owner(owner);
        self.tick().await;
        let mut settled = said("give_back", self.store.give_back(&owner, &ids).await)?;
        let mut there = self.table.give_back(&owner, &ids);
        // Where there is one writer at a time, what is not there now was rolled back.
        if self.one_writer {
            there = ids;
        }
        settled.sort_unstable();
        there.sort_unstable();
        agree("needs no second look", there, settled)
    }

    /// Reads from the front, then what is behind that, and settles none of it: a later step may, by its fence.
    async fn read(&mut self, mut request: ReadRequest) -> Result<(), Fault> {
        self.tick().await;
        let read = said("read", self.store.read(&request).await)?;
        let mut taken = self.table.read(&request);
        self.agree_read(&request, &taken, &read)?;
        if let (Some(last), Some(last_taken)) = (read.last(), taken.last()) {
            let position = |due_at, sequence| Some(Position { due_at, sequence });
            request.after = position(last.position.due_at, last.position.sequence);
            if request.order == Some(ReadOrder::OneForAll) {
                request.held.extend(taken.iter().map(|taken| taken.row.seq));
            }
            let further = said("read", self.store.read(&request).await)?;
            request.after = position(last_taken.row.due_at.ok_or("what is read is due")?, last_taken.row.seq);
            taken = self.table.read(&request);
            self.agree_read(&request, &taken, &further)?;
        }
        Ok(())
    }

    fn agree_read(&mut self, request: &ReadRequest, taken: &[Taken], read: &[ReadEvent]) -> Result<(), Fault> {
        for read in read {
            self.watch.read(self.table.now, request.owner.as_str(), read.partition, read.event.fence)?;
        }
        self.meets_read(request, read);
        let order = |fence: Fence| fence.sequence;
        agree(
            "read",
            taken.iter().map(|taken| order(taken.fence)).collect(),
            read.iter().map(|read| order(read.event.fence)).collect::<Vec<_>>(),
        )?;
        for (taken, read) in taken.iter().zip(read) {
            agree("had a claim", taken.row.locked_by.is_some(), read.was_claimed)?;
            agree("place", taken.row.seq, read.position.sequence)?;
            if !taken.row.due_at.is_some_and(|due_at| self.times.same(due_at, read.position.due_at)) {
                return Err(format!("due at: expected {:?}, the database said {:?}", taken.row.due_at, read.position));
            }
        }
        self.agree_taken(&request.owner, taken, read.iter().map(|read| &read.event))
    }

    /// What a read came to that these traces are there for.
    fn meets_read(&mut self, request: &ReadRequest, read: &[ReadEvent]) {
        let in_other_hands = |read: &&ReadEvent| {
            let fence = read.event.fence;
            let others = self.owners.iter().zip(&self.hands).filter(|(owner, _)| **owner != request.owner);
            others.flat_map(|(_, hand)| hand).any(|other| claim(other) == claim(&fence))
        };
        let twice = read.iter().filter(in_other_hands).count();
        self.meets(Met::ReadAgain, twice);
        self.meets(Met::ReadUnderClaim, read.iter().filter(|read| read.was_claimed).count());
        let waiting = read.iter().filter(|read| read.event.behind.is_some()).count();
        match &request.order {
            None => {}
            Some(ReadOrder::ByAggregate { .. }) => self.meets(Met::BehindItsAggregate, waiting),
            Some(ReadOrder::OneForAll) => self.meets(Met::Front, read.len()),
        }
    }

    fn agree_claimed(&mut self, owner: &OwnerId, lease: Duration, taken: &[Taken], claimed: &[Claimed]) -> Result<(), Fault> {
        let fences: Vec<Fence> = claimed.iter().map(|claimed| claimed.fence).collect();
        self.watch.claimed(self.table.now, owner.as_str(), lease, &fences)?;
        self.agree_taken(owner, taken, claimed.iter())
    }

    fn agree_taken<'c>(
        &mut self,
        owner: &OwnerId,
        taken: &[Taken],
        claimed: impl Iterator<Item = &'c Claimed>,
    ) -> Result<(), Fault> {
        for (taken, claimed) in taken.iter().zip(claimed) {
            agree("fence", taken.fence, claimed.fence)?;
            agree_claimed(taken, claimed, self.times).map_err(|fault| format!("row {}: {fault}", taken.row.seq))?;
            self.given(owner, claimed.fence);
        }
        Ok(())
    }

    async fn claim(&mut self, owner: &OwnerId, lease: Duration, fences: &[Fence]) -> Result<(), Fault> {
        self.tick().await;
        let claimed = said("claim", self.store.claim(owner, lease, fences).await)?;
        let taken = self.table.claim(owner, lease, fences);
        agree(
            "claimed",
            taken.iter().map(|taken| taken.fence).collect(),
            claimed.iter().map(|claimed| claimed.fence).collect::<Vec<_>>(),
        )?;
        self.agree_claimed(owner, lease, &taken, &claimed)
    }

    async fn settle(&mut self, outcomes: &[(FenceChoice, Outcome)]) -> Result<(), Fault> {
        let settled = self.outcomes(outcomes);
        self.tick().await;
        self.meets(Met::LostItsPartition, settled.iter().filter(|settled| self.lost_its_partition(settled.fence)).count());
        let dropped = said("settle", self.store.settle(&settled).await)?;
        let expected = self.table.settle(&settled);
        self.agree_dropped(&settled, expected, dropped)
    }

    pub(super) fn agree_dropped(&mut self, settled: &[Settled], expected: u64, dropped: u64) -> Result<(), Fault> {
        let stored = (settled.len() as u64).checked_sub(dropped).ok_or("more outcomes were dropped than were sent")?;
        self.watch.settled(settled.iter().map(|settled| settled.fence).collect(), stored);
        agree("dropped outcomes", expected, dropped)
    }

    /// Whether an event is as it was read, but its partition has got another owner.
    fn lost_its_partition(&self, fence: Fence) -> bool {
        let row = self.table.rows.get(&fence.sequence);
        row.is_some_and(|row| {
            let as_it_was = row.locked_by.is_none() && claim(&self.table.fence(row)) == claim(&fence);
            as_it_was && fence.claim >> 32 > 0 && self.table.fence(row) != fence
        })
    }

    pub(super) fn outcomes(&self, outcomes: &[(FenceChoice, Outcome)]) -> Vec<Settled> {
        let mut settled: Vec<Settled> = Vec::new();
        for (choice, outcome) in outcomes {
            let fence = self.fence(*choice);
            // One claim has one outcome, though it may be sent twice: so has a row that was read though it was claimed.
            let known = settled.iter().find(|settled| claim(&settled.fence) == claim(&fence));
            let known = known.map(|settled| settled.settlement.clone());
            let settlement = known.unwrap_or_else(|| self.settlement(fence, outcome));
            settled.push(Settled { cost: cost(fence, &settlement).map(Box::new), ..Settled::new(fence, settlement) });
        }
        settled
    }

    /// The earlier events of its aggregate, whatever became of them.
    fn earlier(&self, fence: Fence) -> Vec<u64> {
        let Some(row) = self.table.rows.get(&fence.sequence).filter(|row| row.aggregate_id.is_some()) else {
            return Vec::new();
        };
        let earlier = self.table.rows.range(..row.seq).map(|(_, earlier)| earlier);
        earlier
            .filter(|earlier| earlier.aggregate_type == row.aggregate_type && earlier.aggregate_id == row.aggregate_id)
            .map(|earlier| earlier.seq)
            .collect()
    }

    pub(super) fn settlement(&self, fence: Fence, outcome: &Outcome) -> Settlement {
        let error = |number: usize| match ERRORS.get(number) {
            Some(error) => (*error).to_owned(),
            None => "ü".repeat(TOO_LONG),
        };
        match outcome {
            Outcome::Done => Settlement::Done,
            Outcome::Erased => Settlement::Erased,
            Outcome::Deferred(after) => Settlement::Deferred { after: span(*after) },
            Outcome::Retry(after, text) => Settlement::Retry { after: span(*after), error: error(*text) },
            Outcome::Dead { error: text, counted, blocks } => {
                Settlement::Dead { error: error(*text), counted: *counted, blocks: *blocks }
            }
            Outcome::Parked(text) => Settlement::Parked { reason: error(*text) },
            Outcome::Behind(number) => match round(&self.earlier(fence), *number) {
                Some(earlier) => Settlement::Behind { sequence: *earlier },
                None => Settlement::Released { after: span(0), reason: None },
            },
            Outcome::Released(after, text) => Settlement::Released { after: span(*after), reason: Some(error(*text).into()) },
        }
    }
}

/// A claim, or a row that was read, whatever the epoch at which its fence was seen.
fn claim(fence: &Fence) -> (u64, u64) {
    (fence.sequence, fence.claim & 0xffff_ffff)
}

fn agree_claimed(taken: &Taken, claimed: &Claimed, times: Times) -> Result<(), Fault> {
    let row = &taken.row;
    let event = claimed.event.as_ref().map_err(|error| format!("it cannot be read: {error}"))?;
    let counters = (claimed.attempts, claimed.deferrals, claimed.claims, claimed.starts);
    agree("counters", (row.attempts, row.deferrals, row.claims, row.starts), counters)?;
    agree("behind", taken.behind, claimed.behind)?;
    let same_due = match (taken.due, claimed.due) {
        (Due::In(expected), Due::In(found)) | (Due::Since(expected), Due::Since(found)) => times.same_span(expected, found),
        (expected, found) => expected == found,
    };
    if !same_due {
        return Err(format!("due: expected {:?}, the database said {:?}", taken.due, claimed.due));
    }
    agree("event id", row.event_id, event.id())?;
    agree(
        "names",
        (row.event_type.as_str(), row.aggregate_type.as_str(), row.aggregate_id.as_deref(), row.tenant_id.as_deref()),
        (event.event_type().as_str(), event.aggregate_type().as_str(), event.aggregate_id(), event.tenant_id()),
    )?;
    agree("headers", &row.headers, event.headers())?;
    agree("content type", row.content_type.as_str(), event.content_type())?;
    agree("payload", row.payload.as_ref(), Some(event.payload_bytes()))?;
    agree("place", (row.seq, taken.fence.claim, row.attempts + 1), (event.sequence(), event.fence(), event.attempt()))?;
    let same_times = times.same(row.occurred_at, event.occurred_at())
        && times.same(row.available_at, event.available_at())
        && times.same_option(row.expires_at, event.expires_at());
    if same_times { Ok(()) } else { Err(format!("times: expected {row:?}, the database said {event:?}")) }
}

/// What the attempt cost, for every second claim of an event.
pub(super) fn cost(fence: Fence, settlement: &Settlement) -> Option<AttemptCost> {
    let took = Duration::from_micros(fence.sequence);
    AttemptCost::new(1, settlement, Cost::of_time(took)).filter(|_| fence.claim.is_multiple_of(2))
}
