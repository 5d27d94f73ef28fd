//! Lists of events: filters, rows, pages.

use maud::{Markup, html};

use super::groups::head;
use super::layout::Frame;
use super::link::query;
use super::words::{Stand, short, visible, when};
use crate::event::{EventId, Status};
use crate::store::{DeadFilter, Filter, Record, SetAside};
use crate::time::Timestamp;
use crate::units::{When, number};

/// Rows of a page.
pub(super) const ROWS: u32 = 50;

/// What the address asks for, as it was written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wanted {
    /// `new`, `retry`, `delayed`, `in_flight`, `parked`, `blocked`, `dead`, `done`; anything else for all.
    pub(super) status: String,
    pub(super) event_type: String,
    pub(super) aggregate_type: String,
    pub(super) aggregate_id: String,
    pub(super) tenant_id: String,
    /// `key=value`.
    pub(super) header: String,
    /// A text of the last error.
    pub(super) error: String,
    /// Written no earlier than this: a time, or how long ago.
    pub(super) since: String,
    /// Written no later than this.
    pub(super) until: String,
    /// Inserted before this row.
    pub(super) before: Option<u64>,
    /// Inserted after this row.
    pub(super) after: Option<u64>,
}

impl Wanted {
    /// The parameters without those of pages.
    pub(super) fn pairs(&self) -> [(&'static str, &str); 9] {
        [
            ("status", &self.status),
            ("aggregate_type", &self.aggregate_type),
            ("event_type", &self.event_type),
            ("aggregate_id", &self.aggregate_id),
            ("tenant_id", &self.tenant_id),
            ("header", &self.header),
            ("error", &self.error),
            ("since", &self.since),
            ("until", &self.until),
        ]
    }

    /// Whether something beside the state is asked for.
    pub(super) fn is_narrow(&self) -> bool {
        self.pairs().iter().skip(1).any(|(_, value)| !value.is_empty())
    }

    /// What cannot be read of it, a sentence each: a filter that is written wrong must not mean everything.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if !self.header.is_empty() && self.header_pair().is_none() {
            faults.push(format!("The header is “{}”; write key=value.", visible(&self.header)));
        }
        for (name, text) in [("Written after", &self.since), ("Written before", &self.until)] {
            if !text.is_empty() && text.parse::<When>().is_err() {
                faults.push(format!("{name} is “{}”; {}.", visible(text), When::HINT));
            }
        }
        if self.pairs().iter().any(|(_, value)| value.contains('\0')) {
            faults.push("A filter contains a NUL character, which no text of an event can contain.".to_owned());
        }
        faults
    }

    fn header_pair(&self) -> Option<(String, String)> {
        self.header.split_once('=').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
    }

    /// The rows to list; spans count back from `now`.
    pub(super) fn filter(&self, now: Timestamp) -> Filter {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let time = |text: &str| text.parse::<When>().ok().map(|when| when.from(now));
        let status = match self.status.as_str() {
            "new" => Some(Status::New),
            "retry" => Some(Status::Retry),
            "dead" => Some(Status::Dead),
            "done" => Some(Status::Done),
            _ => None,
        };
        let set_aside = match self.status.as_str() {
            "parked" => Some(SetAside::Parked),
            "blocked" => Some(SetAside::Blocked),
            "delayed" => Some(SetAside::Delayed),
            "in_flight" => Some(SetAside::InFlight),
            _ => None,
        };
        Filter {
            status,
            set_aside,
            event_type: some(&self.event_type),
            aggregate_type: some(&self.aggregate_type),
            aggregate_id: some(&self.aggregate_id),
            tenant_id: some(&self.tenant_id),
            header: self.header_pair(),
            error: some(&self.error),
            created_after: time(&self.since),
            created_before: time(&self.until),
            before: self.before,
            after: self.after,
            newest_first: self.after.is_none(),
            ..Filter::default()
        }
    }

    /// The dead events to count or replay, dead by `dead_before`.
    pub(super) fn dead_filter(&self, dead_before: Timestamp) -> DeadFilter {
        let Filter { event_type, aggregate_type, aggregate_id, tenant_id, error, .. } = self.filter(dead_before);
        DeadFilter {
            event_type,
            aggregate_type,
            aggregate_id,
            tenant_id,
            error,
            dead_before: Some(dead_before),
            ..DeadFilter::default()
        }
    }

    /// What is asked for, in words: `of Order/Paid, with “deadline” in the last error`; empty for everything.
    pub(super) fn in_words(&self) -> String {
        let mut parts = Vec::new();
        match (self.aggregate_type.as_str(), self.event_type.as_str()) {
            ("", "") => {}
            (aggregate, "") => parts.push(format!("of aggregates {aggregate}")),
            ("", event) => parts.push(format!("of type {event}")),
            (aggregate, event) => parts.push(format!("of {aggregate}/{event}")),
        }
        let named = [(&self.aggregate_id, "of aggregate"), (&self.tenant_id, "of tenant")];
        parts.extend(named.iter().filter(|(value, _)| !value.is_empty()).map(|(value, what)| format!("{what} {value}")));
        if !self.error.is_empty() {
            parts.push(format!("with “{}” in the last error", self.error));
        }
        visible(&parts.join(", "))
    }
}

