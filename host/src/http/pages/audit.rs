//! What was done by hand, by whom and why. Never edited.

use maud::{Markup, html};
use serde_json::Value;

use super::fields::Fields;
use super::layout::Frame;
use super::link::query;
use super::words::{short, visible, when};
use crate::store::{AuditFilter, AuditRecord};
use crate::units::{count, number};

/// As many records as a page needs: one more than it shows tells whether there is another page.
pub(super) const READ: u32 = 101;
/// Rows of a page.
const ROWS: usize = READ as usize - 1;
/// Most characters of a reason or a filter that a row shows.
const TEXT: usize = 200;
/// What is done to a route or a plugin: its count is not one of events.
const OF_NO_EVENTS: [&str; 5] = ["pause", "resume", "forget_route", "delete_state", "refused_login"];

/// Which records an address asks for.
pub(super) fn filter(asked: &Fields) -> AuditFilter {
    let text = |name: &str| Some(asked.text(name)).filter(|text| !text.is_empty()).map(str::to_owned);
    AuditFilter { actor: text("actor"), action: text("action"), before: asked.number("before"), ..AuditFilter::default() }
}

/// `records` are those that match, up to [`READ`].
pub(super) fn page(frame: &Frame, filter: &AuditFilter, records: &[AuditRecord]) -> Markup {
    let shown = &records[..records.len().min(ROWS)];
    let is_narrow = filter.actor.is_some() || filter.action.is_some();
    html! {
        h1 { "Audit log" }
        p.quiet { "Every manual change, newest first. This list cannot be edited." }
        @if is_narrow || filter.before.is_some() || !records.is_empty() { (form(frame, filter, is_narrow)) }
        @if records.is_empty() {
            @if is_narrow || filter.before.is_some() { p { "No change matches." } } @else {
                p { "No changes yet. Every replay, skip, discard, pause, resume and purge is recorded here with its reason." }
            }
        } @else {
            (rows(frame, shown, ROWS))
            div.pages {
                @if filter.before.is_some() { a href=(address(frame, filter, None)) rel="first" { "← Newest" } }
                @if let (true, Some(last)) = (records.len() > ROWS, shown.last()) {
                    a href=(address(frame, filter, Some(last.id))) rel="next" { "Earlier →" }
                }
            }
        }
    }
}

fn address(frame: &Frame, filter: &AuditFilter, before: Option<u64>) -> String {
    let (before, text) =
        (before.map_or_else(String::new, |id| id.to_string()), |text: &Option<String>| text.clone().unwrap_or_default());
    frame.to(&format!(
        "audit?{}",
        query(&[("actor", &text(&filter.actor)), ("action", &text(&filter.action)), ("before", &before)])
    ))
}

fn form(frame: &Frame, filter: &AuditFilter, is_narrow: bool) -> Markup {
    html! {
        form.filters action=(frame.to("audit")) {
            label { "User" input name="actor" value=(filter.actor.as_deref().unwrap_or_default()) autocomplete="off" spellcheck="false"; }
            label { "Change"
                select name="action" {
                    option value="" { "any" }
                    @for action in AuditFilter::ACTIONS { option value=(action) selected[filter.action.as_deref() == Some(action)] { (action.replace('_', " ")) } }
                }
            }
            button { "Filter" }
            @if is_narrow { a href=(frame.to("audit")) { "Clear" } }
        }
    }
}

/// The records as a table of so many rows at most. A purge or replay of many events has a record for each of its batches: they are one row.
pub(super) fn rows(frame: &Frame, records: &[AuditRecord], most: usize) -> Markup {
    let now = frame.seen.now();
    let is_same = |one: &AuditRecord, other: &AuditRecord| {
        (&one.actor, &one.action, &one.reason, &one.selector) == (&other.actor, &other.action, &other.reason, &other.selector)
    };
    html! {
        table.rows {
            thead { tr { th scope="col" { "When" } th scope="col" { "User" } th scope="col" { "Change" } th scope="col" { "Applied to" } th.number scope="col" { "Events" } th scope="col" { "Reason" } } }
            tbody {
                @for batches in records.chunk_by(is_same).take(most) {
                    @let record = &batches[0];
                    tr {
                        td.tight { (when(record.at, now)) }
                        td { (visible(&record.actor)) }
                        td.tight {
                            (visible(&record.action.replace('_', " ")))
                            @if batches.len() > 1 { " " small.quiet { "in " (count(batches.len() as u64, "step")) } }
                        }
                        td.mono { (selector(frame, &record.selector)) }
                        td.number data-name="events" {
                            @if OF_NO_EVENTS.contains(&record.action.as_str()) { "–" } @else {
                                (number(batches.iter().fold(0, |sum, batch| sum.saturating_add(batch.count))))
                            }
                        }
                        td.error { (record.reason.as_deref().map(|reason| visible(&short(reason, TEXT))).unwrap_or_default()) }
                    }
                }
            }
        }
    }
}

