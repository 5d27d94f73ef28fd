//! Which events are in this process's hands, from enqueue until their outcome is stored.

mod mark;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use self::mark::End;
pub(crate) use self::mark::Mark;
use crate::event::{EventId, Fence};
use crate::partition::Hold;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;
/// How often to look whether a mark that is about to go has gone.
const MARK_LOOK_EVERY: Duration = Duration::from_millis(1);

/// Which events are in this process's hands. An event is there once.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    hasher: foldhash::fast::RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// How many rests in memory have ended.
    rests_ended: AtomicU64,
    /// How many reads are on their way.
    reads: AtomicUsize,
    /// The events that were let go meanwhile.
    gone: Mutex<Vec<EventId>>,
    /// The events that were read and dropped without an outcome.
    dropped: Mutex<Vec<Dropped>>,
    /// How many events were ever dropped without an outcome, and who waits for the next.
    ever_dropped: AtomicU64,
    one_dropped: Notify,
}

type Shard = HashMap<EventId, Entry, foldhash::fast::RandomState>;

#[derive(Debug)]
struct Entry {
    fence: Option<Fence>,
    state: State,
    /// Whether it waits in memory for its next attempt.
    rests: bool,
}

#[derive(Debug)]
enum State {
    /// Its row is claimed, or it has no row.
    Claimed {
        /// When the claim ends by this process's own monotonic clock; `None` if the claim was lost before its end.
        end: Option<Instant>,
        /// Keeps the partition until the event has ended or its claim is lost. `None` if the partition does not wait for the event.
        hold: Option<Hold>,
    },
    /// It was read, and belongs to this host as long as its partition does.
    Read(Arc<Hold>),
    /// It is no longer in hand. It was let go while a read was on its way, which may show it as it was before.
    Gone,
    /// It is no longer in hand, and has no outcome: it must be claimed before it is delivered again.
    Dropped,
}

/// An event that was read and dropped without an outcome: how far its listener came is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropped {
    pub(crate) id: EventId,
    pub(crate) fence: Fence,
    /// The partition that it was read of, and the epoch under which it was.
    pub(crate) partition: (u16, u32),
}

/// Says that a read is on its way, as long as it lives.
#[derive(Debug)]
pub(crate) struct Reading(Arc<InFlight>);

impl Entry {
    fn is_in_hand(&self) -> bool {
        matches!(self.state, State::Claimed { .. } | State::Read(_))
    }
}

impl InFlight {
    /// Marks an event whose claim holds for `lease` from now. `None` when it is marked already: somebody has it.
    #[cfg(test)]
    pub(crate) fn mark(self: &Arc<Self>, id: EventId, fence: Option<Fence>, lease: Duration) -> Option<Mark> {
        self.mark_until(id, fence, Instant::now() + lease)
    }

    /// Marks an event whose claim holds until `lease_end`. `None` when it is marked already: somebody has it.
    #[must_use]
    pub(crate) fn mark_until(self: &Arc<Self>, id: EventId, fence: Option<Fence>, lease_end: Instant) -> Option<Mark> {
        self.mark_holding(id, fence, lease_end, &mut None)
    }

    /// As [`mark_until`](Self::mark_until). Takes `hold` if it marks the event.
    fn mark_holding(
        self: &Arc<Self>,
        id: EventId,
        fence: Option<Fence>,
        lease_end: Instant,
        hold: &mut Option<Hold>,
    ) -> Option<Mark> {
        let mut shard = self.shard(&id);
        if shard.get(&id).is_some_and(Entry::is_in_hand) {
            return None;
        }
        let state = State::Claimed { end: Some(lease_end), hold: hold.take() };
        shard.insert(id, Entry { fence, state, rests: false });
        Some(Mark { in_flight: self.clone(), id, fence, hold: None, end: End::Dropped })
    }

    /// Marks an event that was claimed from the table just now. If the mark of an earlier claim has not gone, its outcome is stored:
    /// waits for that until `patience`. `hold` keeps the event's partition; `None` outside the ordered modes.
    pub(crate) async fn mark_claimed(
        self: &Arc<Self>,
        id: EventId,
        fence: Fence,
        lease_end: Instant,
        mut hold: Option<Hold>,
        patience: Instant,
    ) -> Option<Mark> {
        loop {
            if let Some(mark) = self.mark_holding(id, Some(fence), lease_end, &mut hold) {
                return Some(mark);
            }
            let now = Instant::now();
            let is_going = |entry: &Entry| match entry.state {
                State::Claimed { end, .. } => end.is_some_and(|end| end > now),
                State::Read(_) | State::Gone | State::Dropped => true,
            };
            if now >= patience || !self.shard(&id).get(&id).is_none_or(is_going) {
                return None;
            }
            tokio::time::sleep(MARK_LOOK_EVERY).await;
        }
    }

