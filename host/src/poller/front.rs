//! A slow front of the table, read beside the other reads: no event waits until a long read is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cursor::Ended;
use super::read::{bytes_of, is_full};
use super::{BATCH_BYTES, LOOK_FOR_ROOM_EVERY, Poller};
use crate::queue::{Reading, Room};
use crate::store::{ReadEvent, ReadRequest, Store, StoreError};

/// The part of the free room that such a read may fill: the other reads have the rest, so that a queue that is half empty always has
/// room for them.
const PART: usize = 4;

/// The read that is under way at a slow front.
#[derive(Debug, Default)]
pub(crate) struct FrontRead {
    task: JoinSet<Result<Answer, StoreError>>,
    answer: Option<Result<Answer, StoreError>>,
    /// What it was asked for; `None` where none is under way.
    asked: Option<Asked>,
}

#[derive(Debug)]
struct Asked {
    limit: u32,
    max_bytes: usize,
    room: Room,
    /// Until what it has brought is accepted.
    reading: Reading,
}

#[derive(Debug)]
struct Answer {
    read: Vec<ReadEvent>,
    asked_at: Instant,
    answered_at: Instant,
    /// How long until the next event is due, and `None` within for none; `None` where there may be more to read at once.
    next: Option<Option<Duration>>,
}

impl FrontRead {
    /// The room that is kept for it.
    pub(super) fn room(&self) -> Room {
        self.asked.as_ref().map_or_else(Room::default, |asked| asked.room)
    }

    fn begin(&mut self, store: Arc<dyn Store>, request: ReadRequest, asked: Asked) {
        self.asked = Some(asked);
        self.task.spawn(async move {
            let asked_at = Instant::now();
            let read = store.read(&request).await?;
            let answered_at = Instant::now();
            let next = if is_full(&read, request.limit, request.max_bytes) {
                None
            } else {
                Some(next_due(&*store, request, &read).await?)
            };
            Ok(Answer { read, asked_at, answered_at, next })
        });
    }

    /// Waits until it is answered; for ever where none is under way.
    pub(super) async fn answered(&mut self) {
        if self.answer.is_none() {
            match self.task.join_next().await {
                Some(answer) => self.answer = Some(of_task(answer)),
                None => std::future::pending().await,
            }
        }
    }

    /// Its answer, if it is there, with what it was asked for.
    fn take(&mut self) -> Option<(Result<Answer, StoreError>, Asked)> {
        let answer = self.answer.take().or_else(|| self.task.try_join_next().map(of_task))?;
        Some((answer, self.asked.take().expect("it was asked for")))
    }
}

/// A panic of the store is one of the poller.
fn of_task<T>(ended: Result<T, tokio::task::JoinError>) -> T {
    match ended {
        Ok(answer) => answer,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// How long until the next event can be read, but for those that were read just now.
async fn next_due(store: &dyn Store, request: ReadRequest, read: &[ReadEvent]) -> Result<Option<Duration>, StoreError> {
    let mut held = request.held;
    held.extend(read.iter().map(|one| one.event.fence.sequence));
    store.next_to_read(&request.owner, &held, &request.busy).await
}

impl Poller {
    /// Whether a slow front is read beside the other reads: not where order is kept, since one read at a time tells what an event waits
    /// for; nor where there is too little room for two.
    pub(super) fn reads_front_beside(&self) -> bool {
        self.order.is_none() && self.queue.holds_cold(PART)
    }

    /// Begins to read the front, if it is slow and due to be read.
    pub(super) fn begin_front_read(&mut self, partitions: &[u16]) {
        let free = self.room();
        let room = Room { events: (free.events / PART).max(1), bytes: free.bytes / PART };
        let is_due = self.front.asked.is_none() && self.cursor.front_is_due(Instant::now());
        if !is_due || free.events < 2 {
            return;
        }
        let reading = self.in_flight.begin_read();
        let limit = self.config.drain_batch_size.min(u32::try_from(room.events).unwrap_or(u32::MAX)).min(self.fitting.most());
        let max_bytes = room.bytes.min(BATCH_BYTES);
        let request = ReadRequest {
            owner: self.owner.clone(),
            partitions: partitions.to_vec(),
            after: self.cursor.front_begins(),
            held: self.not_to_read(),
            busy: self.busy.leave_out(),
            limit,
            max_bytes,
            skip_recent: self.config.skip_recent,
            order: None,
        };
        self.front.begin(self.store.clone(), request, Asked { limit, max_bytes, room, reading });
    }

    /// How long until the next event may be taken, where the reads of the front ask for that: to ask here would take as long as they do.
    /// An event that has become due since then is found by the next read behind the front.
    pub(super) fn next_due_beside(&self, now: Instant) -> Option<Duration> {
        if self.front.asked.is_none() {
            // Where it is due already, there is no room for what it may bring.
            self.wake.within(self.cursor.front_rests(now).max(LOOK_FOR_ROOM_EVERY));
        }
        let (_, next) = self.known_due?;
        Some(next?.saturating_duration_since(now)).filter(|rest| !rest.is_zero())
    }

    /// Queues what a read of the front has brought. Returns how many events were queued; `None` where there is no answer yet.
    pub(super) async fn accept_front(&mut self) -> Result<Option<usize>, StoreError> {
        let Some((answer, asked)) = self.front.take() else { return Ok(None) };
        let Answer { read, asked_at, answered_at, next } = answer.inspect_err(|_| self.metrics.claims_failed.increment())?;
        self.count_taken(read.len(), bytes_of(&read), asked.limit, asked.max_bytes);
        let (last, more) = (read.last().map(|last| last.position), next.is_none());
        self.cursor.front_read(Ended { last, more, asked_at, answered_at });
        if let Some(due) = next {
            self.known_due = Some((answered_at, due.and_then(|due| answered_at.checked_add(due))));
        }
        let accepted = if self.queue.is_closed() { 0 } else { self.accept_read(read, answered_at).await? };
        if accepted == 0 && next.flatten().is_some_and(|due| due.is_zero()) {
            self.partitions.doubt();
        }
        // What was read has been accepted.
        drop(asked.reading);
        self.busy.were_left_out();
        Ok(Some(accepted))
    }
}
