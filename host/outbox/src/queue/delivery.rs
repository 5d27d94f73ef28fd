//! An event on its way to a listener.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{CallSlot, CountedBytes, Mark, Turn};
use crate::event::{Event, Fence};

/// How an event reached the queue.
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
    /// The number of the commit, read or claim of its batch.
    pub batch: u64,
    /// How it reached the queue.
    pub via: Via,
    /// Deferrals so far.
    pub deferrals: u32,
    /// When it expires, by this process's own monotonic clock; `None` for never.
    pub expires: Option<Instant>,
    /// Whether no other listener may run during its call: two hosts died while they held it.
    pub alone: bool,
    /// Marks it as in flight until its outcome is stored.
    pub mark: Mark,
    /// The right to be the one event of its aggregate that is delivered. `None` in modes without order.
    pub turn: Option<Box<Turn>>,
    /// Its call slot. `None` until it is given one, and if the calls of its listener are not limited.
    pub slot: Option<CallSlot>,
    /// Counts its bytes among those in flight. `None` for a hot event.
    pub counted_bytes: Option<CountedBytes>,
}

impl Delivery {
    /// A delivery that was never deferred and never expires.
    #[must_use]
    pub(crate) fn new(event: Arc<Event>, mark: Mark, via: Via, batch: u64) -> Self {
        let (turn, slot, counted_bytes) = (None, None, None);
        Self { event, batch, via, deferrals: 0, expires: None, alone: false, mark, turn, slot, counted_bytes }
    }

    /// Sets when it expires: `expires_in` after `from`; never if `None`.
    #[must_use]
    pub(crate) fn expiring(self, from: Instant, expires_in: Option<Duration>) -> Self {
        // A time that the clock cannot represent means never.
        Self { expires: expires_in.and_then(|expires_in| from.checked_add(expires_in)), ..self }
    }

    /// Whether it has expired.
    pub(crate) fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= Instant::now())
    }

    /// Counted failures so far.
    #[must_use]
    pub(crate) fn attempts(&self) -> u32 {
        self.event.attempt().saturating_sub(1)
    }

    /// The proof that this host holds it. `None` for an event that was never stored.
    #[must_use]
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.mark.fence()
    }
}
