//! The report of a [`PluginHost`](crate::PluginHost) about one call of a plugin.

use std::time::Duration;

use outbox_event::{Effects, GuestCost, Outcome};
use serde::Serialize;

use super::outside::Outside;
use crate::capability::Refused;
use crate::capability::log::LogLine;

/// One call: its answer, what the guest asked for, and what it cost. Nothing in it has happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallReport {
    /// What the call came to.
    pub outcome: Outcome,
    /// Follow-up events and changes of state that would be committed with the outcome; none for an outcome that is no answer.
    pub effects: Effects,
    /// The lines that it wrote, in order, as it wrote them but without its secrets: text of an untrusted guest.
    pub lines: Vec<LogLine>,
    /// Lines beyond the budget of a call.
    pub lines_dropped: u32,
    /// What it asked for and was not granted.
    pub refused: Vec<Refused>,
    /// What it did outside its memory that could have failed, in order.
    pub outside: Vec<Outside>,
    /// Fuel that making the instance took; 0 for a kept one.
    pub init_fuel: u64,
    /// Time on the wall, instantiation included.
    pub took: Duration,
    /// What the call used.
    pub used: GuestCost,
    /// Whether the instance had answered before.
    pub instance: InstanceUse,
}

/// Whether an instance has answered before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceUse {
    /// Made for this call.
    #[default]
    Fresh,
    /// Kept from an earlier call.
    Kept,
}
