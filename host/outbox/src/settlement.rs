//! What is written for an event: every settlement is decided here, by pure functions over plain values.
//!
//! What an outcome means, and what becomes of an event that no listener was called for. Nothing here knows who asks or how it is
//! written. Delays, not times: the database's clock turns them into times.

mod released;
mod rules;

pub(crate) use released::{
    full, given_back, given_back_for, held_up, not_alone, not_its_turn, start_not_counted, still_at_work, unknown_route, waits,
};
pub(crate) use rules::{Policy, SettlementRules};
