//! The severity of problems, decided once for `outbox doctor` and the overview page.

use std::time::Duration;

use super::Pauses;
use crate::node::DownSink;
use crate::store::{RouteRecord, Severity};

/// From this number on, waiting events are a fault.
const MANY_EVENTS: u64 = 100;
/// Before this time, a wait may end without an operator.
const LONG_OUTAGE: Duration = Duration::from_secs(5 * 60);

/// The severity of a sink that is down: a fault if events wait for it and no other host reaches it.
#[must_use]
pub fn down_sink_severity(sink: &DownSink) -> Severity {
    if sink.other_hosts == 0 && sink.waiting > 0 { Severity::Fault } else { Severity::Warning }
}

/// The severity of events that wait for a receiver: a fault if they are many and the first has waited for long.
#[must_use]
pub fn wait_severity(events: u64, longest: Duration) -> Severity {
    if events >= MANY_EVENTS && longest >= LONG_OUTAGE { Severity::Fault } else { Severity::Warning }
}

/// The severity of parked events without a listener: a fault if they are many.
#[must_use]
pub fn unanswered_severity(events: u64) -> Severity {
    if events >= MANY_EVENTS { Severity::Fault } else { Severity::Warning }
}

/// The severity of plugins that have no serving version, unless a host requires them. The routes of such a plugin are unknown, so it is a
/// fault if any events wait for a listener.
#[must_use]
pub fn failed_plugin_severity(routes: &[RouteRecord]) -> Severity {
    let pauses = Pauses::of(routes);
    let waits_for_listener = |known: &RouteRecord| known.parked > 0 && pauses.holding(&known.route).next().is_none();
    if routes.iter().any(waits_for_listener) { Severity::Fault } else { Severity::Warning }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Route;
    use crate::time::Timestamp;

    #[test]
    fn many_events_that_wait_for_long_are_a_fault() {
        let minute = Duration::from_secs(60);

        assert_eq!(wait_severity(50_000, 10 * minute), Severity::Fault);
        assert_eq!(wait_severity(50_000, minute), Severity::Warning);
        assert_eq!(wait_severity(2, 10 * minute), Severity::Warning);
        assert_eq!((unanswered_severity(50_000), unanswered_severity(2)), (Severity::Fault, Severity::Warning));
    }

    #[test]
    fn failed_plugin_is_a_fault_only_while_events_wait_for_a_listener() {
        let parked = || {
            let mut known = RouteRecord::new(Route::new("Order", "OrderPlaced").unwrap());
            known.parked = 1;
            known
        };
        let mut paused = parked();
        paused.paused_at = Some(Timestamp::from_micros(1));

        assert_eq!(failed_plugin_severity(&[]), Severity::Warning);
        assert_eq!(failed_plugin_severity(&[parked()]), Severity::Fault);
        assert_eq!(failed_plugin_severity(&[paused]), Severity::Warning);
    }
}
