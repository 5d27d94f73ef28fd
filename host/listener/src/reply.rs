//! What a listener hands back: an outcome, and what belongs to it.

use outbox_event::{Cost, Effects, Outcome};

/// What a visit to a listener came to: the outcome, and what is committed with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What the attempt came to.
    pub outcome: Outcome,
    /// What the listener did beside. `None` when it did nothing, and for every outcome in which it did not succeed: follow-up
    /// events and state belong to an answer, not to an attempt.
    pub effects: Option<Box<Effects>>,
    /// What the call cost; `None` when the listener does not know. Then the dispatcher says how long it took.
    pub cost: Option<Cost>,
    /// This event's share of a call for several events that broke off, before the event was called alone. Counted for the listener,
    /// not stored with the event. Usually `None`.
    pub broken_call_cost: Option<Box<Cost>>,
    /// Whether the listener can have no event of its route answered on this host now, as while the sink of a relay is down. Usually false.
    #[doc(hidden)] // for the host
    pub is_stalled: bool,
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, effects: None, cost: None, broken_call_cost: None, is_stalled: false }
    }
}

impl Reply {
    /// An outcome, and what the call cost.
    #[doc(hidden)] // for the host
    pub fn with_cost(outcome: Outcome, cost: Cost) -> Self {
        Self { cost: Some(cost), ..outcome.into() }
    }
}
