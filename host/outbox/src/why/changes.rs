//! Changes as people see them. The batches of one replay leave one audit record each, and so does each host that loads the same
//! file; here they are one change.

use std::time::Duration;

use serde_json::Value;

use crate::node::machine;
use crate::store::AuditRecord;
use crate::time::Timestamp;
use crate::units::count;

/// The longest time between two batches of one replay, or between two hosts that make the same change.
const BETWEEN_PARTS: Duration = Duration::from_secs(60);
/// The actions of hosts. Each host records its own.
const BY_HOSTS: [&str; 5] = ["start_host", "stop_host", "load_plugin", "swap_plugin", "unload_plugin"];

/// A change, which left one audit record or several.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Change {
    /// Its first audit record, but with the `count` of all of them.
    pub record: AuditRecord,
    /// When its last audit record was written.
    pub last_at: Timestamp,
    /// How many audit records it left.
    pub records: u64,
    /// The hosts that made it, the latest first; empty if a person made it.
    pub hosts: Vec<String>,
}

impl Change {
    pub(super) fn of(record: AuditRecord) -> Self {
        let hosts = if is_by_host(&record) { vec![record.actor.clone()] } else { Vec::new() };
        Self { last_at: record.at, records: 1, hosts, record }
    }

    /// The user, token or host that made it; of several hosts, the first one and the number of the others.
    #[must_use]
    pub fn who(&self) -> String {
        match self.hosts.len().saturating_sub(1) {
            0 => self.record.actor.clone(),
            others => format!("{} and {}", self.record.actor, count(others as u64, "other host")),
        }
    }

    /// Whether an older record is another batch of this change, or the same change on another host.
    pub(super) fn has_part(&self, older: &AuditRecord) -> bool {
        let is_near = self.record.at.since(older.at) <= BETWEEN_PARTS;
        let is_next_batch = || is_batch(older) && self.record.actor == older.actor;
        is_near && self.is_like(older) && (is_next_batch() || self.is_on_another_host(older))
    }

    /// Whether none of the hosts of this change made the record. A host that is started again has another process number, so starts and
    /// stops on one machine are separate changes.
    fn is_on_another_host(&self, older: &AuditRecord) -> bool {
        let made_it = |host: &String| match older.action.as_str() {
            "start_host" | "stop_host" => machine(host) == machine(&older.actor),
            _ => *host == older.actor,
        };
        is_by_host(older) && !self.hosts.iter().any(made_it)
    }

    /// Whether an older record says that the same was done before, by the same person.
    pub(super) fn is_repeated_by(&self, older: &AuditRecord) -> bool {
        self.is_like(older) && self.record.actor == older.actor
    }

    fn is_like(&self, older: &AuditRecord) -> bool {
        let AuditRecord { action, selector, reason, .. } = &self.record;
        (action, selector, reason) == (&older.action, &older.selector, &older.reason)
    }

    /// Adds an older record of the same change.
    pub(super) fn add(&mut self, older: AuditRecord) {
        if is_by_host(&older) {
            self.hosts.push(older.actor.clone());
        }
        let newer = std::mem::replace(&mut self.record, older);
        self.record.count = self.record.count.saturating_add(newer.count);
        self.records += 1;
    }
}

/// The changes behind these audit records, the latest first like the records. All batches of one replay or purge are one change, and so
/// is the same change on several hosts; each other record is a change by itself.
pub fn changes(records: impl IntoIterator<Item = AuditRecord>) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for record in records {
        // All other records are changes by themselves, and there may be thousands.
        let may_be_part = is_batch(&record) || is_by_host(&record);
        let same = if may_be_part { changes.iter_mut().rev().find(|change| change.has_part(&record)) } else { None };
        match same {
            Some(change) => change.add(record),
            None => changes.push(Change::of(record)),
        }
    }
    changes
}

/// Whether the record may be one batch of many: then its selector has the time by which the events had finished.
pub(super) fn is_batch(record: &AuditRecord) -> bool {
    ["dead_before", "finished_before"].into_iter().any(|field| record.selector.get(field).is_some())
}

fn is_by_host(record: &AuditRecord) -> bool {
    BY_HOSTS.contains(&record.action.as_str())
}

