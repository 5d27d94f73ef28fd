//! What an outcome writes.

use std::time::Duration;

use super::AttemptCost;
use crate::event::Fence;
use crate::time::micros;

/// What the store writes for one outcome. Delays, not times: the database's clock turns them into times.
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
        /// What went wrong.
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
    /// until [`Store::unblock`](super::Store::unblock) finds that event out of the way.
    Behind {
        /// The `seq` of the event that it waits behind.
        sequence: u64,
    },
    /// Given back, uncounted, as if it had not been claimed.
    Released {
        /// How much later it may be claimed again; zero for at once.
        after: Duration,
    },
}

/// A settlement, and the claim under which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The proof that the claim is still ours.
    pub fence: Fence,
    /// What to write.
    pub settlement: Settlement,
    /// What the attempt cost, to be kept beside that. `None` leaves what was kept before as it is, but for a failure, which then
    /// has no cost.
    pub cost: Option<Box<AttemptCost>>,
}

impl Settled {
    /// A settlement without a cost.
    #[must_use]
    pub const fn new(fence: Fence, settlement: Settlement) -> Self {
        Self { fence, settlement, cost: None }
    }
}

/// The longest delay that is kept: a thousand years. A listener may ask for more than the columns can count, and a time that
/// does not fit would make the whole table unreadable.
const LONGEST_DELAY: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);

/// A delay in whole microseconds, as it is added to the time.
pub(super) fn delay_micros(after: Duration) -> i64 {
    micros(after.min(LONGEST_DELAY))
}
