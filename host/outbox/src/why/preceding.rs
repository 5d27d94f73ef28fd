//! The change that preceded a problem, and may have caused it.

use std::time::Duration;

use super::changes::{Change, selector};
use super::scope::Scope;
use crate::deceptive::shown;
use crate::time::Timestamp;
use crate::units::span;

/// How long before a problem the change may have been made.
const BEFORE: Duration = Duration::from_secs(10 * 60);
/// How long after a change its host may record it: hosts compare their plugins once a second, then write the record. So a change may have
/// caused a problem that began this long before the record. Changes by people are recorded as they are made.
const RECORDED_WITHIN: Duration = Duration::from_secs(2);

/// `it began 2 min after the swap of plugin mailer 1.3.0 (0f3a9c41d2be) → 1.4.0 (77b01c2e9a3d)`: the last change of a plugin, route or host
/// of the scope, or of the schema, before a problem began. `it began within 2 s of …` if a host recorded its change after that. `None`
/// without such a change in the ten minutes before. Safe for a terminal.
#[must_use]
pub fn preceding_change(changes: &[Change], began: Timestamp, scope: &Scope) -> Option<String> {
    let is_near = |change: &&Change| {
        let delay = if change.hosts.is_empty() { Duration::ZERO } else { RECORDED_WITHIN };
        change.record.at <= began.plus(delay) && began.since(change.record.at) <= BEFORE
    };
    let related = changes.iter().filter(is_near).filter(|change| scope.includes(change));
    let described = related.filter_map(|change| Some((change.record.at, words(change, scope)?)));
    let (at, words) = described.max_by_key(|(at, _)| *at)?;
    Some(if at <= began {
        format!("it began {} after {words}", span(began.since(at)))
    } else {
        format!("it began within {} of {words}", span(RECORDED_WITHIN))
    })
}

/// `None` if the change cannot be the cause of a problem.
fn words(change: &Change, scope: &Scope) -> Option<String> {
    let of = selector(&change.record.selector);
    let (of, host) = (shown(&of), shown(scope.host(change).unwrap_or(&change.record.actor)));
    Some(match change.record.action.as_str() {
        "swap_plugin" => format!("the swap of plugin {of}"),
        "load_plugin" => format!("the load of plugin {of}"),
        "unload_plugin" => format!("the unload of plugin {of}"),
        "rollback_plugin" => format!("the rollback of plugin {of}"),
        "pause" => format!("the pause of {of}"),
        "resume" => format!("the resume of {of}"),
        "start_host" => format!("the start of host {host}"),
        "stop_host" => format!("the stop of host {host}"),
        "migrate" => "a migration of the schema".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::changes;
    use super::*;
    use crate::event::OwnerId;
    use crate::store::{AuditRecord, Node, NodeRecord};

    /// Events of `Order/Paid`, which the plugin `mailer` answers.
    fn scope() -> Scope {
        let plugin =
            json!({ "name": "mailer", "state": "serving", "routes": [{ "aggregate_type": "Order", "event_type": "Paid" }] });
        let report = Some(json!({ "plugins": [plugin] }).to_string());
        let node = Node::new(OwnerId::generate("web-1"), "web-1", "multi_node", "0.1.0");
        let node = changed!(NodeRecord { report, ..NodeRecord::new(&node, at(0)) });
        Scope::of_events("Order", "Paid", "timeout: no answer", &[node])
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn a_problem_names_the_last_change_in_the_ten_minutes_before() {
        let swap = json!({ "plugin": "mailer", "from": "1.3.0 (ab)", "to": "1.4.0 (cd)" });
        // The latest first, like the audit log.
        let changes = changes([
            AuditRecord::new(5, at(1_110), "web-1", "load_plugin", json!({ "plugin": "trouble", "to": "1.0.0 (ef)" })),
            AuditRecord::new(4, at(1_100), "anna", "skip", json!({ "event_id": "one" })),
            AuditRecord::new(3, at(1_000), "web-1", "swap_plugin", swap),
            AuditRecord::new(2, at(900), "web-1", "start_host", json!({ "mode": "multi_node", "version": "0.1.0" })),
        ]);
        let before = |second: i64| preceding_change(&changes, at(second), &scope());

        let swapped = "it began 2 min after the swap of plugin mailer 1.3.0 (ab) → 1.4.0 (cd)";
        assert_eq!(before(1_120).as_deref(), Some(swapped), "neither another plugin nor a change of one event explains it");
        assert_eq!(before(960).as_deref(), Some("it began 1 min after the start of host web-1"));
        assert_eq!(before(1_601), None, "too long ago");
        assert_eq!(before(897), None, "nothing preceded it");
    }

    #[test]
    fn a_problem_names_the_swap_that_its_host_recorded_just_after_it_began() {
        let swap = || json!({ "plugin": "mailer", "from": "1.3.0 (ab)", "to": "1.4.0 (cd)" });
        let began = at(1_000);
        let swapped_after = |delay: Duration| {
            changes([
                AuditRecord::new(2, began.plus(delay), "web-1 10", "swap_plugin", swap()),
                AuditRecord::new(1, at(940), "web-1 10", "start_host", json!({ "mode": "multi_node", "version": "0.1.0" })),
            ])
        };
        let soon = preceding_change(&swapped_after(Duration::from_millis(500)), began, &scope());
        assert_eq!(soon.as_deref(), Some("it began within 2 s of the swap of plugin mailer 1.3.0 (ab) → 1.4.0 (cd)"));
        let later = preceding_change(&swapped_after(Duration::from_secs(3)), began, &scope());
        assert_eq!(
            later.as_deref(),
            Some("it began 1 min after the start of host web-1 10"),
            "the swap came after the problem"
        );
        let paused =
            AuditRecord::new(3, at(1_001), "anna", "pause", json!({ "aggregate_type": "Order", "event_type": "Paid" }));
        assert_eq!(preceding_change(&changes([paused]), began, &scope()), None, "anna paused the route because of the problem");
    }
}
