//! What was done by hand, by whom and why. Never edited.

use maud::{Markup, html};
use serde_json::Value;

use super::layout::Frame;
use super::words::{short, visible, when};
use crate::store::AuditRecord;
use crate::units::number;

/// How many are shown.
pub(super) const MOST: u32 = 100;
/// Most characters of a reason or a filter that a row shows.
const TEXT: usize = 200;

pub(super) fn page(frame: &Frame, records: &[AuditRecord]) -> Markup {
    html! {
        h1 { "Audit log" }
        p.quiet { "Every manual change, newest first. This list cannot be edited." }
        @if records.is_empty() {
            p { "No changes yet. Every replay, skip, discard, pause, resume and purge is recorded here with its reason." }
        } @else {
            (rows(frame, records))
            @if records.len() >= usize::try_from(MOST).unwrap_or(usize::MAX) {
                p.quiet { "These are the newest " (number(MOST.into())) " changes. To list all: " code { "outbox audit list" } }
            }
        }
    }
}

/// The records as a table.
pub(super) fn rows(frame: &Frame, records: &[AuditRecord]) -> Markup {
    let now = frame.seen.now();
    html! {
        table.rows {
            thead { tr { th scope="col" { "When" } th scope="col" { "User" } th scope="col" { "Change" } th scope="col" { "Applied to" } th.number scope="col" { "Events" } th scope="col" { "Reason" } } }
            tbody {
                @for record in records {
                    tr {
                        td.tight { (when(record.at, now)) }
                        td { (visible(&record.actor)) }
                        td.tight { (visible(&record.action.replace('_', " "))) }
                        td.mono { (selector(frame, &record.selector)) }
                        td.number { (number(record.count)) }
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
            let pairs = fields.iter().map(|(name, value)| format!("{name}={}", of(value)));
            html! { (visible(&short(&pairs.collect::<Vec<_>>().join(" "), TEXT))) }
        }
    }
}
