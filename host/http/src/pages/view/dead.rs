//! Dead events: grouped by error, then one by one; replays and discards of many.

use std::sync::Arc;

use maud::{Markup, html};
use outbox_event::time::Timestamp;
use outbox_event::units::{count, number};
use outbox_store::Record;

use super::events::{self, Events};
use crate::pages::asked::events::WantedEvents;
use crate::pages::document::Frame;
use crate::pages::jobs::{Action, Ended, Job};
use crate::pages::known::groups::{Group, groups};
use crate::pages::known::snapshot::SAMPLE;
use crate::pages::link::query;
use crate::pages::words::{short, verb, visible, when, when_or_dash};

/// How many groups are shown.
const GROUPS: usize = 20;

/// The page; `matching` is how many dead events match the filter.
pub(crate) fn page(events: &Events<'_>, matching: u64, jobs: &[(u64, Arc<Job>)]) -> Markup {
    let (frame, wanted) = (events.frame, events.wanted);
    let Some(snapshot) = &frame.known.snapshot else { return html! { h1 { "Dead events" } } };
    if snapshot.stats.dead == 0 && !wanted.is_narrow() && matching == 0 {
        return html! { h1 { "Dead events" } p { "No dead events." } (running(frame, jobs)) };
    }
    let groups = groups(&snapshot.dead);
    let of = wanted.in_words();
    let pairs = query(&wanted.pairs());
    html! {
        h1 { "Dead events" }
        (running(frame, jobs))
        @if !wanted.is_narrow() {
            @if snapshot.stats.dead > u64::from(SAMPLE) {
                p.quiet { "The newest " (number(SAMPLE.into())) " of " (number(snapshot.stats.dead)) " dead events, grouped by error:" }
            }
            (by_error(frame, &groups))
        }
        h2 { (count(matching, "dead event")) @if !of.is_empty() { " " (of) } }
        // With a filter they were counted for this page.
        @if !wanted.is_narrow() && let Some(counted) = frame.counted() {
            p.quiet { (counted) "; the list is as it is now" }
        }
        (events::form(frame, wanted, "dead", false))
        @if frame.may_act && matching > 0 {
            div.row-of {
                a.button href=(frame.to(&format!("dead/replay?{pairs}"))) { "Replay " (all(matching)) " …" }
                a.button href=(frame.to(&format!("dead/discard?{pairs}"))) { "Discard " (all(matching)) " …" }
                span.quiet { "The next page shows exactly what would happen." }
            }
        }
        @if events.rows.is_empty() { p { "No dead event matches." } } @else {
            (events::rows(frame, &events.rows))
            (events::pages(events, "dead"))
        }
    }
}

fn all(count: u64) -> String {
    match count {
        1 => "it".to_owned(),
        2 => "both".to_owned(),
        count => format!("all {}", number(count)),
    }
}

fn by_error(frame: &Frame, groups: &[Group]) -> Markup {
    let now = frame.known.now();
    html! {
        table.rows {
            thead { tr { th.number scope="col" { "Events" } th scope="col" { "Route" } th scope="col" { "Error" } th scope="col" { "First" } th scope="col" { "Last" } } }
            tbody {
                @for group in groups.iter().take(GROUPS) {
                    @let pairs = query(&[("aggregate_type", &group.aggregate_type), ("event_type", &group.event_type), ("error", group.common.as_deref().unwrap_or_default())]);
                    tr {
                        td.number { span.dead { (number(group.count)) " ×" } }
                        td.mono.route { span { (visible(&short(&format!("{}/{}", group.aggregate_type, group.event_type), 80))) } }
                        td.first { a.row.says href=(frame.to(&format!("dead?{pairs}"))) { (visible(&group.error)) } }
                        td.tight data-name="first" { (when_or_dash(group.first, now)) }
                        td.tight data-name="last" { (when_or_dash(group.last, now)) }
                    }
                }
            }
        }
        @if groups.len() > GROUPS { p.quiet { "and " (count((groups.len() - GROUPS) as u64, "smaller group")) } }
    }
}

/// What would be done to how many.
pub(crate) struct Preview<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) action: Action,
    pub(crate) wanted: &'a WantedEvents,
    pub(crate) count: u64,
    /// Only events that were dead by then: what dies later is left alone.
    pub(crate) dead_before: Timestamp,
    /// The first ones that match, oldest first, at most [`SAMPLE`].
    pub(crate) first: Vec<Record>,
    pub(crate) newest: Option<Record>,
    /// Why the page is shown again.
    pub(crate) fault: Option<String>,
}

