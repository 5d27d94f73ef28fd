//! Reads the due events of this host's partitions, and passes them to the intake.

mod due;
mod front;

use tokio::time::Instant;

use self::due::read_due;
use self::front::FrontRead;
use super::intake::{Accepted, Claims, Intake, bytes_of};
use super::schedule::{Ended, Schedule};
use super::{BATCH_BYTES, Polled};
use crate::partition::{Careful, CarefulRead, Reached};
use crate::queue::Room;
use crate::store::{Position, ReadRequest, StoreError};

/// Reads by the schedule, and passes the events to the intake.
pub(crate) struct Reader {
    pub(super) schedule: Schedule,
    pub(super) intake: Intake,
    /// The read of a slow front, which runs concurrently with the other reads.
    pub(super) front: FrontRead,
    /// Without an order: whether the reads of this turn may claim events. Otherwise they leave the events that need a claim in the table.
    /// Set by each turn before it reads.
    pub(super) may_claim: bool,
    /// How the claims of the reads of this turn ended, and whether there were any. `None` if no read was accepted, in the ordered modes,
    /// and if no event may be claimed. The turn takes it after its reads, even if one failed.
    pub(super) claims: Option<Result<bool, StoreError>>,
}

impl Reader {
    pub(super) fn new(schedule: Schedule, intake: Intake) -> Self {
        Self { schedule, intake, front: FrontRead::default(), may_claim: true, claims: None }
    }

    /// The free capacity for events that wait in the queue or in key queues.
    pub(super) fn room(&self) -> Room {
        self.intake.room(self.front.room())
    }

    /// The free capacity for the events of the next read.
    pub(super) fn room_to_read(&mut self) -> Room {
        let Room { events, bytes } = self.intake.room_to_read(self.front.room());
        Room { events, bytes: bytes.min(BATCH_BYTES) }
    }

    /// Reads due events and queues them. Also returns how many were queued or settled.
    pub(super) async fn read(
        &mut self,
        partitions: Vec<u16>,
        limit: u32,
        max_bytes: usize,
    ) -> Result<(Polled, usize), StoreError> {
        if !self.may_deliver() {
            return Ok((Polled::Drained, 0));
        }
        let in_flight = self.intake.in_flight.clone();
        // Held until the events of this read have been accepted.
        let reading = in_flight.begin_read();
        let is_ordered = self.intake.order.is_some();
        if is_ordered && self.schedule.cursor.dropped_since(in_flight.ever_dropped()) {
            self.intake.forget_lost();
            self.schedule.cursor.begin_again();
        }
        let beside = self.reads_front_beside();
        let (mut limit, mut max_bytes) = (limit, max_bytes);
        if beside && self.begin_front_read(&partitions) {
            // A part of the capacity is reserved for the events of that read.
            let left = self.room();
            if left.events == 0 {
                return Ok((Polled::NoRoom, 0));
            }
            limit = limit.min(u32::try_from(left.events).unwrap_or(u32::MAX));
            max_bytes = max_bytes.min(left.bytes);
        }
        let (after, may_be_in_hand) = self.schedule.cursor.next(Instant::now(), beside);
        // In the ordered modes, the store needs the events in flight to determine which of them each event waits for.
        let request = self.request(partitions, after, limit, max_bytes, may_be_in_hand || is_ordered);
        let request = ReadRequest { busy: self.intake.busy.leave_out(), ..request };
        let asked_at = Instant::now();
        let (read, claims) = read_due(&*self.intake.store, &request, Claims::AsNeeded, &self.intake.metrics).await?;
        let answered_at = Instant::now();
        let full = self.count_read(read.len(), bytes_of(&read), limit, max_bytes);
        self.schedule.cursor.read(Ended { last: read.last().map(|last| last.position), more: full, asked_at, answered_at });
        let accepted = self.intake.accept_read(read, answered_at, claims, self.may_claim).await?;
        drop(reading);
        // While claims fail, the next batch may have events that need no claim.
        let left_unclaimed = accepted.left_unclaimed;
        let accepted = self.note_accepted(accepted);
        // If no event of a full batch was accepted, for example because other transactions have locked the rows, the next batch would be
        // the same.
        let is_full = full && (accepted > 0 || left_unclaimed);
        Ok((if is_full { Polled::Full } else { Polled::Drained }, accepted))
    }

