//! What happens to the later events of an aggregate when an earlier one fails.

use serde::{Deserialize, Serialize};

use crate::store::{Settlement, WaitsFor};

/// What happens to the later events of an aggregate when an earlier one fails; for the mode `ordered_by_aggregate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrderConfig {
    /// Whether the later events of an aggregate wait while an earlier one waits for another attempt. Default true; false lets
    /// them overtake it after its first failure.
    pub stop_on_first_failure: bool,
    /// Whether they wait on when it is dead. Default `block`. Without `stop_on_first_failure` they never do.
    pub on_dead: OnDead,
}

/// What a dead event means for the later ones of its aggregate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDead {
    /// They wait until somebody replays, skips or discards it.
    #[default]
    Block,
    /// They go on without it.
    Skip,
}

impl Default for OrderConfig {
    fn default() -> Self {
        Self { stop_on_first_failure: true, on_dead: OnDead::Block }
    }
}

impl OrderConfig {
    pub(crate) fn waits_for(self) -> WaitsFor {
        if self.stop_on_first_failure { WaitsFor::Unresolved } else { WaitsFor::Untried }
    }

    pub(crate) fn dead_blocks(self) -> bool {
        self.stop_on_first_failure && self.on_dead == OnDead::Block
    }
}

/// Whether nobody has to wait for an event with this outcome any more.
pub(crate) fn resolves(settlement: &Settlement, waits_for: WaitsFor) -> bool {
    match settlement {
        Settlement::Done | Settlement::Erased => true,
        Settlement::Dead { blocks, .. } => !blocks,
        Settlement::Retry { .. } => waits_for == WaitsFor::Untried,
        Settlement::Deferred { .. } | Settlement::Parked { .. } | Settlement::Behind { .. } | Settlement::Released { .. } => {
            false
        }
    }
}
