//! What an attempt cost, as it stays with its event.

use serde::{Deserialize, Serialize};

use super::{Cost, Settlement};

/// What an attempt cost, which attempt it was, and what it came to. Kept as one line of JSON in the column `last_cost`, whose
/// fields it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub struct AttemptCost {
    /// Which attempt, from 1. Deferred attempts are not counted: the next has the same number.
    pub attempt: u32,
    /// What it came to.
    pub outcome: AttemptEnd,
    /// What it cost.
    #[serde(flatten)]
    pub cost: Cost,
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
pub enum AttemptEnd {
    /// The event is finished.
    Done,
    /// The listener asked for later.
    Deferred,
    /// It failed, and the event is tried again.
    Retry,
    /// The event is dead.
    Dead,
}

impl AttemptEnd {
    /// What an attempt came to that is settled like this; `None` for what is no end of an attempt.
    #[must_use]
    pub const fn of(settlement: &Settlement) -> Option<Self> {
        match settlement {
            Settlement::Done | Settlement::Erased => Some(Self::Done),
            Settlement::Deferred { .. } => Some(Self::Deferred),
            Settlement::Retry { .. } => Some(Self::Retry),
            Settlement::Dead { .. } => Some(Self::Dead),
            Settlement::Parked { .. } | Settlement::Behind { .. } | Settlement::Released { .. } => None,
        }
    }

    /// Whether it is a failure.
    #[doc(hidden)] // for the host
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Retry | Self::Dead)
    }
}

impl AttemptCost {
    /// What an attempt cost that is settled like this; `None` for what is no end of an attempt.
    #[must_use]
    pub const fn new(attempt: u32, settlement: &Settlement, cost: Cost) -> Option<Self> {
        match AttemptEnd::of(settlement) {
            Some(outcome) => Some(Self { attempt, outcome, cost }),
            None => None,
        }
    }
}
