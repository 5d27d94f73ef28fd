//! Lists of events: the form to filter them, their rows, links to older and newer ones.

use maud::{Markup, html};
use outbox_event::units::number;
use outbox_store::Record;

use crate::pages::asked::events::WantedEvents;
use crate::pages::document::Frame;
use crate::pages::known::groups::head;
use crate::pages::link::query;
use crate::pages::words::{Stand, short, visible, when};

/// Rows of a page.
pub(crate) const ROWS: u32 = 50;

/// A page of events.
pub(crate) struct Events<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) wanted: &'a WantedEvents,
    /// Newest first; at most [`ROWS`].
    pub(crate) rows: Vec<Record>,
    /// Whether there are older and newer ones.
    pub(crate) older: bool,
    pub(crate) newer: bool,
}

impl<'a> Events<'a> {
    /// From the rows of [`WantedEvents::filter`], one more than a page has if there are more.
    pub(crate) fn of(frame: &'a Frame, wanted: &'a WantedEvents, mut rows: Vec<Record>) -> Self {
        let most = usize::try_from(ROWS).unwrap_or(usize::MAX);
        let more = rows.len() > most;
        rows.truncate(most);
        let backwards = wanted.after.is_some();
        if backwards {
            rows.reverse();
        }
        Self {
            frame,
            wanted,
            rows,
            older: if backwards { true } else { more },
            newer: if backwards { more } else { wanted.before.is_some() },
        }
    }
}

pub(crate) fn page(events: &Events<'_>) -> Markup {
    let (frame, wanted) = (events.frame, events.wanted);
    let is_empty = frame
        .known
        .snapshot
        .as_ref()
        .is_some_and(|snapshot| snapshot.unfinished() + snapshot.stats.dead + snapshot.stats.done == 0);
    html! {
        h1 { "Events" }
        (states(frame, wanted))
        (form(frame, wanted, "events", true))
        @if events.rows.is_empty() {
            @if is_empty && !wanted.is_narrow() {
                p { "No events yet. Write one: " code.all { "outbox event emit --aggregate-type Order --type OrderPlaced --payload '{}'" } }
            } @else {
                p { "No event matches." }
            }
        } @else {
            (rows(frame, &events.rows))
            (pages(events, "events"))
        }
    }
}

/// How many events stand where, as links: what moves of the page.
pub(crate) fn states(frame: &Frame, wanted: &WantedEvents) -> Markup {
    let stats = frame.known.snapshot.as_ref().map(|snapshot| snapshot.stats).unwrap_or_default();
    let states = [
        ("", None, None),
        ("new", Some(Stand::Waiting), Some(stats.new)),
        ("retry", Some(Stand::Retry), Some(stats.retry)),
        ("delayed", Some(Stand::Delayed), None),
        ("claimed", Some(Stand::Claimed), Some(stats.in_flight)),
        ("parked", Some(Stand::Parked), Some(stats.parked)),
        ("blocked", Some(Stand::Blocked), Some(stats.blocked)),
        ("dead", Some(Stand::Dead), Some(stats.dead)),
        ("done", Some(Stand::Done), Some(stats.done)),
    ];
    let chips = html! {
        ul.chips {
            @for (status, stand, count) in states {
                @let mut pairs = wanted.pairs();
                @let query = { pairs[0].1 = status; query(&pairs) };
                li { a href=(frame.to(&format!("events?{query}"))) aria-current=[(wanted.status == status).then_some("true")] {
                    @match stand { Some(stand) => (stand.show()), None => "all" }
                    @if let Some(count) = count { " " span.figure.quiet { (number(count)) } }
                } }
            }
            // The list below is as it is now.
            @if let Some(counted) = frame.counted() { li.quiet { (counted) } }
        }
    };
    frame.live("states", &chips)
}

/// Filters that cannot be read, to be mended.
pub(crate) fn unreadable(frame: &Frame, wanted: &WantedEvents, faults: &[String]) -> Markup {
    html! {
        h1 { "Events" }
        @for fault in faults { p.status.warning role="alert" { (fault) } }
        (form(frame, wanted, "events", true))
    }
}

/// The filters.
pub(crate) fn form(frame: &Frame, wanted: &WantedEvents, path: &str, with_header: bool) -> Markup {
    let hinted = |name: &'static str, label: &'static str, value: &str, hint: &'static str| {
        html! { label { (label) input name=(name) value=(value) placeholder=(hint) autocomplete="off" spellcheck="false"; } }
    };
    let field = |name, label, value: &str| hinted(name, label, value, "");
    html! {
        form.filters action=(frame.to(path)) {
            @if with_header && !wanted.status.is_empty() { input type="hidden" name="status" value=(wanted.status); }
            (field("aggregate_type", "Aggregate type", &wanted.aggregate_type))
            (field("event_type", "Event type", &wanted.event_type))
            (field("aggregate_id", "Aggregate id", &wanted.aggregate_id))
            (field("tenant_id", "Tenant", &wanted.tenant_id))
            @if with_header { (hinted("header", "Header", &wanted.header, "key=value")) }
            (field("error", "Last error contains", &wanted.error))
            @if with_header {
                (hinted("since", "Written after", &wanted.since, "1h or a time"))
                (hinted("until", "Written before", &wanted.until, "10min or a time"))
            }
            button { "Filter" }
            @if wanted.is_narrow() { a href=(frame.to(path)) { "Clear" } }
        }
    }
}

