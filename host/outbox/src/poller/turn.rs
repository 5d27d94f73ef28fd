//! One turn of the poller.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::reader::Reader;
use super::{Begins, Polled, Poller, STOPPED_FRONT_REST};
use crate::order::LOOK_AGAIN;
use crate::partition::{Careful, Open};
use crate::queue::Room;
use crate::store::StoreError;

/// The shortest rest after a turn that took no event although one is due: other hosts hold it, or are about to.
const NONE_TAKEN_REST: Duration = Duration::from_millis(100);

/// How events may be taken.
enum Way {
    /// Not at all: other hosts hold the partitions.
    Closed,
    /// By reading the abandoned partitions and claiming each event: one of these events may have stopped the last owner.
    Carefully { careful: Careful, others: Vec<u16> },
    /// By reading these partitions.
    Read(Vec<u16>),
}

impl Poller {
    /// Unparks events that have a listener now, unblocks events, takes due events and queues them.
    pub(super) async fn turn(&mut self, begins: Begins, changes: &mut watch::Receiver<u64>) -> Result<Polled, StoreError> {
        if changes.has_changed().unwrap_or(false) {
            changes.mark_unchanged();
            self.unparking.note_change();
        }
        let unparked = if self.unparks(begins) { Some(self.unparking.step(&mut self.reader).await) } else { None };
        let unblocked = if self.chores.unblock.may_run() { Some(self.unblock(begins).await) } else { None };
        self.reader.may_claim = self.chores.claim.may_run();
        self.reader.schedule.cursor.note_claims(self.chores.claim.is_failing(), self.reader.may_claim);
        let taken = self.take(begins).await;
        let claims = self.reader.claims.take().or_else(|| self.reader.may_claim.then_some(Ok(false)));
        let cannot_claim = matches!(&claims, Some(Err(error)) if !error.is_pool_exhausted());
        self.chores.claim.note(claims, &self.reader.intake);
        // A failure to unpark or unblock events does not delay events that are due.
        let (turn, taken) = match taken {
            // Without open partitions nothing was read.
            Ok((turn, taken)) if self.reader.intake.partitions.is_reading() => {
                if taken > 0 || !self.chores.claim.is_failing() {
                    self.reads.beat();
                } else if cannot_claim {
                    // The events that are due here need a claim, which another host may be able to make.
                    self.reads.failed();
                }
                (turn, taken)
            }
            taken => taken.inspect_err(|error| self.note_failed_read(error))?,
        };
        // Not noted if no event can be taken: then all of them fail for the same reason, which is logged once.
        self.chores.unpark.note(unparked, &self.reader.intake);
        self.chores.unblock.note(unblocked, &self.reader.intake);
        if let Some(rest) = self.unparking.next_retry() {
            self.reader.intake.wake.within(rest);
        }
        if turn == Polled::Drained && self.unparking.has_more() && !self.chores.unpark.is_failing() {
            return Ok(Polled::Full);
        }
        // A host without open partitions, such as a standby, waits for no event: the query would walk over all that is due. It looks
        // again when partitions are opened.
        if turn == Polled::Drained
            && self.reader.intake.partitions.is_reading()
            && let Some(due) = self.next_due(taken, begins).await.inspect_err(|error| self.note_failed_read(error))?
        {
            // Repeated reads would find only events that other hosts hold or are about to hold.
            let least = if self.reader.intake.is_one_queue() { STOPPED_FRONT_REST } else { NONE_TAKEN_REST };
            self.reader.intake.wake.within(if taken == 0 { due.max(least) } else { due });
        }
        Ok(turn)
    }

    /// Notes a read that failed, unless no connection of the pool became free: such a read only took long. If no read succeeds for two
    /// leases, the heartbeat counts that as a failure.
    fn note_failed_read(&self, error: &StoreError) {
        if !error.is_pool_exhausted() {
            self.reads.failed();
        }
    }

    /// Whether this turn unparks events.
    fn unparks(&self, begins: Begins) -> bool {
        let (chore, interval) = (&self.chores.unpark, self.reader.schedule.interval());
        chore.may_run() && (begins == Begins::Woken || chore.is_failing() || self.unparking.is_due(interval))
    }

    /// Unblocks events whose blocker is resolved. Returns whether there was capacity for some.
    async fn unblock(&mut self, begins: Begins) -> Result<bool, StoreError> {
        let intake = &self.reader.intake;
        if let Some(order) = intake.order.as_ref().filter(|order| !order.is_one_for_all()) {
            let room = self.reader.room().events;
            if room == 0 {
                return Ok(false);
            }
            let (unblocked, ended) = order.unblock(&*intake.store, &intake.metrics, begins != Begins::Again, room).await;
            if let Some(rest) = unblocked.retry_in {
                intake.wake.within(rest);
            }
            if unblocked.more {
                intake.wake.within(LOOK_AGAIN);
            }
            if unblocked.some {
                // These events have been due for long, so their positions are before the cursor.
                self.reader.schedule.cursor.begin_again();
            }
            return ended.map(|()| true);
        }
        if let Some(soon) = self.sweep.step(&*intake.store, &intake.metrics).await? {
            intake.wake.within(soon);
        }
        Ok(true)
    }

