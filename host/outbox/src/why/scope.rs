//! The routes, plugins and hosts of a problem. Only a change of the same routes, plugins or hosts may have caused it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::changes::Change;
use crate::event::Route;
use crate::listener::is_unroutable;
use crate::node::{DownSink, plugins};
use crate::store::NodeRecord;

/// The routes, plugins and hosts that a problem concerns.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    routes: Vec<Route>,
    /// The plugins that answer the routes.
    plugins: BTreeSet<String>,
    /// `None` for all hosts.
    hosts: Option<Vec<String>>,
    /// Whether no listener answers the routes: any plugin that was swapped or unloaded may have answered them.
    is_unanswered: bool,
}

impl Scope {
    /// The scope of events of one route, which any host may deliver. `error` says why they wait or died.
    #[must_use]
    pub fn of_events(aggregate_type: &str, event_type: &str, error: &str, nodes: &[NodeRecord]) -> Self {
        let Ok(route) = Route::new(aggregate_type, event_type) else { return Self::default() };
        let answering = nodes.iter().flat_map(plugins).filter(|plugin| plugin.routes.iter().any(|one| one.covers(&route)));
        let plugins = answering.map(|plugin| plugin.name).collect();
        Self { routes: vec![route], plugins, hosts: None, is_unanswered: is_unroutable(error) }
    }

    /// The scope of the outage of a sink: its relayed routes, and the hosts that find it down.
    #[must_use]
    pub fn of_sink(sink: &DownSink) -> Self {
        let (routes, hosts) = (sink.routes.clone(), Some(sink.hosts.clone()));
        Self { routes, hosts, ..Self::default() }
    }

    /// Whether the change is one of these routes, plugins or hosts, or of the schema.
    pub(super) fn includes(&self, change: &Change) -> bool {
        let fields = &change.record.selector;
        let name = |field: &str| fields.get(field).and_then(Value::as_str);
        let is_plugin = || name("plugin").is_some_and(|plugin| self.plugins.contains(plugin));
        match change.record.action.as_str() {
            "migrate" => true,
            "start_host" | "stop_host" => self.host(change).is_some(),
            "load_plugin" => is_plugin(),
            "swap_plugin" | "unload_plugin" | "rollback_plugin" => self.is_unanswered || is_plugin(),
            _ => {
                let route = name("aggregate_type").zip(name("event_type"));
                let route = route.and_then(|(aggregate_type, event_type)| Route::new(aggregate_type, event_type).ok());
                route.is_some_and(|route| self.routes.iter().any(|one| one.covers(&route) || route.covers(one)))
            }
        }
    }

    /// The first host of the scope that made the change.
    pub(super) fn host<'c>(&self, change: &'c Change) -> Option<&'c str> {
        let is_included = |host: &str| self.hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|one| one == host));
        // The latest comes first.
        change.hosts.iter().rev().map(String::as_str).find(|host| is_included(host))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::OwnerId;
    use crate::store::{AuditRecord, Node};
    use crate::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_micros(1_795_249_980_000_000);

    /// A host with the plugin `mailer`, which answers `Order/Paid`.
    fn host(label: &str) -> NodeRecord {
        let plugin =
            json!({ "name": "mailer", "state": "serving", "routes": [{ "aggregate_type": "Order", "event_type": "Paid" }] });
        let report = Some(json!({ "plugins": [plugin] }).to_string());
        changed!(NodeRecord {
            report,
            ..NodeRecord::new(&Node::new(OwnerId::generate(label), label, "multi_node", "0.1.0"), NOW)
        })
    }

    fn change(actor: &str, action: &str, selector: Value) -> Change {
        Change::of(AuditRecord::new(1, NOW, actor, action, selector))
    }

    fn of_route(action: &str, aggregate_type: &str, event_type: &str) -> Change {
        change("anna", action, json!({ "aggregate_type": aggregate_type, "event_type": event_type }))
    }

    fn of_plugin(action: &str, plugin: &str) -> Change {
        change("web-1", action, json!({ "plugin": plugin }))
    }

    #[test]
    fn events_concern_their_route_its_plugin_all_hosts_and_the_schema() {
        let scope = |error| Scope::of_events("Order", "Paid", error, &[host("web-1")]);
        let failed = scope("timeout: no answer");

        assert!(failed.includes(&of_route("pause", "Order", "Paid")) && failed.includes(&of_route("pause", "Order", "*")));
        assert!(!failed.includes(&of_route("resume", "__GLOBAL__", "Heartbeat")));
        assert!(failed.includes(&of_plugin("swap_plugin", "mailer")) && failed.includes(&of_plugin("load_plugin", "mailer")));
        assert!(
            !failed.includes(&of_plugin("load_plugin", "trouble")) && !failed.includes(&of_plugin("unload_plugin", "trouble"))
        );
        assert!(failed.includes(&change("web-2", "start_host", json!({}))));
        assert!(failed.includes(&change("anna", "migrate", json!({}))));

        let unanswered = scope("no listener answers Order/Paid (1 route is answered)");
        assert!(unanswered.includes(&of_plugin("unload_plugin", "trouble")), "it may have answered the route");
        assert!(!unanswered.includes(&of_plugin("load_plugin", "trouble")));
    }

    #[test]
    fn outage_of_a_sink_concerns_its_routes_and_the_hosts_that_find_it_down() {
        let scope = Scope {
            routes: vec![Route::new("Order", Route::ANY).expect("valid")],
            hosts: Some(vec!["web-2".to_owned()]),
            ..Scope::default()
        };

        assert!(
            scope.includes(&of_route("resume", "Order", "Paid")) && !scope.includes(&of_route("resume", "Invoice", "Sent"))
        );
        assert!(!scope.includes(&of_plugin("load_plugin", "mailer")));
        assert!(!scope.includes(&change("web-1", "start_host", json!({}))));
        let mut deployment = change("web-2", "start_host", json!({}));
        assert_eq!(scope.host(&deployment), Some("web-2"));
        deployment.add(AuditRecord::new(1, NOW, "web-1", "start_host", json!({})));
        assert_eq!(scope.host(&deployment), Some("web-2"), "web-1, which started first, reaches the sink");
    }
}