    /// Reads due events of partitions that their last owner did not give back, and claims and queues them. Also returns how many were
    /// queued or settled.
    pub(super) async fn read_carefully(
        &mut self,
        careful: &Careful,
        limit: u32,
        max_bytes: usize,
    ) -> Result<(Polled, usize), StoreError> {
        let in_flight = self.intake.in_flight.clone();
        // Held until the events of this read have been accepted.
        let reading = in_flight.begin_read();
        let request = self.request(careful.numbers(), careful.after(), limit, max_bytes, true);
        // A busy listener may have any number of events in the table, in front of the event that stopped the last owner.
        let request = ReadRequest { busy: self.intake.busy.leave_out(), ..request };
        let (read, claims) = read_due(&*self.intake.store, &request, Claims::All, &self.intake.metrics).await?;
        let answered_at = Instant::now();
        let full = self.count_read(read.len(), bytes_of(&read), limit, max_bytes);
        let last = read.last().map(|last| last.position);
        let accepted = match self.intake.accept_read(read, answered_at, claims, true).await? {
            Accepted { claims: Some(Err(error)), .. } => return Err(error),
            accepted => self.note_accepted(accepted),
        };
        drop(reading);
        // In one queue, the front is read again until it can be claimed. No event may overtake it.
        let is_front_locked = accepted == 0 && self.intake.is_one_queue();
        let reached = match last.filter(|_| full || is_front_locked) {
            Some(last) => Reached::Event(last),
            None if request.busy.is_empty() => Reached::End,
            None => Reached::EndWithoutBusy,
        };
        let waiting = self.intake.queue.cold_waiting_for_slots();
        self.intake.partitions.note_careful_read(careful, CarefulRead { claimed: accepted, waiting, reached });
        let rests = is_front_locked || reached == Reached::EndWithoutBusy;
        Ok((if rests { Polled::Drained } else { Polled::Full }, accepted))
    }

    /// Notes how the claims of a read ended. Returns how many events were accepted.
    fn note_accepted(&mut self, Accepted { count, claims, .. }: Accepted) -> usize {
        self.claims = of_both(self.claims.take(), claims);
        count
    }

    /// Whether this host could deliver an event that it reads now: its lease holds, and its session is confirmed.
    pub(super) fn may_deliver(&mut self) -> bool {
        let partitions = &self.intake.partitions;
        let may = partitions.lease_end() > Instant::now() && partitions.session().may_begin();
        if !may {
            partitions.doubt();
            self.schedule.cursor.rests();
        }
        may
    }

    /// A request without busy listeners. `names_held`: whether the request lists the events that the read can skip.
    fn request(
        &self,
        partitions: Vec<u16>,
        after: Option<Position>,
        limit: u32,
        max_bytes: usize,
        names_held: bool,
    ) -> ReadRequest {
        // The key queues first: they record resolved events from here on. In the reverse order, an event that is resolved in between would
        // be in neither list.
        let order = self.intake.order.as_ref().map(|order| order.reading());
        let held = if names_held { self.intake.not_to_read() } else { Vec::new() };
        let (owner, skip_recent) = (self.intake.owner.clone(), self.schedule.skip_recent());
        ReadRequest { owner, partitions, after, held, busy: Vec::new(), limit, max_bytes, skip_recent, order }
    }

    /// Counts the events of a read. Returns whether there may be more. A batch that reached the byte limit counts as full, too.
    fn count_read(&mut self, events: usize, bytes: usize, limit: u32, max_bytes: usize) -> bool {
        let full = events >= usize::try_from(limit).unwrap_or(usize::MAX) || bytes >= max_bytes;
        self.schedule.brought(events, limit, bytes >= BATCH_BYTES);
        let metrics = &self.intake.metrics;
        match (full, events) {
            (true, _) => metrics.reads_full.increment(),
            (false, 0) => metrics.reads_empty.increment(),
            (false, _) => metrics.reads_partial.increment(),
        }
        full
    }
}

/// How the claims of two reads ended, and whether there were any.
fn of_both(
    first: Option<Result<bool, StoreError>>,
    second: Option<Result<bool, StoreError>>,
) -> Option<Result<bool, StoreError>> {
    match (first, second) {
        (Some(Ok(first)), Some(Ok(second))) => Some(Ok(first || second)),
        (Some(Err(error)), _) | (_, Some(Err(error))) => Some(Err(error)),
        (first, second) => first.or(second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_one_turn_have_succeeded_if_one_was_sent_and_none_failed() {
        let failed = || Err(StoreError::Failed { action: "test", source: sqlx::Error::RowNotFound });
        for (first, second) in [(true, false), (false, true), (true, true)] {
            assert!(matches!(of_both(Some(Ok(first)), Some(Ok(second))), Some(Ok(true))), "{first}, {second}");
            assert!(matches!(of_both(Some(Ok(first)), Some(failed())), Some(Err(_))), "{first}");
            assert!(matches!(of_both(Some(failed()), Some(Ok(second))), Some(Err(_))), "{second}");
        }
        assert!(matches!(of_both(Some(Ok(false)), Some(Ok(false))), Some(Ok(false))));
        assert!(matches!(of_both(Some(Ok(true)), None), Some(Ok(true))));
        assert!(matches!(of_both(None, Some(Ok(true))), Some(Ok(true))));
        assert!(of_both(None, None).is_none());
    }
}
