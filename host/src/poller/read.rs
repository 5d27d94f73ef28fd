//! Reading the due events of this host's partitions without a claim.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::claim::{MARK_PATIENCE, Placed, Taken, size_bytes};
use super::judge::stops_hosts;
use super::{Polled, Poller, STOPPED_FRONT_REST};
use crate::event::{Event, Fence};
use crate::queue::{Delivery, Left, NotMarked, Via};
use crate::settlement::given_back_for;
use crate::store::{Claimed, Due, Position, ReadEvent, ReadRequest, StoreError};

/// How often a read begins at the front while reads come back full: transactions commit in another order than they began, and a
/// replayed event is due in the past.
const FRONT_EVERY: Duration = Duration::from_secs(1);
/// A read at the front that takes this long is slow, unless other reads take as long: it passes many events that are left out, or,
/// while somebody holds a snapshot, every event that was delivered since the snapshot was taken.
const SLOW_FRONT: Duration = Duration::from_millis(20);
/// How long the front is left alone after a slow read, as a multiple of what the read took: otherwise, where it takes a second,
/// nothing else would ever be read.
const SLOW_FRONT_REST_FACTOR: u32 = 4;
/// The longest such rest: one read may have been slow by chance.
const SLOW_FRONT_LONGEST_REST: Duration = Duration::from_secs(5);
/// Where the front is slow, a read that follows a short one begins so long before the last event that was ever read. Most
/// transactions are shorter than this; the events of the others are found at the front.
const LATE_COMMITS_WITHIN: Duration = Duration::from_secs(1);

/// How far the table was read.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The last event of the last read; `None` to begin at the front.
    after: Option<Position>,
    /// The last event that was ever read: no event behind it is in hand.
    furthest: Option<Position>,
    /// When a read at the front was answered, and how long it took.
    front_at: Option<Instant>,
    front_took: Duration,
    /// How long the last read took that began elsewhere, if there was one since then.
    other_took: Option<Duration>,
    /// How many events had ever been let go without an outcome.
    ever_left: u64,
}

impl Cursor {
    /// Where the next read begins, and whether events that are in hand may stand behind that.
    fn next(&mut self, now: Instant) -> (Option<Position>, bool) {
        let slow_rest = self.rest_of_a_slow_front();
        let rest = slow_rest.unwrap_or(FRONT_EVERY);
        if self.front_at.is_none_or(|at| now.saturating_duration_since(at) >= rest) {
            self.after = None;
        } else if self.after.is_none() && slow_rest.is_some() {
            self.after = self.furthest.map(|last| Position { due_at: last.due_at.minus(LATE_COMMITS_WITHIN), sequence: 0 });
        }
        (self.after, self.after < self.furthest)
    }

    /// Whether events were let go without an outcome since this was last asked; `ever_left` says how many ever were.
    fn left_since(&mut self, ever_left: u64) -> bool {
        std::mem::replace(&mut self.ever_left, ever_left) != ever_left
    }

    /// How long to leave the front alone, where reading it is slow; `None` where it is not, or where every read is slow.
    pub(super) fn rest_of_a_slow_front(&self) -> Option<Duration> {
        let is_slow = self.front_took >= SLOW_FRONT && self.other_took.is_none_or(|other| self.front_took >= 2 * other);
        is_slow.then(|| (SLOW_FRONT_REST_FACTOR * self.front_took).clamp(FRONT_EVERY, SLOW_FRONT_LONGEST_REST))
    }

    /// Notes that nothing is read for now: how long the last read at the front took says nothing about the next one.
    pub(super) fn rests(&mut self) {
        self.front_took = Duration::ZERO;
    }

    /// The next read begins at the front.
    pub(super) fn begin_again(&mut self) {
        self.front_at = None;
    }

    /// Notes the last event of a read, whether there may be more, and when the read was asked for and answered.
    fn read(&mut self, last: Option<Position>, more: bool, (asked_at, answered_at): (Instant, Instant)) {
        let took = answered_at.saturating_duration_since(asked_at);
        if self.after.is_none() {
            (self.front_at, self.front_took, self.other_took) = (Some(answered_at), took, None);
        } else {
            self.other_took = Some(took);
        }
        self.furthest = self.furthest.max(last);
        self.after = last.filter(|_| more);
    }
}