/// The selector of a change on one line. A route or a plugin comes first: `Order/OrderPlaced error=timeout`,
/// `mailer 1.3.0 (0f3a9c41d2be) → 1.4.0 (77b01c2e9a3d)`; `all` for a filter without conditions.
#[must_use]
pub fn selector(selector: &Value) -> String {
    let Some(fields) = selector.as_object() else { return selector.to_string() };
    let name_of = |field: &str| fields.get(field).and_then(Value::as_str);
    let route = name_of("aggregate_type").zip(name_of("event_type"));
    let plugin = name_of("plugin").map(|plugin| versions(plugin, name_of("from"), name_of("to")));
    let is_told = |name: &str| {
        route.is_some() && matches!(name, "aggregate_type" | "event_type")
            || plugin.is_some() && matches!(name, "plugin" | "from" | "to")
    };
    let others = fields
        .iter()
        .filter(|(name, value)| !value.is_null() && !is_told(name))
        .map(|(name, value)| format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    let route = route.map(|(aggregate_type, event_type)| format!("{aggregate_type}/{event_type}"));
    let told: Vec<String> = route.into_iter().chain(plugin.clone()).chain(others).collect();
    if told.is_empty() { "all".to_owned() } else { told.join(" ") }
}

/// A plugin, and which version replaced which.
fn versions(plugin: &str, from: Option<&str>, to: Option<&str>) -> String {
    match (from, to) {
        (None, None) => plugin.to_owned(),
        (Some(from), Some(to)) if from == to => format!("{plugin} {to} (its manifest or settings changed)"),
        (Some(from), Some(to)) => format!("{plugin} {from} → {to}"),
        (Some(one), None) | (None, Some(one)) => format!("{plugin} {one}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn by(host: &str, second: i64, action: &str, selector: Value) -> AuditRecord {
        let at = Timestamp::from_micros(second * 1_000_000);
        AuditRecord::new(second.unsigned_abs(), at, host, action, selector)
    }

    #[test]
    fn the_same_swap_on_three_hosts_is_one_change_and_a_swap_back_is_another() {
        let swap = |from: &str, to: &str| json!({ "plugin": "mailer", "from": from, "to": to });
        let records = [
            by("web-1", 300, "swap_plugin", swap("1", "2")),
            by("web-1", 40, "swap_plugin", swap("2", "1")),
            by("web-3", 12, "swap_plugin", swap("1", "2")),
            by("anna", 11, "pause", json!({ "aggregate_type": "Order", "event_type": "Paid" })),
            by("web-2", 11, "swap_plugin", swap("1", "2")),
            by("web-1", 10, "swap_plugin", swap("1", "2")),
        ];

        let changes = changes(records);

        let told: Vec<_> = changes.iter().map(|change| (change.who(), selector(&change.record.selector))).collect();
        let wanted = [
            ("web-1", "mailer 1 → 2"),
            ("web-1", "mailer 2 → 1"),
            ("web-1 and 2 other hosts", "mailer 1 → 2"),
            ("anna", "Order/Paid"),
        ];
        assert_eq!(told, wanted.map(|(who, what)| (who.to_owned(), what.to_owned())));
        let shared = &changes[2];
        assert_eq!((shared.record.at, shared.record.count, shared.records), (Timestamp::from_micros(10_000_000), 3, 3));
    }

    #[test]
    fn a_host_that_starts_again_and_again_is_told_each_time() {
        let about = || json!({ "mode": "multi_node", "version": "0.1.0" });
        let told = |actors: [&str; 3]| {
            let seconds = [30, 20, 10];
            let records = actors.into_iter().zip(seconds).map(|(actor, second)| by(actor, second, "start_host", about()));
            changes(records).iter().map(Change::who).collect::<Vec<_>>()
        };
        assert_eq!(told(["web-1 9", "web-1 9", "web-1 9"]), ["web-1 9", "web-1 9", "web-1 9"], "in a container");
        assert_eq!(told(["web-1 13", "web-1 11", "web-1 9"]), ["web-1 13", "web-1 11", "web-1 9"]);
        assert_eq!(told(["web-3 9", "web-2 9", "web-1 9"]), ["web-1 9 and 2 other hosts"], "a deployment");
    }

    #[test]
    fn a_swap_by_two_hosts_of_one_machine_is_one_change() {
        let swap = || json!({ "plugin": "mailer", "from": "1", "to": "2" });
        let changes = changes([by("web-1 11", 11, "swap_plugin", swap()), by("web-1 9", 10, "swap_plugin", swap())]);
        assert_eq!(changes.iter().map(Change::who).collect::<Vec<_>>(), ["web-1 9 and 1 other host"]);
    }

    #[test]
    fn a_selector_is_said_on_one_line() {
        let filter = json!({ "event_type": "OrderPlaced", "max_attempts": 3, "tenant_id": null });
        assert_eq!(selector(&filter), "event_type=OrderPlaced max_attempts=3");
        assert_eq!(selector(&json!({})), "all");
        let of_route = json!({ "aggregate_type": "Order", "dead_before": "2026-11-23", "event_type": "OrderPlaced" });
        assert_eq!(selector(&of_route), "Order/OrderPlaced dead_before=2026-11-23", "which events comes first");
        assert_eq!(selector(&json!({ "plugin": "totals", "key": "/ada" })), "totals key=/ada");
        assert_eq!(selector(&json!({ "plugin": "mailer", "to": "1.0.0 (ab)" })), "mailer 1.0.0 (ab)");
        let same = json!({ "plugin": "mailer", "from": "1.0.0 (ab)", "to": "1.0.0 (ab)" });
        assert_eq!(selector(&same), "mailer 1.0.0 (ab) (its manifest or settings changed)");
    }
}
