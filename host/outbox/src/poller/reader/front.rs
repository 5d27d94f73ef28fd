//! Reads a slow front of the table concurrently with the other reads, so that no event waits for the end of a long read.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::{BATCH_BYTES, Claims, Ended, Intake, Reader, bytes_of, read_due};
use crate::metrics::Metrics;
use crate::poller::LOOK_FOR_ROOM_EVERY;
use crate::queue::{Reading, Room};
use crate::store::{ReadEvent, ReadRequest, Store, StoreError};

/// A read of the front may fill one part in this many of the free capacity. The other reads have the rest, so that a queue that is half
/// empty always has capacity for them.
const PARTS: usize = 4;

/// The statement in progress at a slow front. It is a read, or after a short read the query for the next due event, which scans the same
/// rows.
#[derive(Debug, Default)]
pub(crate) struct FrontRead {
    task: JoinSet<Answer>,
    /// When the last statement began.
    began_at: Option<Instant>,
    /// A result that was not handled yet.
    answer: Option<Answer>,
    /// The parameters of the read. `None` while no read is in progress.
    asked: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    limit: u32,
    max_bytes: usize,
    room: Room,
    asked_at: Instant,
    /// Held until the events of the read are accepted.
    reading: Reading,
}

#[derive(Debug)]
enum Answer {
    Read {
        read: Result<(Vec<ReadEvent>, Claims), StoreError>,
        answered_at: Instant,
    },
    /// How long from then until the next event can be read. `Ok(None)` if no event waits.
    NextDue {
        due: Result<Option<Duration>, StoreError>,
        answered_at: Instant,
        /// Whether the previous read returned no event.
        none_read: bool,
    },
}

impl Drop for FrontRead {
    /// A statement is never cancelled, even if its result is no longer needed: a cancelled one would make the connection unusable.
    fn drop(&mut self) {
        self.task.detach_all();
    }
}

impl FrontRead {
    /// The capacity that is reserved for the events of the read.
    pub(super) fn room(&self) -> Room {
        self.asked.as_ref().map_or_else(Room::default, |asked| asked.room)
    }

    fn is_under_way(&self) -> bool {
        self.answer.is_some() || !self.task.is_empty()
    }

    fn begin(&mut self, store: Arc<dyn Store>, metrics: Arc<Metrics>, request: ReadRequest, asked: Asked) {
        self.asked = Some(asked);
        self.began_at = Some(Instant::now());
        self.task.spawn(async move {
            let read = read_due(&*store, &request, Claims::AsNeeded, &metrics).await;
            Answer::Read { read, answered_at: Instant::now() }
        });
    }

    /// How long until the statement in progress hangs. Zero if it hangs; `None` if no statement is in progress.
    fn hangs_in(&self, now: Instant, after: Duration) -> Option<Duration> {
        let began_at = self.began_at.filter(|_| self.is_under_way())?;
        Some((began_at + after).saturating_duration_since(now))
    }

    /// Waits for the result of a statement, or until it hangs. Never returns if no statement is in progress.
    pub(crate) async fn answered(&mut self, hangs_after: Duration) {
        match self.hangs_in(Instant::now(), hangs_after).filter(|rest| !rest.is_zero()) {
            // A timeout is no error: the other reads cover the front from then on.
            Some(rest) => {
                let _ = tokio::time::timeout(rest, self.joined()).await;
            }
            None => self.joined().await,
        }
    }

    async fn joined(&mut self) {
        while self.answer.is_none() {
            match self.task.join_next().await {
                Some(ended) => self.answer = of_task(ended),
                None => std::future::pending().await,
            }
        }
    }

    fn take(&mut self) -> Option<Answer> {
        self.answer.take().or_else(|| self.task.try_join_next().and_then(of_task))
    }
}

/// Passes a panic of the store on to the poller. `None` for a task that was cancelled, for example at the end of the runtime.
fn of_task(ended: Result<Answer, JoinError>) -> Option<Answer> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(answer) => Some(answer),
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(_cancelled)) => None,
    }
}

impl Reader {
    /// Whether a slow front is read concurrently with the other reads. False in the ordered modes: there one read at a time learns which
    /// events an event waits for. False if the queue has too little capacity for two reads, and while the statement at the front hangs.
    pub(crate) fn reads_front_beside(&self) -> bool {
        let hangs_in = self.front.hangs_in(Instant::now(), self.schedule.cursor.front_hangs_after());
        self.intake.order.is_none() && self.intake.queue.holds_cold(PARTS) && hangs_in.is_none_or(|rest| !rest.is_zero())
    }

