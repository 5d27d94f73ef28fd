//! The events in flight in this process, from enqueue until their outcome is stored.

mod last_outcomes;
mod mark;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use self::last_outcomes::LastOutcomes;
use self::mark::End;
pub(crate) use self::mark::Mark;
use crate::event::{EventId, Fence};
use crate::partition::Hold;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 16;
/// How often to check whether a mark that is about to be released is released.
const MARK_LOOK_EVERY: Duration = Duration::from_millis(1);

/// The events in flight in this process, each at most once.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    hasher: foldhash::fast::RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// How many waits in memory between two attempts have ended.
    rests_ended: AtomicU64,
    /// How many reads are in progress.
    reads: AtomicUsize,
    /// The events whose marks were released during these reads.
    gone: Mutex<Vec<EventId>>,
    /// The events that were read and dropped without an outcome.
    dropped: Mutex<Vec<Dropped>>,
    /// How many events were ever dropped without an outcome, and the notification of the next one.
    ever_dropped: AtomicU64,
    one_dropped: Notify,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<EventId, Entry, foldhash::fast::RandomState>,
    last_outcomes: LastOutcomes,
}

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
    /// It is no longer in flight. Its mark was released during a read, which may still return the row as it was before.
    Gone,
    /// It is no longer in flight and has no outcome: it must be claimed before its next delivery.
    Dropped,
}

/// An event that was read and dropped without an outcome: the progress of its listener is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dropped {
    pub(crate) id: EventId,
    pub(crate) fence: Fence,
    /// The partition that it was read from, and the epoch of that read.
    pub(crate) partition: (u16, u32),
}

/// Marks a read as in progress until dropped.
#[derive(Debug)]
pub(crate) struct Reading(Arc<InFlight>);

impl Entry {
    fn is_in_hand(&self) -> bool {
        matches!(self.state, State::Claimed { .. } | State::Read(_))
    }

    /// Whether it is as new as a row that was read with this fence, or newer. The epoch of a claimed event does not matter: another host
    /// begins no call for it without a claim of its own, which changes `claim_seq`. A hot event has no epoch.
    fn is_as_new_as(&self, read: Fence) -> bool {
        self.fence.is_some_and(|known| match self.state {
            State::Claimed { .. } => known.claim_seq() >= read.claim_seq(),
            State::Read(_) | State::Gone | State::Dropped => known.claim >= read.claim,
        })
    }
}

impl InFlight {
    /// Marks an event whose claim holds for `lease` from now. `None` if it is in flight already.
    #[cfg(test)]
    pub(crate) fn mark(self: &Arc<Self>, id: EventId, fence: Option<Fence>, lease: Duration) -> Option<Mark> {
        self.mark_until(id, fence, Instant::now() + lease)
    }

