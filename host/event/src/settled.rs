//! A settlement on its way to the store.

use super::{AttemptCost, EventId, Fence, Settlement};

/// A settlement, and the claim under which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The proof that the claim is still ours.
    pub fence: Fence,
    /// The event. A row of another event that has got the same `seq`, because the table was emptied by hand, is left alone. `None` if the
    /// host does not know it.
    pub id: Option<EventId>,
    /// The change to write.
    pub settlement: Settlement,
    /// The attempt's cost, to be stored with the event. `None` keeps the stored cost, except for a failure, which clears it.
    pub cost: Option<Box<AttemptCost>>,
}

impl Settled {
    /// A settlement without a cost, of whatever event has the row.
    #[must_use]
    pub const fn new(fence: Fence, settlement: Settlement) -> Self {
        Self { fence, id: None, settlement, cost: None }
    }
}