    /// Begins to read the front if it is slow and due to be read, and capacity is free. Returns whether a read began.
    pub(super) fn begin_front_read(&mut self, partitions: &[u16]) -> bool {
        let free = self.room();
        let is_due = !self.front.is_under_way() && self.schedule.cursor.front_is_due(Instant::now());
        // The front gets the last free slot: if slots become free one by one, the other reads would take each of them.
        let room = Room { events: (free.events / PARTS).max(1), bytes: (free.bytes / PARTS).max(1) };
        if !is_due || free.events == 0 {
            return false;
        }
        let reading = self.intake.in_flight.begin_read();
        let limit = self.schedule.limit(false, room.events);
        let max_bytes = room.bytes.min(BATCH_BYTES);
        let after = self.schedule.cursor.front_begins();
        let request = self.request(partitions.to_vec(), after, limit, max_bytes, true);
        let request = ReadRequest { busy: self.intake.busy.leave_out(), ..request };
        let asked = Asked { limit, max_bytes, room, asked_at: Instant::now(), reading };
        self.front.begin(self.intake.store.clone(), self.intake.metrics.clone(), request, asked);
        true
    }

    /// How long until the next event may be taken, by the last concurrent query: a query here would take as long as a read of the front.
    /// The next read behind the front finds an event that has become due since then.
    pub(crate) fn next_due_beside(&self, now: Instant) -> Option<Duration> {
        if !self.front.is_under_way() {
            // If the front is due already, there is no capacity for the events of a read.
            self.intake.wake.within(self.schedule.cursor.front_rests(now).max(LOOK_FOR_ROOM_EVERY));
        }
        self.schedule.last_known_due(now)
    }

    /// Handles the result of the statement at the front, if there is one. Returns how many events were queued.
    pub(crate) async fn accept_front(&mut self) -> Result<usize, StoreError> {
        match self.front.take() {
            None => Ok(0),
            Some(Answer::Read { read, answered_at }) => self.accept_front_read(read, answered_at).await,
            Some(Answer::NextDue { due, answered_at, none_read }) => {
                // A failure does no harm: the same query follows the next read of the front.
                let Ok(due) = due.inspect_err(|error| self.intake.metrics.db_error(error)) else { return Ok(0) };
                self.schedule.note_due(answered_at, due);
                if none_read && due.is_some_and(|due| due.is_zero()) {
                    self.intake.partitions.doubt();
                }
                Ok(0)
            }
        }
    }

    async fn accept_front_read(
        &mut self,
        read: Result<(Vec<ReadEvent>, Claims), StoreError>,
        answered_at: Instant,
    ) -> Result<usize, StoreError> {
        let Asked { limit, max_bytes, asked_at, reading, .. } = self.front.asked.take().expect("a read was asked for");
        let (read, claims) = match read {
            Ok(read) => read,
            Err(error) => {
                self.schedule.cursor.front_failed(answered_at);
                return Err(error);
            }
        };
        let none_read = read.is_empty();
        let more = self.count_read(read.len(), bytes_of(&read), limit, max_bytes);
        let last = read.last().map(|last| last.position);
        self.schedule.cursor.front_read(Ended { last, more, asked_at, answered_at });
        let accepted = self.intake.accept_read(read, answered_at, claims, self.may_claim).await?;
        drop(reading);
        let accepted = self.note_accepted(accepted);
        self.intake.busy.were_left_out();
        if !more {
            self.ask_when_due(none_read);
        }
        Ok(accepted)
    }

    /// Queries when the next event is due, concurrently with the other reads.
    fn ask_when_due(&mut self, none_read: bool) {
        let Intake { store, owner, busy, .. } = &self.intake;
        let (store, owner, busy) = (store.clone(), owner.clone(), busy.routes().to_vec());
        let held = self.intake.not_to_read();
        self.front.began_at = Some(Instant::now());
        self.front.task.spawn(async move {
            let due = store.next_to_read(&owner, &held, &busy).await;
            Answer::NextDue { due, answered_at: Instant::now(), none_read }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_statement_that_hangs_ends_one_rest() {
        const AFTER: Duration = Duration::from_millis(10);
        const TRIES: u32 = 10;
        let mut front = FrontRead::default();
        assert_eq!(front.hangs_in(Instant::now(), AFTER), None);

        front.task.spawn(std::future::pending());
        let mut is_rest_over = false;
        for _ in 0..TRIES {
            // If this thread pauses here for longer than `AFTER`, the statement hangs already, and the wait has no end.
            front.began_at = Some(Instant::now());
            is_rest_over = tokio::time::timeout(100 * AFTER, front.answered(AFTER)).await.is_ok();
            if is_rest_over {
                break;
            }
        }

        assert!(is_rest_over);
        assert_eq!(front.hangs_in(Instant::now(), AFTER), Some(Duration::ZERO));
        let second = tokio::time::timeout(2 * AFTER, front.answered(AFTER)).await;
        assert!(second.is_err(), "the poller does not turn again and again");
    }
}
