//! The first step: finds the listener of an event, and asks for a call slot with it.

use std::time::Duration;

use tokio::time::Instant;

use super::Target;
use crate::dispatcher::alone;
use crate::dispatcher::shared::Shared;
use crate::queue::{CallAdmission, Delivery, Via};

/// Whether a worker can begin an attempt.
pub(in crate::dispatcher) enum Admission {
    Attempt(Delivery, Target),
    /// The queue keeps the event until its listener has a free call slot.
    Wait,
    /// The event goes back to the table, and may be claimed after this time.
    GiveBack(Delivery, Duration),
}

/// Finds the listener of an event. No worker waits for a call slot. Counts nothing yet.
pub(in crate::dispatcher) fn admit(shared: &Shared, delivery: Delivery) -> Admission {
    let route = delivery.event.route();
    if let Some(reason) = shared.listeners.paused(route) {
        return Admission::Attempt(delivery, Target::Paused(reason));
    }
    let Some(entry) = shared.listeners.find(route) else {
        // Before the poller hands on an event without a listener here, it looks in the table for hosts that answer the route. A hot
        // event came straight from its commit, so the poller must see it first.
        let is_unseen = delivery.via == Via::Hot && delivery.fence().is_some() && shared.listeners.awaited(route).is_none();
        return if is_unseen {
            Admission::GiveBack(delivery, Duration::ZERO)
        } else {
            Admission::Attempt(delivery, Target::Missing)
        };
    };
    let admitted = if delivery.alone && !entry.has_open_breaker(route, Instant::now()) {
        alone::admit(shared, delivery)
    } else if let Some(limit) = &entry.call_limit {
        shared.queue.admit(&limit.name, limit.calls, delivery)
    } else {
        CallAdmission::Starts(delivery)
    };
    match admitted {
        CallAdmission::Starts(delivery) => Admission::Attempt(delivery, Target::Listener(entry)),
        CallAdmission::Waits => Admission::Wait,
        CallAdmission::Full(delivery, after) => Admission::GiveBack(delivery, after),
    }
}
