//! The reply of a listener: an outcome, with its effects and its cost.

use outbox_event::{Cost, Effects, Outcome};

/// The result of a visit to a listener: the outcome, and the effects that are committed with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The outcome of the attempt.
    pub outcome: Outcome,
    /// The events that the listener emitted, and the state that it changed. `None` without effects, and for every outcome that is not
    /// a success: effects belong to an answer, not to an attempt.
    pub effects: Option<Box<Effects>>,
    /// The cost of the call. `None` if the listener does not know it: then the dispatcher measures the duration.
    pub cost: Option<Cost>,
    /// This event's share of a call for several events that broke off, before the event was called alone. Counted for the listener,
    /// not stored with the event. Usually `None`.
    pub broken_call_cost: Option<Box<Cost>>,
    /// Whether the listener can answer no event of its route or of this `destination` on this host now, for example while the sink of a
    /// relay is down.
    #[doc(hidden)] // for the host
    pub is_stalled: bool,
    /// The hash of the destination that this reply concerns, such as a topic; `None` if it concerns the whole listener.
    #[doc(hidden)] // for the host
    pub destination: Option<u64>,
}

impl From<Outcome> for Reply {
    fn from(outcome: Outcome) -> Self {
        Self { outcome, effects: None, cost: None, broken_call_cost: None, is_stalled: false, destination: None }
    }
}

impl Reply {
    /// An outcome, and what the call cost.
    #[doc(hidden)] // for the host
    pub fn with_cost(outcome: Outcome, cost: Cost) -> Self {
        Self { cost: Some(cost), ..outcome.into() }
    }
}