    /// Marks an event that was read just now, as long as `hold` lives. Where an earlier delivery of it is in our hands, its outcome
    /// is stored and its mark is about to go: waits for that until `patience`.
    pub(crate) async fn mark_read(
        self: &Arc<Self>,
        id: EventId,
        fence: Fence,
        hold: Hold,
        patience: Instant,
    ) -> Result<Mark, NotMarked> {
        let hold = Arc::new(hold);
        loop {
            {
                let mut shard = self.shard(&id);
                match shard.get(&id) {
                    // We know the same row, or a later state of it.
                    Some(known) if known.fence.is_some_and(|known| known.claim >= fence.claim) => return Err(NotMarked::Known),
                    Some(known) if known.is_in_hand() => {}
                    _ => {
                        shard.insert(id, Entry { fence: Some(fence), state: State::Read(hold.clone()), rests: false });
                        return Ok(Mark {
                            in_flight: self.clone(),
                            id,
                            fence: Some(fence),
                            hold: Some(hold),
                            end: End::Dropped,
                        });
                    }
                }
            }
            if Instant::now() >= patience {
                return Err(NotMarked::InHand);
            }
            tokio::time::sleep(MARK_LOOK_EVERY).await;
        }
    }

    /// Says that a read begins. Events that are let go until its end may be among those that it shows.
    pub(crate) fn begin_read(self: &Arc<Self>) -> Reading {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Reading(self.clone())
    }

