//! An event on its way to a listener.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{CallSlot, CountedBytes, Mark, Turn};
use crate::event::{Event, Fence};

/// Which way an event came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Via {
    /// Straight from the commit of its writer.
    Hot,
    /// By the poller.
    Cold,
}

/// An event on its way to a listener.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// The event.
    pub event: Arc<Event>,
    /// The number of the commit, read or claim that it came with.
    pub batch: u64,
    /// Which way it came.
    pub via: Via,
    /// Deferrals so far.
    pub deferrals: u32,
    /// When it expires, by this process's own monotonic clock; `None` for never.
    pub expires: Option<Instant>,
    /// Whether no other event may be with a listener meanwhile: two hosts have gone while they held this one.
    pub alone: bool,
    /// Says that it is in this process's hands; let go when its outcome is stored.
    pub mark: Mark,
    /// Says that it is the one of its aggregate that may be delivered; `None` where order is not asked for.
    pub turn: Option<Box<Turn>>,
    /// Its call slot with its listener; `None` until it was given one, and where calls are not bounded.
    pub slot: Option<CallSlot>,
    /// Counts its bytes among those in this process's hands; `None` where nobody counts them.
    pub counted_bytes: Option<CountedBytes>,
}

impl Delivery {
    /// A delivery that was never deferred and never expires.
    #[must_use]
    pub(crate) fn new(event: Arc<Event>, mark: Mark, via: Via, batch: u64) -> Self {
        let (turn, slot, counted_bytes) = (None, None, None);
        Self { event, batch, via, deferrals: 0, expires: None, alone: false, mark, turn, slot, counted_bytes }
    }

    /// The same, with the time at which it expires: this long after `from`, if at all.
    #[must_use]
    pub(crate) fn expiring(self, from: Instant, expires_in: Option<Duration>) -> Self {
        // Beyond all time is never.
        Self { expires: expires_in.and_then(|expires_in| from.checked_add(expires_in)), ..self }
    }

    /// Whether its time is over.
    pub(crate) fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= Instant::now())
    }

    /// Counted failures so far.
    #[must_use]
    pub(crate) fn attempts(&self) -> u32 {
        self.event.attempt().saturating_sub(1)
    }

    /// The proof that its claim is ours; `None` for an event that was never stored.
    #[must_use]
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.mark.fence()
    }
}