    /// Takes due events and queues them. Also returns how many it took.
    async fn take(&mut self, begins: Begins) -> Result<(Polled, usize), StoreError> {
        let reader = &mut self.reader;
        if reader.intake.note_busy_listeners() {
            reader.schedule.cursor.begin_again();
        }
        let accepted = reader.accept_front().await?;
        if accepted > 0 {
            // The other reads follow in the next turn, which begins at once.
            return Ok((Polled::Full, accepted));
        }
        // First, because it frees capacity.
        reader.intake.give_back_leaving();
        let Room { events: room, bytes: max_bytes } = reader.room_to_read();
        if room == 0 {
            self.chores.claim_dropped.note(Some(Ok(false)), &self.reader.intake);
            return Ok((Polled::NoRoom, 0));
        }
        let claims_dropped = reader.intake.order.is_none() && self.chores.claim_dropped.may_run();
        let dropped = if claims_dropped { Some(reader.intake.claim_dropped().await.map(|()| true)) } else { None };
        let limit = reader.schedule.limit(begins != Begins::Again, room);
        let taken = self.take_by(self.way(), limit, max_bytes).await?;
        self.chores.claim_dropped.note(dropped, &self.reader.intake);
        Ok(taken)
    }

    /// Takes due events and queues them. Also returns how many it took.
    async fn take_by(&mut self, way: Way, limit: u32, max_bytes: usize) -> Result<(Polled, usize), StoreError> {
        if !matches!(&way, Way::Carefully { others, .. } if !others.is_empty()) {
            // No partition is read carefully together with others now.
            self.chores.read_carefully.note(Some(Ok(false)), &self.reader.intake);
        }
        match way {
            Way::Closed => {
                self.reader.schedule.cursor.rests();
                Ok((Polled::Drained, 0))
            }
            Way::Carefully { .. } if !self.reader.may_deliver() => Ok((Polled::Drained, 0)),
            Way::Carefully { careful, others } if others.is_empty() || self.reader.intake.is_one_queue() => {
                self.reader.read_carefully(&careful, limit, max_bytes).await
            }
            Way::Carefully { careful, others } => {
                let may_read = self.chores.read_carefully.may_run();
                let read = if may_read { Some(self.reader.read_carefully(&careful, limit, max_bytes).await) } else { None };
                if let Some(Ok((Polled::Full, accepted @ 1..))) = read {
                    self.chores.read_carefully.note(Some(Ok(true)), &self.reader.intake);
                    return Ok((Polled::Full, accepted));
                }
                let claimed = read.as_ref().and_then(|read| read.as_ref().ok()).map_or(0, |(_, accepted)| *accepted);
                let Room { events: room, bytes: max_bytes } = self.reader.room_to_read();
                if room == 0 {
                    self.chores.read_carefully.note(read.map(|read| read.map(|_| true)), &self.reader.intake);
                    return Ok((Polled::NoRoom, claimed));
                }
                let limit = limit.min(u32::try_from(room).unwrap_or(u32::MAX));
                // Rows of the abandoned partitions may be locked or refused. The other partitions do not wait for these rows.
                let (polled, accepted) = self.reader.read(others, limit, max_bytes).await?;
                let may_be_more = matches!(read, Some(Ok((Polled::Full, _))));
                self.chores.read_carefully.note(read.map(|read| read.map(|_| true)), &self.reader.intake);
                Ok((if may_be_more { Polled::Full } else { polled }, claimed + accepted))
            }
            Way::Read(partitions) => self.reader.read(partitions, limit, max_bytes).await,
        }
    }

    /// How events may be taken now.
    fn way(&self) -> Way {
        let intake = &self.reader.intake;
        let Open { mut all, careful } = intake.partitions.open();
        if intake.is_one_queue() && !intake.is_front_ours() {
            return Way::Closed;
        }
        match (all.is_empty(), careful.is_empty()) {
            (true, _) => Way::Closed,
            (false, true) => Way::Read(all),
            (false, false) => {
                all.retain(|number| !careful.contains(*number));
                Way::Carefully { careful, others: all }
            }
        }
    }

    /// How long until the next event may be taken, after a turn that took this many; `None` if no event waits.
    async fn next_due(&mut self, taken: usize, begins: Begins) -> Result<Option<Duration>, StoreError> {
        let now = Instant::now();
        let slow_front_rest = self.reader.schedule.cursor.rest_of_a_slow_front();
        if slow_front_rest.is_some() && self.reader.reads_front_beside() {
            return Ok(self.reader.next_due_beside(now));
        }
        let Reader { intake, schedule, .. } = &mut self.reader;
        let known_for = match slow_front_rest {
            Some(rest) => {
                intake.wake.within(rest);
                // A query for the next due event would scan the same rows again, while other events wait.
                rest
            }
            None if taken == 0 && begins == Begins::AfterTime => schedule.due_known_for(),
            None => Duration::ZERO,
        };
        if let Some(due) = schedule.known_due(now, known_for) {
            return Ok(due);
        }
        let due = intake.store.next_to_read(&intake.owner, &intake.not_to_read(), intake.busy.routes()).await?;
        schedule.note_due(Instant::now(), due);
        // An event is due and was not read: perhaps this host no longer holds its partition. In the one queue of all events, a due event
        // may wait behind the front for any time.
        if taken == 0 && due.is_some_and(|due| due.is_zero()) && !intake.is_one_queue() {
            intake.partitions.doubt();
        }
        Ok(due)
    }
}