    /// Takes the events that were read and dropped without an outcome. They count as known until they are
    /// [forgotten](Self::forget), so that no read brings them.
    pub(crate) fn take_dropped(&self) -> Vec<Dropped> {
        std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The events that were read and dropped without an outcome, and were not claimed since.
    pub(crate) fn dropped(&self) -> Vec<Dropped> {
        // Not under both locks: who lets a mark go locks the list after the shard.
        let mut dropped = self.take_dropped();
        dropped.retain(|one| self.is_dropped(&one.id));
        self.put_back(dropped.iter().copied());
        dropped
    }

    /// How many events that were read were ever dropped without an outcome.
    pub(crate) fn ever_dropped(&self) -> u64 {
        self.ever_dropped.load(Ordering::SeqCst)
    }

    /// Waits until an event that was read is dropped without an outcome.
    pub(crate) async fn one_dropped(&self) {
        self.one_dropped.notified().await;
    }

    /// Notes an event that was dropped without an outcome.
    fn note_dropped(&self, dropped: Dropped) {
        self.put_back([dropped]);
        self.ever_dropped.fetch_add(1, Ordering::SeqCst);
        self.one_dropped.notify_one();
    }

    /// Puts back events that were [taken](Self::take_dropped) and could not be dealt with.
    pub(crate) fn put_back(&self, dropped: impl IntoIterator<Item = Dropped>) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).extend(dropped);
    }

    /// Forgets an event that was dropped without an outcome.
    pub(crate) fn forget(&self, dropped: &Dropped) {
        let mut shard = self.shard(&dropped.id);
        if shard
            .get(&dropped.id)
            .is_some_and(|entry| matches!(entry.state, State::Dropped) && entry.fence == Some(dropped.fence))
        {
            self.end(&mut shard, dropped.id);
        }
    }

    /// Whether an event is marked.
    #[must_use]
    pub(crate) fn contains(&self, id: &EventId) -> bool {
        self.shard(id).get(id).is_some_and(Entry::is_in_hand)
    }

    /// How many events are marked.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.count(Entry::is_in_hand)
    }

    /// How many events are marked and do not rest.
    pub(crate) fn not_resting(&self) -> usize {
        self.count(|entry| entry.is_in_hand() && !entry.rests)
    }

    fn count(&self, is_counted: impl Fn(&Entry) -> bool) -> usize {
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().filter(|entry| is_counted(entry)).count()
        };
        self.shards.iter().map(count).sum()
    }

    /// How many rests have ended so far. Whoever twice finds no event that does not rest, and this number as it was, knows that
    /// there was none in between either.
    pub(crate) fn rests_ended(&self) -> u64 {
        self.rests_ended.load(Ordering::Relaxed)
    }

    /// Whether none is marked.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The claims that may be renewed: of stored events, not lost.
    #[must_use]
    pub(crate) fn held(&self) -> Vec<(EventId, Fence)> {
        let is_claimed = |entry: &Entry| matches!(entry.state, State::Claimed { end: Some(_), .. });
        self.of(|id, entry| is_claimed(entry).then_some((id, entry.fence?)))
    }

    /// The `seq` of every event that no read needs to bring: those in this process's hands, and those that must be claimed.
    pub(crate) fn known(&self) -> Vec<u64> {
        self.sequences(|entry| !matches!(entry.state, State::Gone))
    }

    /// The `seq` of every event in this process's hands.
    pub(crate) fn in_hand(&self) -> Vec<u64> {
        self.sequences(Entry::is_in_hand)
    }

    fn sequences(&self, is_wanted: impl Fn(&Entry) -> bool) -> Vec<u64> {
        self.of(|_, entry| Some(entry.fence.filter(|_| is_wanted(entry))?.sequence))
    }

    /// Whether what is known of an event is as new as this fence, or newer.
    pub(crate) fn knows(&self, id: &EventId, fence: Fence) -> bool {
        self.shard(id).get(id).is_some_and(|entry| entry.fence.is_some_and(|known| known.claim >= fence.claim))
    }

    /// Whether an event was read and dropped without an outcome.
    pub(crate) fn is_dropped(&self, id: &EventId) -> bool {
        self.shard(id).get(id).is_some_and(|entry| matches!(entry.state, State::Dropped))
    }

    fn of<T>(&self, wanted: impl Fn(EventId, &Entry) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            found.extend(shard.iter().filter_map(|(id, entry)| wanted(*id, entry)));
        }
        found
    }

    /// Notes that a claim was renewed until `lease_end`, or lost (`None`).
    pub(crate) fn renewed(&self, id: EventId, fence: Fence, lease_end: Option<Instant>) {
        if let Some(entry) = self.shard(&id).get_mut(&id).filter(|entry| entry.fence == Some(fence))
            && let State::Claimed { end, hold } = &mut entry.state
        {
            *end = lease_end;
            if lease_end.is_none() {
                *hold = None;
            }
        }
    }

    /// Gives up an event whose listener blocks its thread: once it was claimed, it is delivered again, since nobody knows whether
    /// that listener ever comes back.
    pub(crate) fn give_up(&self, id: &EventId, fence: Fence) {
        let mut shard = self.shard(id);
        // A later delivery of it is not the one that is stuck.
        let Some(entry) = shard.get_mut(id).filter(|entry| entry.fence == Some(fence)) else { return };
        match &entry.state {
            State::Read(hold) => {
                hold.give_up();
                self.note_dropped(Dropped { id: *id, fence, partition: hold.partition() });
                entry.state = State::Dropped;
            }
            // Its claim has not been renewed, and says so to whoever finds it.
            State::Claimed { end, .. } if end.is_none_or(|end| end <= Instant::now()) => self.end(&mut shard, *id),
            _ => {}
        }
    }

    /// Lets a mark go.
    fn let_go(&self, mark: &Mark) {
        let mut shard = self.shard(&mark.id);
        // An event that was given up may be in hand again by now.
        let Some(entry) = shard.get_mut(&mark.id).filter(|entry| entry.fence == mark.fence) else { return };
        match (&mark.hold, mark.fence) {
            (Some(hold), Some(fence)) if mark.end == End::Dropped => {
                if !matches!(entry.state, State::Dropped) {
                    entry.state = State::Dropped;
                    self.note_dropped(Dropped { id: mark.id, fence, partition: hold.partition() });
                }
            }
            _ if mark.end == End::Unchanged => {
                self.end(&mut shard, mark.id);
                // As it is, every read may bring it again; as it was before, none that is on its way.
                if let Some(fence) = shard.get_mut(&mark.id).and_then(|gone| gone.fence.as_mut()) {
                    match fence.claim.checked_sub(1) {
                        Some(before) => fence.claim = before,
                        None => drop(shard.remove(&mark.id)),
                    }
                }
            }
            _ => self.end(&mut shard, mark.id),
        }
    }

    /// Ends what is known of an event; where a read is on its way, at the end of that.
    fn end(&self, shard: &mut Shard, id: EventId) {
        match shard.get_mut(&id) {
            Some(entry) if entry.fence.is_some() && self.reads.load(Ordering::SeqCst) > 0 => {
                entry.state = State::Gone;
                self.gone.lock().unwrap_or_else(PoisonError::into_inner).push(id);
            }
            _ => drop(shard.remove(&id)),
        }
    }

    fn shard(&self, id: &EventId) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(id);
        let index = usize::try_from(hash % SHARDS as u64).expect("below 16");
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why an event that was read is not marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotMarked {
    /// What was read is in hand already, or is older than what is known of it.
    Known,
    /// An earlier delivery of it is in this process's hands still.
    InHand,
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.0.reads.fetch_sub(1, Ordering::SeqCst) > 1 {
            // What was let go may be among what the others show.
            return;
        }
        // Not in the head of the loop, which would keep it locked: who lets a mark go locks it after the shard.
        let gone = std::mem::take(&mut *self.0.gone.lock().unwrap_or_else(PoisonError::into_inner));
        for id in gone {
            let mut shard = self.0.shard(&id);
            if shard.get(&id).is_some_and(|entry| matches!(entry.state, State::Gone)) {
                shard.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