/// Events as rows.
pub(crate) fn rows(frame: &Frame, records: &[Record]) -> Markup {
    let now = frame.known.now();
    html! {
        table.rows {
            thead { tr { th scope="col" { "State" } th scope="col" { "Id" } th scope="col" { "Route" } th scope="col" { "Aggregate" } th scope="col" { "Written" } th.number scope="col" { "Failed" } th scope="col" { "Last error" } } }
            tbody {
                @for record in records {
                    tr {
                        td.tight { (Stand::of(record, now).show()) }
                        td.id.mono { a.row href=(frame.event(record.event_id)) { (record.event_id) } }
                        td.mono.route { span { (visible(&short(&format!("{}/{}", record.aggregate_type, record.event_type), 80))) } }
                        td.mono data-name=[record.aggregate_id.as_ref().map(|_| "aggregate")] { (record.aggregate_id.as_deref().map(|id| visible(&short(id, 40))).unwrap_or_default()) }
                        td.tight { (when(record.created_at, now)) }
                        td.number data-name="failed" { @match record.failures() { 0 => span.zero { "–" }, failed => (number(failed.into())) } }
                        td.error {
                            @if let Some(why) = &record.unreadable { span.clamp { "This row cannot be read: " (visible(&short(why, 160))) } }
                            @else if let Some(why) = record.waits_for() { span.clamp { (visible(&short(why, 160))) } }
                            @else if let Some(error) = &record.last_error { span.clamp { (visible(&short(head(error), 160))) } }
                        }
                    }
                }
            }
        }
    }
}

/// Links to the pages before and after.
pub(crate) fn pages(events: &Events<'_>, path: &str) -> Markup {
    let ends = events.rows.first().zip(events.rows.last());
    let link = |name: &str, seq: u64| {
        let (base, seq) = (query(&events.wanted.pairs()), seq.to_string());
        let page = query(&[(name, &seq)]);
        events.frame.to(&format!("{path}?{}", if base.is_empty() { page } else { format!("{base}&{page}") }))
    };
    html! {
        @if let Some((newest, oldest)) = ends {
            div.pages {
                @if events.newer { a href=(link("after", newest.seq)) rel="prev" { "← Newer" } }
                @if events.older { a href=(link("before", oldest.seq)) rel="next" { "Older →" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox_event::{AttemptCost, AttemptEnd, Status};

    use super::*;
    use crate::pages::fake::{frame, record};
    use crate::pages::known::snapshot::Snapshot;

    fn rows_of(number: u64) -> Vec<Record> {
        (0..number).map(|seq| changed!(Record { seq: 1_000 - seq, ..record() })).collect()
    }

    #[test]
    fn a_page_knows_whether_there_are_older_and_newer_ones() {
        let frame = frame();
        let wanted = WantedEvents { status: "dead".to_owned(), ..WantedEvents::default() };
        let whole = Events::of(&frame, &wanted, rows_of(51));
        assert_eq!((whole.rows.len(), whole.older, whole.newer), (50, true, false));
        let text = page(&whole).into_string();
        assert!(text.contains("events?status=dead&amp;before=951"), "{text}");
        assert!(!Events::of(&frame, &wanted, rows_of(50)).older);

        let back = WantedEvents { after: Some(900), ..wanted };
        let mut upwards = rows_of(51);
        upwards.reverse();
        let page = Events::of(&frame, &back, upwards);
        assert_eq!((page.rows.len(), page.older, page.newer), (50, true, true));
        assert!(page.rows.first().unwrap().seq > page.rows.last().unwrap().seq, "newest first again");
    }

    #[test]
    fn counts_that_are_older_than_the_list_beside_them_say_so() {
        let wanted = WantedEvents::default();
        let told = |age: Duration| {
            let mut frame = frame();
            let snapshot = frame.known.snapshot.take().expect("it knows a table");
            let taken = std::time::Instant::now().checked_sub(age).expect("the machine has run for so long");
            let snapshot = Snapshot { taken, nodes: snapshot.nodes.clone(), ..Snapshot::made_up(snapshot.at) };
            frame.known.snapshot = Some(std::sync::Arc::new(snapshot));
            states(&frame, &wanted).into_string()
        };
        assert!(!told(Duration::ZERO).contains("counted"), "{}", told(Duration::ZERO));
        let old = told(Duration::from_secs(40));
        assert!(old.contains("counted ") && old.contains(">40 s ago<"), "{old}");
    }

    #[test]
    fn what_a_writer_wrote_is_text_and_never_markup() {
        let frame = frame();
        let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
        let record = changed!(Record {
            event_type: evil.to_owned(),
            aggregate_id: Some(evil.to_owned()),
            last_error: Some(evil.to_owned()),
            ..record()
        });
        let wanted = WantedEvents { error: evil.to_owned(), header: evil.to_owned(), ..WantedEvents::default() };
        let text = page(&Events::of(&frame, &wanted, vec![record])).into_string();
        assert!(!text.contains("<script>") && !text.contains("<img") && text.contains("&lt;script&gt;"), "{text}");
    }

    #[test]
    fn an_event_that_was_given_up_at_its_first_attempt_failed_once_and_one_that_never_failed_shows_no_number() {
        let cost =
            |outcome| Some(AttemptCost { attempt: 1, outcome, cost: outbox_event::Cost::of_time(Duration::from_millis(3)) });
        let given_up = changed!(Record { attempts: 0, last_cost: cost(AttemptEnd::Dead), ..record() });
        let done = changed!(Record { attempts: 0, status: Status::Done, last_cost: cost(AttemptEnd::Done), ..record() });
        let shown = |row: Record| rows(&frame(), &[row]).into_string();
        assert!(shown(given_up.clone()).contains("data-name=\"failed\">1</td>"), "{}", shown(given_up));
        assert!(shown(done.clone()).contains("<span class=\"zero\">–</span>"), "{}", shown(done));
    }
}