pub(crate) fn preview(preview: &Preview<'_>) -> Markup {
    let Preview { frame, action, wanted, count: many, .. } = preview;
    let now = frame.known.now();
    let of = wanted.in_words();
    let title = format!(
        "{} {}{}",
        action.word(),
        count(*many, "dead event"),
        if of.is_empty() { String::new() } else { format!(" {of}") }
    );
    let by_route = by_route(&preview.first);
    let is_part = *many > preview.first.len() as u64;
    html! {
        h1 { (title) }
        @if let Some(fault) = &preview.fault { p.status.warning role="alert" { (fault) } }
        @if *many == 0 {
            p { "No dead event matches any more." }
            p { a href=(frame.to("dead")) { "Dead events" } }
        } @else {
            dl.facts {
                dt { "Events" } dd { strong { (number(*many)) } ", as of " (when(preview.dead_before, now)) "; events that die later are left alone" }
                dt { "Routes" } dd.mono {
                    @for (index, (route, count)) in by_route.iter().take(10).enumerate() { @if index > 0 { ", " } (number(*count)) " × " (visible(route)) }
                    @if by_route.len() > 10 { " and " (by_route.len() - 10) " more" }
                    @if is_part { " (of the oldest " (number(preview.first.len() as u64)) ")" }
                }
                @if let Some(oldest) = preview.first.first() { dt { "Oldest" } dd { "written " (when(oldest.created_at, now)) ", " a href=(frame.event(oldest.event_id)) { span.mono { (oldest.event_id) } } } }
                @if let Some(newest) = &preview.newest { dt { "Newest" } dd { "written " (when(newest.created_at, now)) ", " a href=(frame.event(newest.event_id)) { span.mono { (newest.event_id) } } } }
            }
            p { (consequence(*action, *many)) }
            form.sure method="post" action=(frame.to(&format!("dead/{}", action.path()))) {
                @for (name, value) in wanted.pairs() { @if !value.is_empty() { input type="hidden" name=(name) value=(value); } }
                input type="hidden" name="dead_before" value=(preview.dead_before);
                input type="hidden" name="count" value=(many);
                @if *action == Action::Replay {
                    label { "Speed"
                        select name="per_second" {
                            option value="" { "As fast as possible" }
                            @for rate in [10, 100, 1_000] { option value=(rate) { "At most " (number(rate)) " events a second" } }
                        }
                    }
                }
                label { "Reason, for the audit log" input name="reason" required maxlength="1000" autocomplete="off"; }
                div.row-of {
                    button.(if *action == Action::Discard { "danger" } else { "primary" }) { (action.word()) " " (count(*many, "event")) }
                    a href=(frame.to(&format!("dead?{}", query(&wanted.pairs())))) { "Cancel" }
                }
            }
            @if *action == Action::Replay {
                p.quiet { "To try a new version of a plugin on dead events first, without delivering them: " code.all { "outbox dead test --plugin FILE" } }
            }
        }
    }
}

fn consequence(action: Action, many: u64) -> String {
    let (they, them) = if many == 1 { ("It", "its aggregate") } else { ("They", "their aggregates") };
    match action {
        Action::Replay => format!(
            "{they} will be delivered again, oldest first, with the failure count reset. Events of {them} that were delivered meanwhile stay delivered, \
             so a listener may see an older event after a newer one."
        ),
        Action::Discard => {
            format!("{they} will be deleted permanently, with payload and headers. This cannot be undone.")
        }
    }
}

/// How many of each route, most first.
fn by_route(records: &[Record]) -> Vec<(String, u64)> {
    let mut routes = std::collections::BTreeMap::<String, u64>::new();
    for record in records {
        *routes.entry(format!("{}/{}", record.aggregate_type, record.event_type)).or_default() += 1;
    }
    let mut routes: Vec<_> = routes.into_iter().collect();
    routes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    routes
}

/// The replays and discards of many that go on: a page that was closed must not be the only way to stop one.
pub(crate) fn running(frame: &Frame, jobs: &[(u64, Arc<Job>)]) -> Markup {
    html! {
        @if !jobs.is_empty() {
            h2 { "Running on this host" }
            ul {
                @for (id, job) in jobs {
                    li {
                        a href=(frame.to(&format!("jobs/{id}"))) { (job.action.word()) @if !job.of.is_empty() { " " (visible(&job.of)) } }
                        ": " (number(job.done())) " of " (number(job.total.max(job.done()))) ", by " (visible(&job.actor))
                    }
                }
            }
        }
    }
}

