//! The report of a host: its plugins and sinks, as people see them. Written with the heartbeat, and read from the row of each host.

use std::time::Duration;

use outbox_event::{HostReport, PluginStatus, SinkStatus};

use crate::store::NodeRecord;
use crate::time::Timestamp;
use crate::units::span;

const MINUTE_MICROS: i64 = 60 * 1_000_000;

/// The plugins that a host lists in its row; empty if it lists no plugins. Skips each plugin that cannot be read, because the host
/// may be of another version.
#[must_use]
pub fn plugins(node: &NodeRecord) -> Vec<PluginStatus> {
    read(node).plugins
}

/// The sinks that a host lists in its row; empty if it lists no sinks. Skips each sink that cannot be read, because the host may be of
/// another version.
#[must_use]
pub fn sinks(node: &NodeRecord) -> Vec<SinkStatus> {
    read(node).sinks
}

/// The offset of a host's clock to the database's, in words: `5 min ahead of` or `3 s behind`. `None` if both agree within a second.
#[must_use]
pub fn clock_difference(node: &NodeRecord) -> Option<String> {
    let ahead_ms = read(node).clock_ahead_ms;
    let difference = span(Duration::from_millis(ahead_ms.unsigned_abs()));
    match ahead_ms {
        0 => None,
        1.. => Some(format!("{difference} ahead of")),
        _ => Some(format!("{difference} behind")),
    }
}

fn read(node: &NodeRecord) -> HostReport {
    node.report.as_deref().map(HostReport::read).unwrap_or_default()
}

/// The report of these plugins and sinks. The last success of each sink is rounded down to a minute: a busy sink would change the
/// report at every heartbeat, and a report that did not change is not written again.
pub(super) fn report(plugins: Vec<PluginStatus>, sinks: Vec<SinkStatus>) -> HostReport {
    let rounded = |sink: SinkStatus| SinkStatus { last_success: sink.last_success.map(to_minute), ..sink };
    HostReport::new(plugins, sinks.into_iter().map(rounded).collect())
}

fn to_minute(time: Timestamp) -> Timestamp {
    let micros = time.as_micros();
    Timestamp::from_micros(micros - micros.rem_euclid(MINUTE_MICROS))
}

/// Whether both list the same plugins, and the same sinks in the same state since the same time, for whatever reasons.
pub(super) fn has_same_states(one: &HostReport, other: &HostReport) -> bool {
    let state = |sink: &SinkStatus| (sink.state, sink.outage.as_ref().map(|outage| outage.since));
    one.plugins == other.plugins
        && one.sinks.len() == other.sinks.len()
        && one.sinks.iter().zip(&other.sinks).all(|(one, other)| state(one) == state(other))
}

#[cfg(test)]
mod tests {
    use outbox_event::{SinkOutage, SinkState};

    use super::*;
    use crate::event::OwnerId;
    use crate::store::Node;

    fn orders() -> SinkStatus {
        SinkStatus {
            name: "orders".to_owned(),
            kind: "nats".to_owned(),
            target: String::new(),
            state: SinkState::Working,
            outage: None,
            last_success: None,
            unavailable_receivers: 0,
            first_unavailable: Vec::new(),
            routes: Vec::new(),
            more_routes: 0,
        }
    }

    fn of_sinks(sinks: &[SinkStatus]) -> HostReport {
        report(Vec::new(), sinks.to_vec())
    }

    #[test]
    fn the_plugins_and_sinks_of_a_row_are_those_of_its_host() {
        let HostReport { plugins, .. } = HostReport::read(r#"{"plugins":[{"name":"mailer","state":"serving"}]}"#);
        let node = Node {
            report: report(plugins.clone(), vec![orders()]).to_json(),
            ..Node::new(OwnerId::generate("a"), "web-1", "multi_node", "0.1.0")
        };
        let row = NodeRecord::new(&node, Timestamp::from_micros(0));

        assert_eq!((super::plugins(&row), super::sinks(&row)), (plugins, vec![orders()]));
        let without = changed!(NodeRecord { report: None, ..row });
        assert_eq!((super::plugins(&without), super::sinks(&without)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_success_in_the_same_minute_does_not_change_the_row() {
        let row = |micros| {
            let last_success = Some(Timestamp::from_micros(micros));
            of_sinks(&[SinkStatus { last_success, ..orders() }]).to_json()
        };
        assert_eq!(row(MINUTE_MICROS), row(2 * MINUTE_MICROS - 1));
        assert_ne!(row(MINUTE_MICROS), row(2 * MINUTE_MICROS));
    }

    #[test]
    fn another_reason_or_try_is_not_another_state() {
        let outage = |since, reason: &str| {
            let [since, next_try] = [since, since + 1].map(Timestamp::from_micros);
            SinkOutage { since, reason: reason.to_owned(), next_try }
        };
        let down = |outage| of_sinks(&[SinkStatus { state: SinkState::Down, outage: Some(outage), ..orders() }]);

        assert!(has_same_states(&down(outage(1, "refused")), &down(outage(1, "reset"))));
        assert!(!has_same_states(&down(outage(1, "refused")), &down(outage(2, "refused"))));
        assert!(!has_same_states(&down(outage(1, "refused")), &of_sinks(&[orders()])));
    }
}
