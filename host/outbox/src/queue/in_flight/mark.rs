//! The mark of one event in flight.

use std::sync::Arc;

use tokio::time::Instant;

use super::{InFlight, State};
use crate::event::{EventId, Fence};
use crate::partition::Hold;
use crate::sync::atomic::Ordering;

/// Marks an event as in flight until dropped, even if a worker panics.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(super) in_flight: Arc<InFlight>,
    pub(super) id: EventId,
    pub(super) fence: Option<Fence>,
    /// `Some` for an event that was read.
    pub(super) hold: Option<Arc<Hold>>,
    /// Whether the row contradicts the last outcome of the event.
    pub(super) is_doubtful: bool,
    pub(super) end: End,
}

/// How a mark is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Without an outcome: the delivery may have begun.
    Dropped,
    /// Its outcome is stored, and an unfinished row with this `claim_seq` or a lower one contradicts it. A read in progress may still
    /// return the old row.
    Stored(u64),
    /// Its outcome may be stored, or there is no outcome to store. A read in progress may still return the old row.
    Settled,
    /// The delivery has not begun, and the row is as it was read: any read may return it again.
    Unchanged,
}

impl Mark {
    /// The proof that this host holds the event. `None` for an event that was never stored.
    #[must_use]
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.fence
    }

    /// The event.
    pub(crate) fn id(&self) -> EventId {
        self.id
    }

    /// Whether the event was read, and has no claim.
    pub(crate) fn is_read(&self) -> bool {
        self.hold.is_some()
    }

    /// Whether this host has stored an outcome of the event that its row contradicts: a trigger may revert each outcome of it.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// Whether this host's session allows a call to begin. A claimed event does not depend on the session.
    pub(crate) fn may_begin(&self) -> bool {
        self.hold.as_ref().is_none_or(|hold| hold.may_begin())
    }

    /// Whether the event was read from a partition that this host is about to give back. A claimed event stays with this host: given back,
    /// it would lose the count of this claim, by which hosts find an event that stops them.
    pub(crate) fn is_leaving(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_leaving())
    }

    /// The present end of the claim, or of the partition's lease; renewals move it. `None` if it was lost.
    #[must_use]
    pub(crate) fn lease_end(&self) -> Option<Instant> {
        if let Some(hold) = &self.hold {
            return hold.lease_end();
        }
        match self.in_flight.shard(&self.id).entries.get(&self.id)?.state {
            State::Claimed { end, .. } => end,
            State::Read(_) | State::Gone | State::Dropped => None,
        }
    }

    /// Releases the event: its outcome is stored. An unfinished row with this `claim_seq` or a lower one contradicts it.
    pub(crate) fn stored(mut self, claim_seq: u64) {
        self.end = End::Stored(claim_seq);
    }

    /// Releases the event: its outcome was stored or dropped, or its listener was never called and there is nothing to store.
    pub(crate) fn settled(mut self) {
        self.end = End::Settled;
    }

    /// Releases the event as it was read: its delivery has not begun, and nothing was written.
    pub(crate) fn unchanged(mut self) {
        self.end = End::Unchanged;
    }

    /// Notes that the event waits in memory for its next attempt.
    pub(crate) fn rest(&self) {
        self.set_rests(true);
    }

    /// Notes that this wait has ended.
    pub(crate) fn end_rest(&self) {
        self.in_flight.rests_ended.fetch_add(1, Ordering::Relaxed);
        self.set_rests(false);
    }

    fn set_rests(&self, rests: bool) {
        if let Some(entry) = self.in_flight.shard(&self.id).entries.get_mut(&self.id) {
            entry.rests = rests;
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Before the hold, so that the partition has no event in flight when it is given back.
        self.in_flight.let_go(self);
    }
}