/// To what it was done.
fn selector(frame: &Frame, selector: &Value) -> Markup {
    let Some(fields) = selector.as_object() else { return html! { (visible(&selector.to_string())) } };
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    match (text("event_id"), text("aggregate_type"), text("event_type"), fields.len()) {
        (Some(id), ..) => html! { a href=(frame.event(id)) { (visible(id)) } },
        (None, Some(aggregate), Some(event), 2) => html! { (visible(&format!("{aggregate}/{event}"))) },
        _ if fields.is_empty() => html! { "everything" },
        _ => {
            let of = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let route = match (text("aggregate_type"), text("event_type")) {
                (Some(aggregate), Some(event)) => Some(format!("{aggregate}/{event}")),
                _ => None,
            };
            let is_told = |name: &str| route.is_some() && matches!(name, "aggregate_type" | "event_type");
            let pairs = fields.iter().filter(|(name, _)| !is_told(name)).map(|(name, value)| format!("{name}={}", of(value)));
            html! { (visible(&short(&route.clone().into_iter().chain(pairs).collect::<Vec<_>>().join(" "), TEXT))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::pages::fake::frame;

    fn record(id: u64, action: &str, selector: Value) -> AuditRecord {
        let reason = Some("spring clean".to_owned());
        AuditRecord {
            id,
            at: frame().seen.now(),
            actor: "anna".to_owned(),
            action: action.to_owned(),
            selector,
            count: 500,
            reason,
        }
    }

    fn text(query: &str, records: &[AuditRecord]) -> String {
        page(&frame(), &filter(&Fields::of_form(query)), records).into_string()
    }

    #[test]
    fn the_batches_of_a_purge_are_one_row_and_the_pause_before_it_stays_on_the_page() {
        let selector = json!({ "status": "done", "finished_before": "2026-11-23T12:00:00Z" });
        let mut records: Vec<AuditRecord> = (0..90).rev().map(|id| record(id + 2, "purge", selector.clone())).collect();
        records.push(record(1, "pause", json!({ "aggregate_type": "Order", "event_type": "Paid" })));

        let text = text("", &records);

        let rows: Vec<&str> = text.split("<tr>").skip(2).collect();
        assert_eq!(rows.len(), 2, "{text}");
        assert!(rows[0].contains("in 90 steps") && rows[0].contains(">45,000<"), "{}", rows[0]);
        assert!(rows[1].contains("Order/Paid") && rows[1].contains(">–<"), "{}", rows[1]);
    }

    #[test]
    fn the_route_comes_first_and_earlier_changes_are_a_page_away() {
        let selector = json!({ "aggregate_type": "Order", "dead_before": "2026-11-23T12:00:00Z", "event_type": "Paid" });
        let records: Vec<AuditRecord> = (1..=u64::from(READ))
            .rev()
            .map(|id| AuditRecord { count: id, reason: None, ..record(id, "replay", selector.clone()) })
            .collect();

        let first = text("actor=anna&action=replay", &records);
        assert!(first.contains("Order/Paid dead_before=2026-11-23T12:00:00Z"), "{first}");
        assert!(first.contains("audit?actor=anna&amp;action=replay&amp;before=2\" rel=\"next\""), "{first}");
        assert!(first.contains("<option value=\"replay\" selected>replay</option>") && !first.contains("Newest"), "{first}");

        let last = text("before=2", &records[..1]);
        assert!(last.contains("Newest") && !last.contains("Earlier"), "{last}");
        assert!(text("action=nonsense", &[]).contains("No change matches."));
        assert!(text("", &[]).contains("No changes yet"));
    }
}