/// A page of events.
pub(super) struct Events<'a> {
    pub(super) frame: &'a Frame,
    pub(super) wanted: &'a Wanted,
    /// Newest first; at most [`ROWS`].
    pub(super) rows: Vec<Record>,
    /// Whether there are older and newer ones.
    pub(super) older: bool,
    pub(super) newer: bool,
}

impl<'a> Events<'a> {
    /// Of the rows of [`Wanted::filter`], one more than a page has where there are more.
    pub(super) fn of(frame: &'a Frame, wanted: &'a Wanted, mut rows: Vec<Record>) -> Self {
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

pub(super) fn page(events: &Events<'_>) -> Markup {
    let (frame, wanted) = (events.frame, events.wanted);
    let is_empty = frame.seen.look.as_ref().is_some_and(|look| look.unfinished() + look.stats.dead + look.stats.done == 0);
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
pub(super) fn states(frame: &Frame, wanted: &Wanted) -> Markup {
    let stats = frame.seen.look.as_ref().map(|look| look.stats).unwrap_or_default();
    let states = [
        ("", None, None),
        ("new", Some(Stand::Waiting), Some(stats.new)),
        ("retry", Some(Stand::Retry), Some(stats.retry)),
        ("delayed", Some(Stand::Delayed), None),
        ("in_flight", Some(Stand::InFlight), Some(stats.in_flight)),
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
        }
    };
    frame.live("states", &chips)
}

/// Filters that cannot be read, to be mended.
pub(super) fn unreadable(frame: &Frame, wanted: &Wanted, faults: &[String]) -> Markup {
    html! {
        h1 { "Events" }
        @for fault in faults { p.status.warning role="alert" { (fault) } }
        (form(frame, wanted, "events", true))
    }
}

/// The filters.
pub(super) fn form(frame: &Frame, wanted: &Wanted, path: &str, with_header: bool) -> Markup {
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
pub(super) fn rows(frame: &Frame, records: &[Record]) -> Markup {
    let now = frame.seen.now();
    html! {
        table.rows {
            thead { tr { th scope="col" { "State" } th scope="col" { "Id" } th scope="col" { "Route" } th scope="col" { "Aggregate" } th scope="col" { "Written" } th.number scope="col" { "Failed" } th scope="col" { "Last error" } } }
            tbody {
                @for record in records {
                    tr {
                        td.tight { (Stand::of(record, now).show()) }
                        td.id.mono { a.row href=(frame.event(record.event_id)) { (record.event_id) } }
                        td.mono.route { (visible(&short(&format!("{}/{}", record.aggregate_type, record.event_type), 80))) }
                        td.mono data-name=[record.aggregate_id.as_ref().map(|_| "aggregate")] { (record.aggregate_id.as_deref().map(|id| visible(&short(id, 40))).unwrap_or_default()) }
                        td.tight { (when(record.created_at, now)) }
                        td.number data-name="failed" { @match record.failures() { 0 => span.zero { "–" }, failed => (number(failed.into())) } }
                        td.error { @if let Some(error) = &record.last_error { span.clamp { (visible(&short(head(error), 160))) } } }
                    }
                }
            }
        }
    }
}

/// Links to the pages before and after.
pub(super) fn pages(events: &Events<'_>, path: &str) -> Markup {
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

/// The event that a search means, where it is an id.
pub(super) fn as_id(text: &str) -> Option<EventId> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::pages::fake::{frame, record};
    use crate::store::{AttemptCost, AttemptEnd};

    fn rows_of(number: u64) -> Vec<Record> {
        (0..number).map(|seq| Record { seq: 1_000 - seq, ..record() }).collect()
    }

    #[test]
    fn a_page_knows_whether_there_are_older_and_newer_ones() {
        let frame = frame();
        let wanted = Wanted { status: "dead".to_owned(), ..Wanted::default() };
        let whole = Events::of(&frame, &wanted, rows_of(51));
        assert_eq!((whole.rows.len(), whole.older, whole.newer), (50, true, false));
        let text = page(&whole).into_string();
        assert!(text.contains("events?status=dead&amp;before=951"), "{text}");
        assert!(!Events::of(&frame, &wanted, rows_of(50)).older);

        let back = Wanted { after: Some(900), ..wanted };
        let mut upwards = rows_of(51);
        upwards.reverse();
        let page = Events::of(&frame, &back, upwards);
        assert_eq!((page.rows.len(), page.older, page.newer), (50, true, true));
        assert!(page.rows.first().unwrap().seq > page.rows.last().unwrap().seq, "newest first again");
    }

    #[test]
    fn what_a_writer_wrote_is_text_and_never_markup() {
        let frame = frame();
        let evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
        let record = Record {
            event_type: evil.to_owned(),
            aggregate_id: Some(evil.to_owned()),
            last_error: Some(evil.to_owned()),
            ..record()
        };
        let wanted = Wanted { error: evil.to_owned(), header: evil.to_owned(), ..Wanted::default() };
        let text = page(&Events::of(&frame, &wanted, vec![record])).into_string();
        assert!(!text.contains("<script>") && !text.contains("<img") && text.contains("&lt;script&gt;"), "{text}");
    }

    #[test]
    fn an_event_that_was_given_up_at_its_first_attempt_failed_once_and_one_that_never_failed_shows_no_number() {
        let cost =
            |outcome| Some(AttemptCost { attempt: 1, outcome, cost: crate::event::Cost::of_time(Duration::from_millis(3)) });
        let given_up = Record { attempts: 0, last_cost: cost(AttemptEnd::Dead), ..record() };
        let done = Record { attempts: 0, status: Status::Done, last_cost: cost(AttemptEnd::Done), ..record() };
        let shown = |row: Record| rows(&frame(), &[row]).into_string();
        assert!(shown(given_up.clone()).contains("data-name=\"failed\">1</td>"), "{}", shown(given_up));
        assert!(shown(done.clone()).contains("<span class=\"zero\">–</span>"), "{}", shown(done));
    }

    #[test]
    fn a_filter_in_words_says_what_a_replay_would_take() {
        let wanted =
            Wanted { aggregate_type: "Order".into(), event_type: "Paid".into(), error: "deadline".into(), ..Wanted::default() };
        assert_eq!(wanted.in_words(), "of Order/Paid, with “deadline” in the last error");
        assert_eq!(Wanted::default().in_words(), "");
        let filter = wanted.dead_filter(Timestamp::from_micros(5));
        assert_eq!(
            (filter.event_type.as_deref(), filter.error.as_deref(), filter.dead_before),
            (Some("Paid"), Some("deadline"), Some(Timestamp::from_micros(5)))
        );
    }
}
