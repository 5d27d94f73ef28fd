//! The report of a host: its plugins and sinks, as people see them. Written with the heartbeat, and read from the row of each host.

use std::time::Duration;

use outbox_event::{HostReport, PluginStatus, SinkStatus};

use crate::store::NodeRecord;
use crate::time::Timestamp;
use crate::units::span;

/// How often the row of a host gets the last success of a busy sink. Readers show it as within the last minute, and the row may be
/// some seconds old.
const SUCCESS_EVERY: Duration = Duration::from_secs(50);

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

/// Keeps the last success that was reported for each busy sink, if it is recent. Otherwise a busy sink would change the report at every
/// heartbeat, and a report that did not change is not written again.
pub(super) fn throttle_successes(mut report: HostReport, reported: &HostReport, now: Timestamp) -> HostReport {
    for sink in &mut report.sinks {
        let earlier = reported.sinks.iter().find(|earlier| earlier.name == sink.name).and_then(|earlier| earlier.last_success);
        let (Some(last), Some(earlier)) = (sink.last_success, earlier) else { continue };
        let is_busy = sink.outage.is_none() && now.since(last) < SUCCESS_EVERY;
        if is_busy && earlier <= last && last.since(earlier) < SUCCESS_EVERY {
            sink.last_success = Some(earlier);
        }
    }
    report
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
        HostReport::new(Vec::new(), sinks.to_vec())
    }

    #[test]
    fn the_plugins_and_sinks_of_a_row_are_those_of_its_host() {
        let HostReport { plugins, .. } = HostReport::read(r#"{"plugins":[{"name":"mailer","state":"serving"}]}"#);
        let node = Node {
            report: HostReport::new(plugins.clone(), vec![orders()]).to_json(),
            ..Node::new(OwnerId::generate("a"), "web-1", "multi_node", "0.1.0")
        };
        let row = NodeRecord::new(&node, Timestamp::from_micros(0));

        assert_eq!((super::plugins(&row), super::sinks(&row)), (plugins, vec![orders()]));
        let without = changed!(NodeRecord { report: None, ..row });
        assert_eq!((super::plugins(&without), super::sinks(&without)), (Vec::new(), Vec::new()));
    }

    #[test]
    fn last_success_of_a_row_is_a_real_one_and_changes_once_a_minute() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let sink = |last: i64| SinkStatus { last_success: Some(at(last)), ..orders() };
        let row = |reported: &[SinkStatus], sink: SinkStatus, now: i64| {
            throttle_successes(of_sinks(&[sink]), &of_sinks(reported), at(now)).sinks[0].last_success
        };

        assert_eq!(row(&[], sink(7), 8), Some(at(7)), "the first one");
        assert_eq!(row(&[orders()], sink(7), 8), Some(at(7)), "the first one");
        assert_eq!(row(&[sink(7)], sink(56), 57), Some(at(7)), "the sink is busy");
        assert_eq!(row(&[sink(7)], sink(57), 57), Some(at(57)));
        assert_eq!(row(&[sink(7)], sink(12), 62), Some(at(12)), "the last one for a while");
        assert_eq!(row(&[sink(700)], sink(12), 13), Some(at(12)), "the clock was set back");
        let outage = SinkOutage { since: at(13), reason: "refused".to_owned(), next_try: at(14) };
        let down = SinkStatus { state: SinkState::Down, outage: Some(outage), ..sink(12) };
        assert_eq!(row(&[sink(7)], down, 13), Some(at(12)), "the last one before an outage");
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