impl Poller {
    /// Reads due events and queues them. Returns how many were queued or settled, too.
    pub(super) async fn read(
        &mut self,
        partitions: Vec<u16>,
        limit: u32,
        max_bytes: usize,
    ) -> Result<(Polled, usize), StoreError> {
        if self.partitions.lease_end() <= Instant::now() || !self.partitions.may_begin() {
            // Nothing could be delivered.
            self.partitions.doubt();
            self.cursor.rests();
            return Ok((Polled::Drained, 0));
        }
        let in_flight = self.in_flight.clone();
        // Until the events that are read have been accepted.
        let reading = in_flight.begin_read();
        if self.order.is_some() && self.cursor.left_since(in_flight.ever_left()) {
            self.forget_lost();
            self.cursor.begin_again();
        }
        let (after, may_be_in_hand) = self.cursor.next(Instant::now());
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
        let taken = read.len();
        let bytes = read.iter().map(|one| size_bytes(&one.event)).sum();
        let full = self.count_taken(taken, bytes, limit, max_bytes);
        self.cursor.read(read.last().map(|last| last.position), full, (asked_at, answered_at));
        let accepted = if self.queue.is_closed() { 0 } else { self.accept_read(read, answered_at).await? };
        drop(reading);
        // Where nothing became of a full batch, because others have locked its rows, say, the next batch would be the same.
        Ok((if full && accepted > 0 { Polled::Full } else { Polled::Drained }, accepted))
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
    async fn accept_read(&self, read: Vec<ReadEvent>, answered_at: Instant) -> Result<usize, StoreError> {
        let batch = self.batches.next();
        let routes_known = self.ask_for_routes(read.iter().map(|one| &one.event)).await;
        let patience = Instant::now() + MARK_PATIENCE;
        let mut taken = Vec::with_capacity(read.len());
        let (mut to_claim, mut holds) = (Vec::new(), Vec::new());
        // Partitions that were taken over from a host that is gone, while the read was on its way: their events are claimed one by
        // one.
        let careful = self.partitions.open().careful;
        for ReadEvent { event: row, partition, was_claimed, .. } in read {
            if careful.contains(&partition) {
                continue;
            }
            // The partition was given back or lost since the read began: the host that holds it now reads the event itself.
            let Some(hold) = self.partitions.hold(partition, row.fence.epoch()) else { continue };
            let (fence, behind, expires_in, deferrals) = (row.fence, row.behind, row.expires_in, row.deferrals);
            let event = match self.without_claim(row, was_claimed, routes_known) {
                Some(event) => event,
                None => {
                    to_claim.push((fence, behind));
                    // As long as the claim is on its way, the partition is not given back.
                    holds.push(hold);
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
            return self.accept_in_order(taken, to_claim).await;
        }
        let queued = self.queue_placed(taken).await;
        let fences: Vec<Fence> = to_claim.into_iter().map(|(fence, _)| fence).collect();
        Ok(queued + self.claim_these(&fences).await?)
    }

    /// The same where order is kept: events that must be claimed have their places among the others.
    async fn accept_in_order(&self, mut taken: Vec<Taken>, to_claim: Vec<(Fence, Option<u64>)>) -> Result<usize, StoreError> {
        // How many events are settled without a call.
        let mut settled = 0;
        if !to_claim.is_empty() {
            let mut behind: HashMap<u64, Option<u64>> =
                to_claim.iter().map(|(fence, behind)| (fence.sequence, *behind)).collect();
            let fences: Vec<Fence> = to_claim.into_iter().map(|(fence, _)| fence).collect();
            let claimed_at = Instant::now();
            match self.store.claim_these(&self.owner, self.lease, &fences).await {
                Ok(mut claimed) => {
                    settled = claimed.len();
                    for claim in &mut claimed {
                        claim.behind = behind.remove(&claim.fence.sequence).flatten();
                    }
                    if let Some(stopped_at) = behind.keys().min().filter(|_| self.is_one_queue()) {
                        // No event behind it may go on, and none of them has begun.
                        let later = |taken: &mut Taken| taken.delivery.event.sequence() > *stopped_at;
                        taken.extract_if(.., later).for_each(|taken| taken.delivery.mark.settled());
                        for claim in claimed.extract_if(.., |claim| claim.fence.sequence > *stopped_at) {
                            self.settler.send_claim(claim.fence, given_back_for(STOPPED_FRONT_REST)).await;
                        }
                        settled = claimed.len();
                    }
                    let accepted = self.accept_claimed(claimed, claimed_at + self.lease, Instant::now()).await;
                    settled -= accepted.len();
                    taken.extend(accepted);
                }
                Err(error) => {
                    self.metrics.claims_failed.increment();
                    // None of them has begun.
                    taken.into_iter().for_each(|taken| taken.delivery.mark.settled());
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

    /// The event of a row that may be delivered as it was read; `None` for a row that must be claimed, so that all hosts know that
    /// it is in hand: whoever had it before may still be at work, or it was let go here without an outcome, or a host of an earlier
    /// version claims whatever is due, or it may have stopped its host, or it is settled without a call.
    fn without_claim(&self, row: Claimed, was_claimed: bool, routes_known: bool) -> Option<Event> {
        let is_left = self.order.is_some() && row.event.as_ref().is_ok_and(|event| self.in_flight.is_left(&event.id()));
        // The claim would be one more.
        if was_claimed
            || is_left
            || self.partitions.is_by_row()
            || stops_hosts(row.claims.saturating_add(1), row.starts)
            || row.due != Due::Now
        {
            return None;
        }
        let event = row.event.ok()?;
        (routes_known || !self.listeners.gives_up_any(std::iter::once(event.route()))).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    const SECOND: Duration = Duration::from_secs(1);
    const QUICK: Duration = Duration::from_millis(5);

    /// A cursor, and the time by its reads: each takes so long.
    struct Reads {
        cursor: Cursor,
        now: Instant,
        takes: Duration,
    }

    impl Reads {
        fn new() -> Self {
            Self { cursor: Cursor::default(), now: Instant::now(), takes: QUICK }
        }

        /// Where a read begins that ends at `last`, and whether events in hand may stand behind that.
        fn read(&mut self, last: Option<Position>, more: bool) -> (Option<Position>, bool) {
            let begins = self.cursor.next(self.now);
            let asked_at = self.now;
            self.now += self.takes;
            self.cursor.read(last, more, (asked_at, self.now));
            begins
        }
    }

    fn position(number: u64) -> Option<Position> {
        Some(Position { due_at: Timestamp::from_micros(60_000_000), sequence: number })
    }

    /// Where a read begins that may find events that were committed late.
    fn before() -> Option<Position> {
        Some(Position { due_at: Timestamp::from_micros(60_000_000).minus(LATE_COMMITS_WITHIN), sequence: 0 })
    }

    #[test]
    fn it_goes_on_behind_a_full_read_and_back_to_the_front_after_a_short_one() {
        let mut reads = Reads::new();
        assert_eq!(reads.read(position(5), true), (None, false), "nothing was ever read");
        assert_eq!(reads.read(position(7), false), (position(5), false), "nothing in hand stands behind the last");
        assert_eq!(reads.read(None, false), (None, true));
        assert_eq!(reads.read(None, false), (None, true));
    }

    #[test]
    fn it_returns_to_the_front_once_a_second_and_then_meets_what_is_in_hand() {
        let mut reads = Reads::new();
        assert_eq!(reads.read(position(9), true), (None, false));
        reads.now += SECOND / 2;
        assert_eq!(reads.read(position(20), true), (position(9), false));
        reads.now += SECOND / 2;
        assert_eq!(reads.read(position(3), true), (None, true), "a second after the last time");
        assert_eq!(reads.read(position(21), true), (position(3), true), "between here and the furthest some are in hand");
        assert_eq!(reads.read(None, false), (position(21), false));
    }

    #[test]
    fn a_front_that_is_slow_to_read_is_read_once_a_second_and_late_commits_in_between() {
        let mut reads = Reads { takes: SLOW_FRONT, ..Reads::new() };
        assert_eq!(reads.read(position(9), false), (None, false));
        reads.takes = QUICK;
        assert_eq!(reads.read(None, false), (before(), true), "what was committed late");
        reads.now += SECOND / 2;
        assert_eq!(reads.read(position(9), true), (before(), true));
        assert_eq!(reads.read(None, false), (position(9), false));
        reads.now += SECOND / 2;
        assert_eq!(reads.read(None, false), (None, true), "a second after the last time");
        assert_eq!(reads.read(None, false), (None, true), "it is quick again");

        reads.takes = SLOW_FRONT;
        assert_eq!(reads.read(None, false), (None, true));
        reads.cursor.begin_again();
        assert_eq!(reads.read(None, false), (None, true), "something is due again that was due before");
    }

    #[test]
    fn a_front_that_takes_seconds_is_not_all_that_is_ever_read() {
        let mut reads = Reads { takes: 2 * SECOND, ..Reads::new() };
        assert_eq!(reads.read(position(9), true), (None, false));
        reads.takes = QUICK;
        assert_eq!(reads.read(position(9), true), (position(9), false));
        reads.now += 4 * SECOND;
        assert_eq!(reads.read(position(9), true), (position(9), false));
        reads.now += SECOND;
        assert_eq!(reads.read(position(9), true), (None, true), "at the latest");
    }

    #[test]
    fn where_every_read_takes_long_the_front_is_not_slow() {
        let mut reads = Reads { takes: 2 * SLOW_FRONT, ..Reads::new() };
        assert_eq!(reads.read(position(9), false), (None, false));
        assert_eq!(reads.read(None, false), (before(), true), "one read elsewhere shows it");
        assert_eq!(reads.read(None, false), (None, true));
    }
}
