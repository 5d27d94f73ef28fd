//! Where an event stands, as one word that its row, the hosts and the routes decide.

use serde::{Deserialize, Serialize};

use super::Facts;
use super::pauses::holding;
use crate::event::{Route, Status};
use crate::store::{NodeRecord, Record, RouteRecord, StuckEvent, StuckReason};

/// Where an event stands, finer than its status. Programs may rely on the names; later versions may add some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "utoipa", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// Delivered.
    Done,
    /// Given up.
    Dead,
    /// Dead, and later events of its aggregate wait for it.
    DeadBlocking,
    /// A host has it now.
    Claimed,
    /// A host had it, and said nothing until its lease was over.
    LeaseOver,
    /// A host has it, and cannot deliver or finish it because of its row.
    Stuck,
    /// Any host may take it now.
    Due,
    /// Its writer wants it later.
    Delayed,
    /// It failed, and is tried again.
    Retrying,
    /// Its listener asked for later, was busy or was paused after too many failures.
    Deferred,
    /// No listener is there for it.
    Parked,
    /// Its route is paused.
    Paused,
    /// An earlier event of its aggregate is not resolved.
    Behind,
    /// Its time to be done is over; whoever takes it next gives it up.
    Expired,
    /// Nothing will ever take it: somebody emptied `due_at`.
    Stranded,
}

/// Where an event stands. Pure: what a host would do next with these rows.
pub(super) fn state_of(known: &Facts, record: &Record) -> State {
    let is_paused = !pauses(known, record).is_empty();
    match (record.status, record.due_at) {
        (Status::Done, _) => State::Done,
        (Status::Dead, _) if record.blocks => State::DeadBlocking,
        (Status::Dead, _) => State::Dead,
        _ if stuck(known, record).is_some() => State::Stuck,
        _ if record.lease_end.is_some_and(|end| end > known.now) => State::Claimed,
        _ if record.behind.is_some() => State::Behind,
        _ if record.parked.is_some() && is_paused => State::Paused,
        _ if record.parked.is_some() => State::Parked,
        (_, None) => State::Stranded,
        (_, Some(_)) if record.expires_at.is_some_and(|end| end <= known.now) => State::Expired,
        _ if is_paused => State::Paused,
        _ if record.lease_end.is_some() => State::LeaseOver,
        (_, Some(due)) if due <= known.now && record.available_at <= known.now => State::Due,
        (Status::Retry, _) => State::Retrying,
        _ if record.available_at > known.now => State::Delayed,
        // Its writer set due_at alone, and no host has had it.
        _ if record.claim_seq == 0 && record.deferrals == 0 && record.wait_reason.is_none() => State::Delayed,
        _ => State::Deferred,
    }
}

/// Why an event is stuck, with the host at which it is.
pub(super) fn stuck<'a>(known: &'a Facts, record: &Record) -> Option<(&'a NodeRecord, StuckReason, &'a StuckEvent)> {
    known.nodes.iter().find_map(|node| node.stuck_event(record.seq).map(|(reason, event)| (node, reason, event)))
}

/// The pauses that hold its route, the most exact first; none when it is not paused.
pub(super) fn pauses<'a>(known: &'a Facts, record: &Record) -> Vec<&'a RouteRecord> {
    // A plain INSERT may hold a name that is none: no pause is of it.
    let route = Route::new(record.aggregate_type.as_str(), record.event_type.as_str());
    route.map_or_else(|_| Vec::new(), |route| holding(&route, &known.routes))
}
