//! Events that are given back uncounted, as if they had not been claimed.

use std::borrow::Cow;
use std::time::Duration;

use crate::store::Settlement;

/// How long an event waits that must be alone, when a listener that blocks its thread prevents that.
const NOT_ALONE: Duration = Duration::from_secs(30);
/// How long an event waits whose start could not be counted.
const NOT_COUNTED: Duration = Duration::from_secs(1);
/// How soon an event is looked at again whose route could not be looked up.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How soon an event is looked at again whose listener is still at work in this host.
const STILL_AT_WORK: Duration = Duration::from_secs(1);
/// How long an event waits whose answer somebody else keeps from being stored.
const HELD_UP: Duration = Duration::from_secs(2);

/// This host does not deliver the event any more: the host that has its partition may take it at once.
pub(crate) const fn given_back() -> Settlement {
    given_back_for(Duration::ZERO)
}

/// The event may be claimed again after this time, which is its own: it is not due, or an earlier one of its queue is in the way.
pub(crate) const fn given_back_for(after: Duration) -> Settlement {
    Settlement::Released { after, reason: None }
}

/// The event cannot be delivered now, for no fault of its own.
pub(crate) fn waits(after: Duration, reason: impl Into<Cow<'static, str>>) -> Settlement {
    Settlement::Released { after, reason: Some(reason.into()) }
}

/// An earlier event of its queue, the `blocker`, is not resolved. The event is set aside behind it; but where all events are in one
/// queue (`one_for_all`) nothing but the front is taken, so an event that is given back keeps its place.
pub(crate) const fn not_its_turn(blocker: u64, one_for_all: bool) -> Settlement {
    if one_for_all { given_back() } else { Settlement::Behind { sequence: blocker } }
}

/// The event must be delivered alone, and other listeners did not end in time.
pub(crate) fn not_alone() -> Settlement {
    waits(NOT_ALONE, "it must be delivered alone, and other calls on its host did not end in time")
}

/// The event must be delivered alone, and its start could not be counted in the table.
pub(crate) fn start_not_counted() -> Settlement {
    waits(NOT_COUNTED, "it must be delivered alone, and its start could not be counted in the table")
}

/// As many events wait for the event's listener as may; after zero the event is read again at once.
pub(crate) fn full(after: Duration) -> Settlement {
    if after.is_zero() { given_back() } else { waits(after, "its listener is busy and its queue is full") }
}

/// No listener here answers the event, and the table does not say whether another host has one.
pub(crate) fn unknown_route() -> Settlement {
    waits(ASK_AGAIN, "no listener of its host answers it, and the table did not say whether another host has one")
}

/// An earlier claim of the event by this host ended while its listener was at work. That outcome is fenced off.
pub(crate) fn still_at_work() -> Settlement {
    waits(STILL_AT_WORK, "an earlier call for it is still running although its claim has ended")
}

/// Somebody else has locked what the event's plugin keeps, or an id that it emitted.
pub(crate) fn held_up() -> Settlement {
    waits(HELD_UP, "plugin state or an emitted event ID is locked by another transaction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_whose_turn_it_is_not_is_set_aside_except_in_one_queue_of_all_events() {
        assert_eq!(not_its_turn(7, false), Settlement::Behind { sequence: 7 });
        assert_eq!(not_its_turn(7, true), given_back());
    }
}
