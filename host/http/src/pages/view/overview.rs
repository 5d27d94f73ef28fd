//! The overview: the last hour, the unfinished events, the recent changes.

use std::time::Duration;

use maud::{Markup, html};
use outbox::why::{Change, RecentChanges, selector};
use outbox_event::time::Timestamp;
use outbox_event::units::number;
use outbox_store::RouteRecord;

use super::audit;
use crate::history::Minute;
use crate::pages::chart::{Chart, Scale, Series};
use crate::pages::document::Frame;
use crate::pages::known::snapshot::Snapshot;
use crate::pages::words::{Stand, clock, short, visible};

/// How many of the busiest routes are listed.
const ROUTES: usize = 12;

/// What the overview shows.
pub(crate) struct Overview<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) hour: Vec<Option<Minute>>,
    /// How many events this host has in its hands, claimed or held by their partitions.
    pub(crate) in_hand: usize,
}

pub(crate) fn page(overview: &Overview<'_>) -> Markup {
    let frame = overview.frame;
    let now = frame.known.now();
    let snapshot = frame.known.snapshot.as_ref();
    // An empty snapshot does not show that nothing was changed since, while the database does not answer.
    let is_current = |recent: &&RecentChanges| !recent.changes.is_empty() || frame.known.outage.is_none();
    let recent = snapshot.and_then(|snapshot| snapshot.recent.as_ref()).filter(is_current);
    let latest = snapshot.map(|snapshot| snapshot.changes()).unwrap_or_default();
    html! {
        h1.unseen { "Overview" }
        (frame.live("charts", &html! { div.charts { @for chart in charts(&overview.hour, now, latest) { (chart.show()) } } }))
        @if let Some(snapshot) = snapshot { (frame.live("waits", &waits(frame, snapshot, overview.in_hand))) }
        @if let Some(recent) = recent { (frame.live("changes", &changes(frame, recent))) }
    }
}

/// The most changes that are listed.
const CHANGES: usize = 8;
/// The most changes that have a line in each chart.
const LINES: usize = 40;
/// The most characters of a change beside its line in a chart.
const TEXT: usize = 160;

fn changes(frame: &Frame, recent: &RecentChanges) -> Markup {
    html! {
        h2 { "Recent changes" }
        @if recent.changes.is_empty() {
            p.quiet { "No host, plugin, route or event has been changed yet." }
        } @else {
            (audit::rows(frame, &recent.changes, CHANGES, recent.cut_at))
            p { a href=(frame.to("audit")) { "Show the whole audit log" } }
        }
    }
}

fn charts(hour: &[Option<Minute>], now: Timestamp, latest: &[Change]) -> [Chart; 3] {
    let changes = in_charts(latest, now);
    let points = |of: fn(&Minute) -> Option<f64>| hour.iter().map(|minute| minute.as_ref().and_then(of)).collect::<Vec<_>>();
    let seconds = |of: fn(&Minute) -> Option<Duration>| {
        hour.iter().map(|minute| minute.as_ref().and_then(of).map(|time| time.as_secs_f64())).collect::<Vec<_>>()
    };
    let chart = |title, unit, scale, stacked, series| Chart {
        title,
        unit,
        scale,
        series,
        stacked,
        ends: now,
        step: Duration::from_secs(60),
        changes: changes.clone(),
    };
    [
        chart(
            "Attempts",
            "a second on this host, stacked",
            Scale::Rate,
            true,
            vec![
                Series { name: "done", class: "done", points: points(Minute::done_per_second) },
                Series { name: "failed", class: "dead", points: points(Minute::failed_per_second) },
            ],
        ),
        chart(
            "Lag",
            "until delivered, on this host",
            Scale::Time,
            false,
            vec![
                Series { name: "p99", class: "retry", points: seconds(|minute| minute.lag(0.99)) },
                Series { name: "p50", class: "in-flight", points: seconds(|minute| minute.lag(0.5)) },
                Series { name: "oldest event waiting", class: "waiting", points: seconds(|minute| minute.oldest) },
            ],
        ),
        chart(
            "Unfinished",
            "events in the table",
            Scale::Count,
            false,
            vec![Series {
                name: "events",
                class: "parked",
                #[expect(clippy::cast_precision_loss, reason = "a point of a chart")]
                points: points(|minute| minute.waiting.map(|waiting| waiting as f64)),
            }],
        ),
    ]
}

/// The changes that may explain what a chart shows: those of hosts, plugins, routes and many events. A change of one event alone, and
/// what changed nothing, are left out.
fn in_charts(changes: &[Change], now: Timestamp) -> Vec<(Timestamp, String)> {
    let may_explain =
        |change: &&Change| change.record.selector.get("event_id").is_none() && change.record.action != "refused_login";
    let text = |change: &Change| {
        let (action, at) = (change.record.action.replace('_', " "), clock(change.record.at, now));
        short(&visible(&format!("{at} {action} {}, by {}", selector(&change.record.selector), change.who())), TEXT)
    };
    changes.iter().filter(may_explain).take(LINES).map(|change| (change.record.at, text(change))).collect()
}

