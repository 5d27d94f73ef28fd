//! Where an event stands, as one word that its row, the hosts and the routes decide.

use outbox::Route;
use outbox::event::Status;
use outbox::store::{NodeRecord, Record, RouteRecord};
use outbox::time::Timestamp;
use serde::Serialize;

use crate::pauses::holding;

/// Everything that the table knows of one event.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) record: Record,
    /// The time by the database's clock, which decides what is due.
    pub(super) now: Timestamp,
    pub(super) nodes: Vec<NodeRecord>,
    pub(super) routes: Vec<RouteRecord>,
    /// What the relays of this configuration take: routes and patterns.
    pub(super) relays: Vec<Route>,
    /// What it waits behind, what that waits behind, and so on: the head of the queue comes last.
    pub(super) queue: Vec<Record>,
    /// How many later events of its aggregate wait behind it.
    pub(super) waiting: u64,
}

/// Where an event stands, finer than its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    Done,
    Dead,
    /// Dead, and later events of its aggregate wait for it.
    DeadBlocking,
    /// A host has it now.
    Claimed,
    /// A host had it, and said nothing until its lease was over.
    LeaseOver,
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
pub(super) fn state_of(known: &Known, record: &Record) -> State {
    let is_paused = !pauses(known, record).is_empty();
    match (record.status, record.due_at) {
        (Status::Done, _) => State::Done,
        (Status::Dead, _) if record.blocks => State::DeadBlocking,
        (Status::Dead, _) => State::Dead,
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
        _ => State::Deferred,
    }
}

/// The pauses that hold its route, the most exact first; none when it is not paused.
pub(super) fn pauses<'a>(known: &'a Known, record: &Record) -> Vec<&'a RouteRecord> {
    // A plain INSERT may hold a name that is none: no pause is of it.
    let route = Route::new(record.aggregate_type.as_str(), record.event_type.as_str());
    route.map_or_else(|_| Vec::new(), |route| holding(&route, &known.routes))
}
