//! The meaning of an outcome for the row of its event.

use std::borrow::Cow;
use std::time::Duration;

/// The change that the store writes for one outcome. Delays, not times: the database's clock turns them into times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// Finished.
    Done,
    /// Finished, and not kept: its row is deleted.
    Erased,
    /// Later, not counted as an attempt.
    Deferred {
        /// How much later.
        after: Duration,
    },
    /// Failed, counted, and tried again.
    Retry {
        /// How much later.
        after: Duration,
        /// The error, for people.
        error: String,
    },
    /// Given up.
    Dead {
        /// Why.
        error: String,
        /// Whether the failure that ended it counts as an attempt.
        counted: bool,
        /// Whether later events of its aggregate wait until it is replayed, skipped or discarded.
        blocks: bool,
    },
    /// Set aside until a listener is there.
    Parked {
        /// Why.
        reason: String,
    },
    /// Never started: an earlier event of its aggregate is not resolved. Given back as if it had not been claimed, and not due
    /// until the store's `KeyStore::unblock` finds that event out of the way.
    Behind {
        /// The `seq` of the event that it waits behind.
        sequence: u64,
    },
    /// Given back, uncounted, as if it had not been claimed.
    Released {
        /// How much later it may be claimed again; zero for at once.
        after: Duration,
        /// Why: a clause that completes "it waits because …", cut to 300 characters; `None` if it is given back at once, or waits for its
        /// own time.
        reason: Option<Cow<'static, str>>,
    },
}

/// The first words of the reason if no listener answers the route of an event. Statements that count events look for them.
#[doc(hidden)] // for the host
pub const NO_LISTENER: &str = "no listener answers";
