//! The audit log: the changes by people and by hosts, with their reasons.

use maud::{Markup, html};
use outbox::why::{Change, changes, selector};
use outbox_event::units::{count, number};
use outbox_store::{AuditFilter, AuditRecord};
use serde_json::Value;

use crate::pages::asked::fields::Fields;
use crate::pages::document::Frame;
use crate::pages::link::query;
use crate::pages::words::{short, visible, when};

/// As many records as a page needs: one more than it shows tells whether there is another page.
pub(crate) const READ: u32 = 101;
/// Rows of a page.
const ROWS: usize = READ as usize - 1;
/// Most characters of a reason or a filter that a row shows.
const TEXT: usize = 200;

/// Which records an address asks for.
pub(crate) fn filter(asked: &Fields) -> AuditFilter {
    let text = |name: &str| Some(asked.text(name)).filter(|text| !text.is_empty()).map(str::to_owned);
    AuditFilter { actor: text("actor"), action: text("action"), before: asked.number("before"), ..AuditFilter::default() }
}

/// `records` are those that match, up to [`READ`].
pub(crate) fn page(frame: &Frame, filter: &AuditFilter, records: &[AuditRecord]) -> Markup {
    let shown = &records[..records.len().min(ROWS)];
    let is_narrow = filter.actor.is_some() || filter.action.is_some();
    html! {
        h1 { "Audit log" }
        p.quiet { "Every change by a person or a host, newest first. No host edits or deletes a record." }
        @if is_narrow || filter.before.is_some() || !records.is_empty() { (form(frame, filter, is_narrow)) }
        @if records.is_empty() {
            @if is_narrow || filter.before.is_some() { p { "No change matches." } } @else {
                p { "No changes yet. Every replay, skip, discard, pause, resume and purge is recorded here with its reason, and so is every start and stop of a host and every change of a plugin." }
            }
        } @else {
            @let cut_at = shown.last().filter(|_| records.len() > ROWS).map(|record| record.id);
            (rows(frame, &changes(shown.iter().cloned()), ROWS, cut_at))
            div.pages {
                @if filter.before.is_some() { a href=(address(frame, filter, None)) rel="first" { "← Newest" } }
                @if let (true, Some(last)) = (records.len() > ROWS, shown.last()) {
                    a href=(address(frame, filter, Some(last.id))) rel="next" { "Earlier →" }
                }
            }
        }
    }
}