/// How far a replay or discard of many has come.
pub(crate) fn progress(frame: &Frame, id: u64, job: &Job) -> Markup {
    let (done, total) = (job.done(), job.total.max(job.done()));
    let of = if job.of.is_empty() { String::new() } else { format!(" {}", job.of) };
    let moving = html! {
            p.lead role="status" {
                @match job.ended() {
                    None => { (number(done)) " of " (number(total)) " so far." },
                    Some(Ended::Whole) => { (count(done, "event")) " " (verb(done, "was", "were")) " " (job.action.past()) "." },
                    Some(Ended::Refused(why)) => { (count(done, "event")) " " (verb(done, "was", "were")) " " (job.action.past()) ". " (visible(why)) "." },
                    Some(Ended::Stopped) => { "Stopped after " (count(done, "event")) "; the other events are unchanged." },
                    Some(Ended::Failed(why)) => { "Ended early after " (count(done, "event")) ", because " (visible(why)) ". The other events are unchanged." },
                }
            }
            p { progress max=(total.max(1)) value=(done) { (number(done)) " of " (number(total)) } }
            @if job.ended().is_none() {
                form method="post" action=(frame.to(&format!("jobs/{id}/stop"))) { button.danger { "Stop" } }
                noscript { p { a href=(frame.to(&format!("jobs/{id}"))) { "Refresh" } } }
            } @else {
                p { a href=(frame.to("dead")) { "Dead events" } " · " a href=(frame.to("audit")) { "Audit log" } }
            }
    };
    html! {
        h1 { (job.action.word()) " " (count(job.total, "dead event")) (of) }
        (frame.live("progress", &moving))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outbox_store::Stats;

    use super::*;
    use crate::pages::fake::{frame, record};
    use crate::pages::known::snapshot::{Known, Snapshot};

    fn with_dead(dead: u64) -> Frame {
        let frame = frame();
        let snapshot = Snapshot {
            stats: changed!(Stats { dead, ..Stats::default() }),
            dead: vec![record(); usize::try_from(dead.min(500)).unwrap()],
            ..Snapshot::made_up(frame.known.now())
        };
        Frame { known: Known { snapshot: Some(Arc::new(snapshot)), outage: None }, ..frame }
    }

    #[test]
    fn no_dead_events_is_good_news_and_many_are_grouped_and_said_to_be_a_part() {
        let wanted = WantedEvents::default();
        let none = page(&Events::of(&frame(), &wanted, Vec::new()), 0, &[]).into_string();
        assert!(none.contains("No dead events.") && !none.contains("<table"), "{none}");
        let frame = with_dead(10_000);
        let many = page(&Events::of(&frame, &wanted, vec![record(); 51]), 10_000, &[]).into_string();
        for part in ["The newest 500 of 10,000", "500 ×", "Replay all 10,000"] {
            assert!(many.contains(part), "{part}: {many}");
        }
        assert!(many.len() < 150_000, "{}", many.len());
    }

    #[test]
    fn the_page_before_says_how_many_of_what_and_since_when_and_wants_a_reason() {
        let frame = with_dead(3);
        let wanted = WantedEvents { event_type: "Paid".to_owned(), ..WantedEvents::default() };
        let first = vec![record(), record(), changed!(Record { event_type: "Placed".to_owned(), ..record() })];
        let (newest, dead_before) = (first.last().cloned(), frame.known.now());
        let text = |action| {
            let (first, newest) = (first.clone(), newest.clone());
            preview(&Preview { frame: &frame, action, wanted: &wanted, count: 3, dead_before, first, newest, fault: None })
                .into_string()
        };
        let replay = text(Action::Replay);
        for part in [
            "Replay 3 dead events of type Paid",
            "2 × Order/Paid",
            "1 × Order/Placed",
            "name=\"reason\" required",
            "name=\"count\" value=\"3\"",
            "value=\"Paid\"",
        ] {
            assert!(replay.contains(part), "{part}: {replay}");
        }
        assert!(text(Action::Discard).contains("deleted permanently"));
        assert!(!text(Action::Discard).contains("per_second"));
    }

    #[test]
    fn whoever_may_only_look_finds_no_button() {
        let frame = Frame { may_act: false, ..with_dead(3) };
        let text = page(&Events::of(&frame, &WantedEvents::default(), vec![record()]), 3, &[]).into_string();
        assert!(!text.contains("dead/replay") && !text.contains("dead/discard"), "{text}");
    }
}
