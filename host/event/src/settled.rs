//! A settlement on its way to the store.

use super::{AttemptCost, Fence, Settlement};

/// A settlement, and the claim under which it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The proof that the claim is still ours.
    pub fence: Fence,
    /// The change to write.
    pub settlement: Settlement,
    /// The attempt's cost, to be stored with the event. `None` keeps the stored cost, except for a failure, which clears it.
    pub cost: Option<Box<AttemptCost>>,
}

impl Settled {
    /// A settlement without a cost.
    #[must_use]
    pub const fn new(fence: Fence, settlement: Settlement) -> Self {
        Self { fence, settlement, cost: None }
    }
}