/// The page for an address with an unknown kind of change.
pub(crate) fn no_such_change(frame: &Frame, filter: &AuditFilter) -> Markup {
    html! {
        h1 { "Audit log" }
        p { "There is no such change. Choose one from the list." }
        (form(frame, filter, true))
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
            label { "Changed by" input name="actor" value=(filter.actor.as_deref().unwrap_or_default()) autocomplete="off" spellcheck="false"; }
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

/// The changes as a table of at most `most` rows. `cut_at` is the ID of the earliest record that was read, if there may be earlier ones:
/// these may belong to the same change.
pub(crate) fn rows(frame: &Frame, changes: &[Change], most: usize, cut_at: Option<u64>) -> Markup {
    let now = frame.known.now();
    html! {
        table.rows {
            thead { tr { th scope="col" { "When" } th scope="col" { "Changed by" } th scope="col" { "Change" } th scope="col" { "Applied to" } th.number scope="col" { "Count" } th scope="col" { "Reason" } } }
            tbody {
                @for change in changes.iter().take(most) {
                    @let Change { record, last_at, records, hosts, .. } = change;
                    tr {
                        td.tight { (when(*last_at, now)) }
                        td { (visible(&change.who())) }
                        td.tight {
                            (visible(&record.action.replace('_', " ")))
                            @if *records > 1 && hosts.is_empty() { " " small.quiet { "in " (count(*records, "step")) } }
                        }
                        td.mono { (applied_to(frame, &record.selector)) }
                        td.number data-name="count" {
                            @if *records > 1 && cut_at == Some(record.id) { "at least " }
                            (number(record.count))
                        }
                        td.error { (record.reason.as_deref().map(|reason| visible(&short(reason, TEXT))).unwrap_or_default()) }
                    }
                }
            }
        }
    }
}

/// What a change was applied to.
fn applied_to(frame: &Frame, to: &Value) -> Markup {
    match to.get("event_id").and_then(Value::as_str) {
        Some(id) => html! { a href=(frame.event(id)) { (visible(id)) } },
        None => html! { (visible(&short(&selector(to), TEXT))) },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pages::fake::frame;

    fn record(id: u64, action: &str, selector: Value) -> AuditRecord {
        let reason = Some("spring clean".to_owned());
        let record = AuditRecord::new(id, frame().known.now(), "anna", action, selector);
        changed!(AuditRecord { count: 500, reason, ..record })
    }

    fn text(query: &str, records: &[AuditRecord]) -> String {
        page(&frame(), &filter(&Fields::of_form(query)), records).into_string()
    }

    fn rows_of(records: &[AuditRecord], is_cut: bool) -> String {
        let cut_at = records.last().filter(|_| is_cut).map(|record| record.id);
        rows(&frame(), &changes(records.iter().cloned()), ROWS, cut_at).into_string()
    }

    #[test]
    fn the_batches_of_a_purge_are_one_row_and_the_pause_before_it_stays_on_the_page_with_its_count() {
        let selector = json!({ "status": "done", "finished_before": "2026-11-23T12:00:00Z" });
        let mut records: Vec<AuditRecord> = (0..90).rev().map(|id| record(id + 2, "purge", selector.clone())).collect();
        let pause = record(1, "pause", json!({ "aggregate_type": "Order", "event_type": "Paid" }));
        records.push(changed!(AuditRecord { count: 1, ..pause }));

        // Another change came between, and what was done to one event twice are two changes.
        records.insert(40, record(500, "skip", json!({ "event_id": "e1" })));
        records.insert(41, record(501, "skip", json!({ "event_id": "e1" })));

        let text = text("", &records);

        let rows: Vec<&str> = text.split("<tr>").skip(2).collect();
        assert_eq!(rows.len(), 4, "{text}");
        assert!(rows[0].contains("in 90 steps") && rows[0].contains(">45,000<"), "{}", rows[0]);
        assert!(rows[3].contains("Order/Paid") && rows[3].contains(">1<"), "{}", rows[3]);
        let cut = rows_of(&records[..30], true);
        assert!(cut.contains("at least 15,000"), "there may be more of it: {cut}");
        let whole = rows_of(&records, true);
        assert!(whole.contains(">45,000<") && !whole.contains("at least"), "the pause came before: {whole}");
    }

    #[test]
    fn the_route_comes_first_and_earlier_changes_are_a_page_away() {
        let selector = json!({ "aggregate_type": "Order", "dead_before": "2026-11-23T12:00:00Z", "event_type": "Paid" });
        let records: Vec<AuditRecord> = (1..=u64::from(READ))
            .rev()
            .map(|id| changed!(AuditRecord { count: id, reason: None, ..record(id, "replay", selector.clone()) }))
            .collect();

        let first = text("actor=anna&action=replay", &records);
        assert!(first.contains("Order/Paid dead_before=2026-11-23T12:00:00Z"), "{first}");
        assert!(first.contains("audit?actor=anna&amp;action=replay&amp;before=2\" rel=\"next\""), "{first}");
        assert!(first.contains("<option value=\"replay\" selected>replay</option>") && !first.contains("Newest"), "{first}");

        let last = text("before=2", &records[..1]);
        assert!(last.contains("Newest") && !last.contains("Earlier"), "{last}");
        assert!(text("action=replay", &[]).contains("No change matches."));
        assert!(text("", &[]).contains("No changes yet"));
    }
}