fn waits(frame: &Frame, snapshot: &Snapshot, in_hand: usize) -> Markup {
    let stats = &snapshot.stats;
    let states = [
        (Stand::Waiting, stats.new, "new", "not attempted yet, or deferred by their listener"),
        (Stand::Retry, stats.retry, "retry", "failed, and will be retried"),
        (Stand::Parked, stats.parked, "parked", "waiting for a listener, or for a pause to end"),
        (Stand::Blocked, stats.blocked, "blocked", "waiting behind an earlier event of their aggregate"),
        (Stand::Dead, stats.dead, "dead", "given up; replay, skip or discard them"),
    ];
    let busy = busiest(&snapshot.routes);
    html! {
        h2 { "Unfinished events" }
        table.rows {
            thead { tr { th scope="col" { "State" } th.number scope="col" { "Events" } th scope="col" { "Meaning" } } }
            tbody {
                @for (stand, count, status, meaning) in states {
                    tr {
                        td.tight { a.row href=(frame.to(&if status == "dead" { "dead".to_owned() } else { format!("events?status={status}") })) {
                            @if count > 0 { (stand.show()) } @else { span.zero { (stand.shape()) " " (stand.word()) } }
                        } }
                        td.number.zero[count == 0] { (number(count)) }
                        td.quiet { (meaning) }
                    }
                }
            }
        }
        p.quiet {
            (number(in_hand as u64)) " in flight on this host · " (number(stats.in_flight)) " claimed by a host now · "
            (number(stats.done)) " done, kept until purged"
            @if let Some(counted) = frame.counted() { " · " (counted) }
        }
        @if !busy.is_empty() {
            h2 { "Busiest routes" }
            (routes(frame, &busy))
            @if snapshot.routes.len() > busy.len() { p { a href=(frame.to("routes")) { "Show all " (number(snapshot.routes.len() as u64)) " routes" } } }
        }
    }
}

/// The routes with unfinished or dead events, those with the most first.
fn busiest(routes: &[RouteRecord]) -> Vec<&RouteRecord> {
    let weight = |route: &RouteRecord| (route.dead, route.parked + route.blocked + route.waiting);
    let mut busy: Vec<&RouteRecord> = routes.iter().filter(|route| weight(route) != (0, 0)).collect();
    busy.sort_by_key(|route| std::cmp::Reverse(weight(route)));
    busy.truncate(ROUTES);
    busy
}

fn routes(frame: &Frame, routes: &[&RouteRecord]) -> Markup {
    let cell = |name: &'static str, class: &'static str, count: u64| {
        let class = if count == 0 { "zero" } else { class };
        html! { td.number data-name=(name) { span.(class) { (number(count)) } } }
    };
    html! {
        table.rows {
            thead { tr { th scope="col" { "Route" } @for name in ["Waiting", "Parked", "Blocked", "Dead"] { th.number scope="col" { (name) } } } }
            tbody {
                @for route in routes {
                    tr {
                        @let query = crate::pages::link::query(&[("aggregate_type", route.route.aggregate_type.as_str()), ("event_type", route.route.event_type.as_str())]);
                        td.first.mono.route { a.row href=(frame.to(&format!("events?{query}"))) { (visible(&route.route.to_string())) } }
                        (cell("waiting", "", route.waiting)) (cell("parked", "parked", route.parked))
                        (cell("blocked", "blocked", route.blocked)) (cell("dead", "dead", route.dead))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use outbox_store::AuditRecord;
    use serde_json::json;

    use super::*;
    use crate::pages::fake::frame;

    /// The batches of one purge, of 500 events each.
    fn purge(batches: u32) -> Vec<AuditRecord> {
        let selector = json!({ "status": "done", "finished_before": "2026-11-23T12:00:00Z" });
        let one = |id: u32| AuditRecord::new(id.into(), frame().known.now(), "anna", "purge", selector.clone());
        let batch = |id: u32| changed!(AuditRecord { count: 500, ..one(id) });
        (0..batches).rev().map(batch).collect()
    }

    #[test]
    fn a_swap_is_a_line_in_every_chart_and_a_change_of_one_event_is_none() {
        let now = frame().known.now();
        let at = now.minus(Duration::from_secs(600));
        let swap = |host| {
            let selector = json!({ "plugin": "mailer", "from": "1.3.0 (ab)", "to": "1.4.0 (cd)" });
            AuditRecord::new(1, at, host, "swap_plugin", selector)
        };
        let skip = AuditRecord::new(2, at, "anna", "skip", json!({ "event_id": "e1" }));
        let changes = in_charts(&outbox::why::changes([swap("web-2"), skip, swap("web-1")]), now);

        let wanted = format!("{} swap plugin mailer 1.3.0 (ab) → 1.4.0 (cd), by web-1 and 1 other host", clock(at, now));
        assert_eq!(changes, [(at, wanted)]);
    }

    #[test]
    fn a_purge_that_was_read_whole_is_told_with_its_number_and_one_that_may_go_on_with_the_least() {
        let shown = |batches, has_earlier: bool| {
            let records = purge(batches);
            let cut_at = records.last().filter(|_| has_earlier).map(|record| record.id);
            changes(&frame(), &RecentChanges { changes: outbox::why::changes(records), cut_at }).into_string()
        };

        let whole = shown(4, false);
        assert!(whole.contains(">2,000<") && !whole.contains("at least"), "{whole}");
        let cut = shown(200, true);
        assert!(cut.contains("at least 100,000"), "{cut}");
    }
}
