//! The mark of one event.

use std::sync::Arc;

use tokio::time::Instant;

use super::{InFlight, State};
use crate::event::{EventId, Fence};
use crate::partition::Hold;
use crate::sync::atomic::Ordering;

/// Says that an event is in this process's hands, as long as it lives; let go even when a worker panics.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(super) in_flight: Arc<InFlight>,
    pub(super) id: EventId,
    pub(super) fence: Option<Fence>,
    /// `Some` for an event that was read.
    pub(super) hold: Option<Arc<Hold>>,
    pub(super) end: End,
}

/// How a mark was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Without an outcome: the event may have begun.
    Dropped,
    /// Its outcome is stored, or there is none to store. A read that is on its way may still bring it as it was.
    Settled,
    /// It has not begun, and its row is as it was read: any read may bring it again.
    Unchanged,
}

impl Mark {
    /// The proof that the event is ours; `None` for an event that was never stored.
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

    /// Whether a call may begin as far as this host's session goes; a claim does not depend on it.
    pub(crate) fn may_begin(&self) -> bool {
        self.hold.as_ref().is_none_or(|hold| hold.may_begin())
    }

    /// Whether the event was read of a partition that this host is about to give back. A claimed event stays with this host: given back,
    /// it would lose the count of this claim, by which hosts find an event that stops them.
    pub(crate) fn is_leaving(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_leaving())
    }

    /// When the claim, or the lease of the partition, ends as of now; renewals move it. `None` when it was lost.
    #[must_use]
    pub(crate) fn lease_end(&self) -> Option<Instant> {
        if let Some(hold) = &self.hold {
            return hold.lease_end();
        }
        match self.in_flight.shard(&self.id).get(&self.id)?.state {
            State::Claimed { end, .. } => end,
            State::Read(_) | State::Gone | State::Dropped => None,
        }
    }

    /// Lets the event go: its outcome is stored, or its listener was never called and there is nothing to store.
    pub(crate) fn settled(mut self) {
        self.end = End::Settled;
    }

    /// Lets the event go as it was read: it has not begun, and nothing was written.
    pub(crate) fn unchanged(mut self) {
        self.end = End::Unchanged;
    }

    /// Says that the event waits in memory for its next attempt.
    pub(crate) fn rest(&self) {
        self.set_rests(true);
    }

    /// Says that its wait has ended.
    pub(crate) fn end_rest(&self) {
        self.in_flight.rests_ended.fetch_add(1, Ordering::Relaxed);
        self.set_rests(false);
    }

    fn set_rests(&self, rests: bool) {
        if let Some(entry) = self.in_flight.shard(&self.id).get_mut(&self.id) {
            entry.rests = rests;
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Before the hold, so that the partition is given back with nothing of it in hand.
        self.in_flight.let_go(self);
    }
}
