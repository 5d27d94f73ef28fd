//! What happened to an event, as far as its row and the record of what is done by hand tell.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Facts;
use crate::deceptive::shown;
use crate::event::{Route, Status};
use crate::store::{AuditRecord, Record};
use crate::time::Timestamp;
use crate::units::span;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(feature = "http", derive(utoipa::ToSchema))]
pub struct Step {
    /// When, by the database's clock; that it happened, by its writer's.
    pub at: Timestamp,
    /// What, in words.
    pub what: String,
}

/// What happened, oldest first. The row keeps the last claim only: earlier ones are told by its counters.
pub(super) fn history(known: &Facts, audit: &[AuditRecord]) -> Vec<Step> {
    let record = &known.record;
    let mut steps = vec![
        Step { at: record.occurred_at, what: "it happened, by the clock of its writer".to_owned() },
        Step { at: record.created_at, what: inserted(record) },
    ];
    let mut add = |at: Option<Timestamp>, what: String| steps.extend(at.map(|at| Step { at, what }));
    if record.available_at > record.created_at {
        add(Some(record.available_at), "the earliest delivery that its writer asked for".to_owned());
    }
    add(record.expires_at, "expires, and is given up if it has not been delivered".to_owned());
    let holder = record.locked_by.as_deref().unwrap_or_default();
    let label = known.nodes.iter().find(|node| node.owner == holder).map_or(holder, |node| &node.label);
    add(record.locked_at, format!("claimed by {}, its claim number {}", shown(label), record.claim_seq));
    let finished = match record.status {
        Status::Dead if record.blocks => "given up; later events of its aggregate wait for it",
        Status::Dead => "given up",
        _ => "it was delivered",
    };
    add(record.done_at, finished.to_owned());
    for entry in audit.iter().filter(|entry| entry.at >= record.created_at) {
        if let Some(what) = by_hand(record, entry) {
            steps.push(Step { at: entry.at, what });
        }
    }
    steps.sort_by_key(|step| step.at);
    steps
}

fn inserted(record: &Record) -> String {
    let by_database = "it was inserted, by the database's clock";
    let apart = record.created_at.since(record.occurred_at).max(record.occurred_at.since(record.created_at));
    if apart.as_millis() < 1_000 { by_database.to_owned() } else { format!("{by_database}, {} apart", span(apart)) }
}

/// What somebody did that touches this event; `None` when it does not.
fn by_hand(record: &Record, entry: &AuditRecord) -> Option<String> {
    let field = |name: &str| entry.selector.get(name).and_then(Value::as_str);
    let why = entry.reason.as_deref().map_or_else(String::new, |reason| format!(": {}", shown(reason)));
    let who = shown(&entry.actor);
    if let Some(id) = field("event_id") {
        return (id == record.event_id.as_str()).then(|| format!("{} by {who}{why}", entry.action));
    }
    let fits = |name: &str, own: Option<&str>| field(name).is_none_or(|wanted| own == Some(wanted));
    let matches = fits("event_type", Some(&record.event_type))
        && fits("aggregate_type", Some(&record.aggregate_type))
        && fits("aggregate_id", record.aggregate_id.as_deref())
        && fits("tenant_id", record.tenant_id.as_deref());
    match entry.action.as_str() {
        "pause" | "resume" => {
            let route = |aggregate_type: &str, event_type: &str| Route::new(aggregate_type, event_type).ok();
            let changed = route(field("aggregate_type")?, field("event_type")?)?;
            let own = route(&record.aggregate_type, &record.event_type)?;
            let which = if changed == own { "its route".to_owned() } else { shown(&changed.to_string()).into_owned() };
            changed.covers(&own).then(|| format!("{} of {which} by {who}{why}", entry.action))
        }
        // Which events a filter met is not kept.
        "replay" if matches && record.replays > 0 => {
            let (count, which) = (entry.count, selector(&entry.selector));
            Some(format!("replay of {count} dead events ({}) by {who}, maybe this one{why}", shown(&which)))
        }
        "retry_now" if record.attempts > 0 => {
            Some(format!("retry of {} failed events by {who}, maybe this one{why}", entry.count))
        }
        _ => None,
    }
}

/// What something was done to by hand, as one line: `event_type=OrderPlaced error=timeout`; `all` for a filter without conditions.
#[must_use]
pub fn selector(selector: &Value) -> String {
    let Some(fields) = selector.as_object() else { return selector.to_string() };
    let fields: Vec<String> = fields
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        .collect();
    if fields.is_empty() { "all".to_owned() } else { fields.join(" ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_is_said_on_one_line() {
        let filter = json!({ "event_type": "OrderPlaced", "max_attempts": 3, "tenant_id": null });
        assert_eq!(selector(&filter), "event_type=OrderPlaced max_attempts=3");
        assert_eq!(selector(&json!({})), "all");
    }
}