    /// Marks an event whose claim holds until `lease_end`. `None` if it is in flight already.
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
        if shard.entries.get(&id).is_some_and(Entry::is_in_hand) {
            return None;
        }
        let state = State::Claimed { end: Some(lease_end), hold: hold.take() };
        shard.entries.insert(id, Entry { fence, state, rests: false });
        Some(Mark { in_flight: self.clone(), id, fence, hold: None, is_doubtful: false, end: End::Dropped })
    }

    /// Marks an event that was claimed just now. If the mark of an earlier claim is not released yet, the outcome of that claim is stored:
    /// waits for the release until `patience`. `hold` keeps the event's partition; `None` outside the ordered modes.
    pub(crate) async fn mark_claimed(
        self: &Arc<Self>,
        id: EventId,
        fence: Fence,
        lease_end: Instant,
        mut hold: Option<Hold>,
        patience: Instant,
    ) -> Option<Mark> {
        loop {
            if let Some(mut mark) = self.mark_holding(id, Some(fence), lease_end, &mut hold) {
                // The claim has added one.
                let claim_seq = fence.claim_seq().saturating_sub(1);
                mark.is_doubtful = self.shard(&id).last_outcomes.contradict(fence.sequence, claim_seq);
                return Some(mark);
            }
            let now = Instant::now();
            let is_going = |entry: &Entry| match entry.state {
                State::Claimed { end, .. } => end.is_some_and(|end| end > now),
                State::Read(_) | State::Gone | State::Dropped => true,
            };
            if now >= patience || !self.shard(&id).entries.get(&id).is_none_or(is_going) {
                return None;
            }
            tokio::time::sleep(MARK_LOOK_EVERY).await;
        }
    }

    /// Marks an event that was read just now, under `hold`. If an earlier delivery of it is in flight, its outcome is stored and its mark
    /// is about to be released: waits for the release until `patience`.
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
                match shard.entries.get(&id) {
                    // The entry has the same state of the row, or a later one.
                    Some(known) if known.fence.is_some_and(|known| known.claim >= fence.claim) => return Err(NotMarked::Known),
                    Some(known) if known.is_in_hand() => {}
                    _ => {
                        let is_doubtful = shard.last_outcomes.contradict(fence.sequence, fence.claim_seq());
                        let state = State::Read(hold.clone());
                        shard.entries.insert(id, Entry { fence: Some(fence), state, rests: false });
                        return Ok(Mark {
                            in_flight: self.clone(),
                            id,
                            fence: Some(fence),
                            hold: Some(hold),
                            is_doubtful,
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

    /// Notes that a read begins. It may return events whose marks are released before it ends.
    pub(crate) fn begin_read(self: &Arc<Self>) -> Reading {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Reading(self.clone())
    }

    /// Takes the events that were read and dropped without an outcome. They count as known until they are [forgotten](Self::forget), so
    /// that no read returns them.
    pub(crate) fn take_dropped(&self) -> Vec<Dropped> {
        std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The events that were read and dropped without an outcome, and were not claimed since.
    pub(crate) fn dropped(&self) -> Vec<Dropped> {
        // Not under both locks: `let_go` locks the list after the shard.
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

    /// Puts back events that were [taken](Self::take_dropped) and could not be handled.
    pub(crate) fn put_back(&self, dropped: impl IntoIterator<Item = Dropped>) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).extend(dropped);
    }

    /// Forgets an event that was dropped without an outcome.
    pub(crate) fn forget(&self, dropped: &Dropped) {
        let mut shard = self.shard(&dropped.id);
        if shard
            .entries
            .get(&dropped.id)
            .is_some_and(|entry| matches!(entry.state, State::Dropped) && entry.fence == Some(dropped.fence))
        {
            self.end(&mut shard, dropped.id);
        }
    }

    /// Whether an event is marked.
    #[must_use]
    pub(crate) fn contains(&self, id: &EventId) -> bool {
        self.shard(id).entries.get(id).is_some_and(Entry::is_in_hand)
    }

    /// How many events are marked.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.count(Entry::is_in_hand)
    }

    /// How many events are marked and do not wait in memory for their next attempt.
    pub(crate) fn not_resting(&self) -> usize {
        self.count(|entry| entry.is_in_hand() && !entry.rests)
    }

    fn count(&self, is_counted: impl Fn(&Entry) -> bool) -> usize {
        let count = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.entries.values().filter(|entry| is_counted(entry)).count()
        };
        self.shards.iter().map(count).sum()
    }

    /// How many waits in memory have ended so far. If this number is the same at two checks that find only waiting events, no event was
    /// active in between either.
    pub(crate) fn rests_ended(&self) -> u64 {
        self.rests_ended.load(Ordering::Relaxed)
    }

    /// Whether no event is marked.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The claims that may be renewed: those of stored events that are not lost.
    #[must_use]
    pub(crate) fn held(&self) -> Vec<(EventId, Fence)> {
        let is_claimed = |entry: &Entry| matches!(entry.state, State::Claimed { end: Some(_), .. });
        self.of(|id, entry| is_claimed(entry).then_some((id, entry.fence?)))
    }

    /// The `seq` of every event that no read needs to return: those in flight, and those that must be claimed.
    pub(crate) fn known(&self) -> Vec<u64> {
        self.sequences(|entry| !matches!(entry.state, State::Gone))
    }

    /// The `seq` of every event in flight.
    pub(crate) fn in_hand(&self) -> Vec<u64> {
        self.sequences(Entry::is_in_hand)
    }

    fn sequences(&self, is_wanted: impl Fn(&Entry) -> bool) -> Vec<u64> {
        self.of(|_, entry| Some(entry.fence.filter(|_| is_wanted(entry))?.sequence))
    }

    /// Whether the entry of an event is as new as a row that was read with this fence, or newer.
    pub(crate) fn knows(&self, id: &EventId, fence: Fence) -> bool {
        self.shard(id).entries.get(id).is_some_and(|entry| entry.is_as_new_as(fence))
    }

    /// Whether an event was read and dropped without an outcome.
    pub(crate) fn is_dropped(&self, id: &EventId) -> bool {
        self.shard(id).entries.get(id).is_some_and(|entry| matches!(entry.state, State::Dropped))
    }

    fn of<T>(&self, wanted: impl Fn(EventId, &Entry) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            found.extend(shard.entries.iter().filter_map(|(id, entry)| wanted(*id, entry)));
        }
        found
    }

    /// Notes that a claim was renewed until `lease_end`, or lost (`None`).
    pub(crate) fn renewed(&self, id: EventId, fence: Fence, lease_end: Option<Instant>) {
        if let Some(entry) = self.shard(&id).entries.get_mut(&id).filter(|entry| entry.fence == Some(fence))
            && let State::Claimed { end, hold } = &mut entry.state
        {
            *end = lease_end;
            if lease_end.is_none() {
                *hold = None;
            }
        }
    }

    /// Gives up an event whose listener blocks its thread. The event is claimed and delivered again, because that listener may never
    /// return.
    pub(crate) fn give_up(&self, id: &EventId, fence: Fence) {
        let mut shard = self.shard(id);
        // A later delivery of the event is not the stuck one.
        let Some(entry) = shard.entries.get_mut(id).filter(|entry| entry.fence == Some(fence)) else { return };
        match &entry.state {
            State::Read(hold) => {
                hold.give_up();
                self.note_dropped(Dropped { id: *id, fence, partition: hold.partition() });
                entry.state = State::Dropped;
            }
            // The claim was not renewed and has ended: another host may claim the event.
            State::Claimed { end, .. } if end.is_none_or(|end| end <= Instant::now()) => self.end(&mut shard, *id),
            _ => {}
        }
    }

    /// Releases a mark.
    fn let_go(&self, mark: &Mark) {
        let mut shard = self.shard(&mark.id);
        // An event that was given up may be in flight again by now.
        let Some(entry) = shard.entries.get_mut(&mark.id).filter(|entry| entry.fence == mark.fence) else { return };
        match (&mark.hold, mark.fence) {
            (Some(hold), Some(fence)) if mark.end == End::Dropped => {
                if !matches!(entry.state, State::Dropped) {
                    entry.state = State::Dropped;
                    self.note_dropped(Dropped { id: mark.id, fence, partition: hold.partition() });
                }
            }
            _ if mark.end == End::Unchanged => {
                self.end(&mut shard, mark.id);
                // Any read may return the row in its present state, but no read in progress may return an earlier one.
                if let Some(fence) = shard.entries.get_mut(&mark.id).and_then(|gone| gone.fence.as_mut()) {
                    match fence.claim.checked_sub(1) {
                        Some(before) => fence.claim = before,
                        None => drop(shard.entries.remove(&mark.id)),
                    }
                }
            }
            _ => {
                if let (End::Stored(claim_seq), Some(fence)) = (mark.end, mark.fence) {
                    shard.last_outcomes.note(fence.sequence, claim_seq);
                }
                self.end(&mut shard, mark.id);
            }
        }
    }

    /// Removes the entry of an event; during a read, when the read ends.
    fn end(&self, shard: &mut Shard, id: EventId) {
        match shard.entries.get_mut(&id) {
            Some(entry) if entry.fence.is_some() && self.reads.load(Ordering::SeqCst) > 0 => {
                entry.state = State::Gone;
                self.gone.lock().unwrap_or_else(PoisonError::into_inner).push(id);
            }
            _ => drop(shard.entries.remove(&id)),
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
    /// The row that was read is in flight already, or is older than the entry.
    Known,
    /// An earlier delivery of it is still in flight.
    InHand,
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.0.reads.fetch_sub(1, Ordering::SeqCst) > 1 {
            // The other reads may still return these events.
            return;
        }
        // Not in the head of the loop, which would keep the list locked: `let_go` locks it after the shard.
        let gone = std::mem::take(&mut *self.0.gone.lock().unwrap_or_else(PoisonError::into_inner));
        for id in gone {
            let mut shard = self.0.shard(&id);
            if shard.entries.get(&id).is_some_and(|entry| matches!(entry.state, State::Gone)) {
                shard.entries.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
