//! What is owed to events that were written in a transaction that is not decided yet.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use super::hook::{HookError, WriterHook};
use super::hot::{HotPath, Lease, Row};
use crate::chain::panic_text;
use crate::event::{Envelope, EventId};
use crate::queue::Reserved;
use crate::store::NewRow;

/// A row that shows whether a savepoint took a write back: its `seq`, and its id. The id alone is not enough, since another
/// transaction may have written the same one meanwhile; nor is the `seq` alone, which SQLite gives out again after a rollback.
pub(super) type Witness = (u64, EventId);

/// Events in a transaction that is not decided yet. Dropped without a word, nobody knows whether they were committed: the
/// poller decides, and need not wait for our claims to end.
pub(super) struct WrittenEvents {
    events: Vec<(Envelope, Row)>,
    /// One of the rows. They came in by one call, so a savepoint takes all of them back or none. `None` where all are excluded.
    witness: Option<Witness>,
    hooks: Arc<[Arc<dyn WriterHook>]>,
    hot: Arc<HotPath>,
    lease: Lease,
    /// The room in the hot queue for those that are claimed, and for those that are excluded.
    room: Reserved,
}

impl WrittenEvents {
    /// Events whose insert begins now.
    pub(super) fn new(
        events: Vec<(Envelope, Row)>,
        hooks: Arc<[Arc<dyn WriterHook>]>,
        hot: Arc<HotPath>,
        lease: Lease,
        room: Reserved,
    ) -> Self {
        Self { events, witness: None, hooks, hot, lease, room }
    }

    /// The rows of the events that are stored.
    pub(super) fn rows(&self) -> Vec<NewRow<'_>> {
        let stored = self.events.iter().filter(|(_, row)| *row != Row::None);
        stored.map(|(envelope, row)| NewRow { envelope, claimed: *row == Row::Asked }).collect()
    }

    /// Takes in what the store said of the rows; those that were there before are left out.
    pub(super) fn inserted(&mut self, sequences: &[Option<u64>]) {
        let mut sequences = sequences.iter();
        let witness = &mut self.witness;
        self.events.retain_mut(|(envelope, row)| {
            if *row == Row::None {
                return true;
            }
            let sequence = sequences.next().copied().flatten();
            *witness = witness.or(sequence.map(|sequence| (sequence, envelope.id())));
            if let (Row::Asked, Some(sequence)) = (*row, sequence) {
                *row = Row::Ours(sequence);
            }
            sequence.is_some()
        });
    }

    pub(super) fn ids(&self) -> Vec<EventId> {
        self.events.iter().map(|(envelope, _)| envelope.id()).collect()
    }

    pub(super) fn witness(&self) -> Option<Witness> {
        self.witness
    }

    /// Whether only memory has these events.
    pub(super) fn are_excluded(&self) -> bool {
        !self.events.is_empty() && self.witness.is_none()
    }

    /// Notes a row that was inserted for no other purpose.
    pub(super) fn witnessed_by(&mut self, witness: Witness) {
        self.witness = Some(witness);
    }

    pub(super) fn after_write(&self) {
        self.run("after_write", |hook, events| hook.after_write(events));
    }

    /// Nothing came in.
    pub(super) fn refused(mut self) {
        self.events.clear();
    }

    pub(super) fn committed(mut self) {
        self.run("after_commit", |hook, events| hook.after_commit(events));
        let (events, room) = (std::mem::take(&mut self.events), std::mem::take(&mut self.room));
        self.hot.enqueue(events, &self.lease, room);
    }

    pub(super) fn rolled_back(mut self) {
        self.run("after_rollback", |hook, events| hook.after_rollback(events));
        self.events.clear();
    }

    fn run(&self, what: &str, call: impl Fn(&dyn WriterHook, &[&Envelope]) -> Result<(), HookError>) {
        if self.hooks.is_empty() || self.events.is_empty() {
            return;
        }
        let events: Vec<&Envelope> = self.events.iter().map(|(envelope, _)| envelope).collect();
        for hook in self.hooks.iter() {
            let error = match std::panic::catch_unwind(AssertUnwindSafe(|| call(&**hook, &events))) {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic_text(&*panic),
            };
            tracing::error!(hook = what, events = events.len(), error, "a writer hook failed; the write stands");
        }
    }
}

impl Drop for WrittenEvents {
    fn drop(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.events);
        let mut unused = Vec::new();
        let mut free = None;
        for (envelope, row) in &events {
            match row {
                Row::Ours(_) | Row::Asked => unused.push(envelope.id()),
                Row::Free => free = free.or(Some(envelope.id())),
                Row::None => tracing::error!(
                    event.id = %envelope.id(), route = %envelope.route(),
                    "nobody knows whether the transaction of an event was committed that is excluded from the store; it is lost"
                ),
            }
        }
        // One of those that have no claim is looked for as well: when it can be seen, so can the others, and the poller is
        // woken.
        self.hot.give_back(unused, free, &self.lease, std::mem::take(&mut self.room));
        self.hot.wake.now();
    }
}

/// What is owed to events that were written in a transaction of yours: tell it how the transaction ended.
///
/// Dropped without a word, it counts as an unknown result: the poller takes the events as soon as it can see them, and events
/// that are excluded from the store are lost. Until then they keep their places in the hot queue.
#[must_use = "tell it how your transaction ended: committed() or rolled_back()"]
pub struct Receipt(WrittenEvents);

impl Receipt {
    pub(super) fn new(written: WrittenEvents) -> Self {
        Self(written)
    }

    /// The ids of the events, in order; empty when a hook suppressed the write.
    #[must_use]
    pub fn ids(&self) -> Vec<EventId> {
        self.0.ids()
    }

    /// The transaction was committed: the events go straight to their listeners.
    pub fn committed(self) {
        self.0.committed();
    }

    /// The transaction was rolled back, or a savepoint has taken the write back: the events never happened.
    pub fn rolled_back(self) {
        self.0.rolled_back();
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Receipt").field(&self.ids()).finish()
    }
}
