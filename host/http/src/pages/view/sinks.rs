//! The sinks of all live hosts.

use maud::{Markup, html};
use outbox::node::HostSink;
use outbox_event::time::Timestamp;
use outbox_event::units::{count, minutes_ago, number, span};
use outbox_event::{SinkOutage, SinkState, SinkStatus};

use super::paging::Paging;
use crate::pages::asked::fields::Fields;
use crate::pages::document::Frame;
use crate::pages::words::{short, visible, when};

/// Rows of a page.
const ROWS: usize = 100;
/// The most routes that a row names.
const ROUTES: usize = 5;

pub(crate) fn page(frame: &Frame, sinks: &[HostSink], asked: &Fields) -> Markup {
    let paging = Paging::of(asked, ROWS, sinks.len());
    let now = frame.known.now();
    html! {
        h1 { "Sinks" }
        @if sinks.is_empty() {
            p { "No live host has sinks. To relay events to a broker or an endpoint, add a section " code { "[sinks.NAME]" } " to " code { "outbox.toml" } "." }
        } @else {
            p.quiet { "Each host judges by the messages that it sends itself. While a sink is down, its events wait, and no attempt is counted against them." }
            table.rows {
                thead { tr {
                    th scope="col" { "Sink" } th scope="col" { "State" } th scope="col" { "Host" } th scope="col" { "Target" }
                    th scope="col" { "Routes" } th scope="col" { "Last success" } th.number scope="col" { "Waiting" } th scope="col" { "Reason" }
                } }
                tbody { @for one in paging.slice(sinks) { (row(one, now)) } }
            }
            (paging.show(frame, "sinks", &[]))
        }
    }
}

fn row(HostSink { host, sink, waiting }: &HostSink, now: Timestamp) -> Markup {
    let more = sink.routes.len().saturating_sub(ROUTES).saturating_add(sink.more_routes);
    html! {
        tr {
            td.first.mono.name { (visible(&short(&sink.name, 80))) }
            td { (state(sink, now)) }
            td.mono.tight data-name="host" { (visible(&short(host, 80))) }
            td.target data-name="target" { (visible(&short(&sink.kind, 40))) " " span.mono { (visible(&short(&sink.target, 100))) } }
            td.mono.route data-name="routes" {
                @for (index, route) in sink.routes.iter().take(ROUTES).enumerate() { @if index > 0 { ", " } span { (visible(&short(&route.to_string(), 80))) } }
                @if more > 0 { " and " (number(more as u64)) " more" }
                @if sink.routes.is_empty() && more == 0 { "–" }
            }
            td.tight data-name="last success" { @if let Some(time) = sink.last_success { (success(time, now)) } @else { "–" } }
            td.number.zero[*waiting == 0] data-name="waiting" { (number(*waiting)) }
            td.error { @if let Some(outage) = &sink.outage { (reason(outage, now)) } }
        }
    }
}

/// The last success. The time to hover over is one of the last minute if the sink is busy.
fn success(time: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(time) title=(time) { (minutes_ago(time, now)) } }
}

/// The state, since when the sink is down, and how many and which of its receivers are unavailable.
fn state(sink: &SinkStatus, now: Timestamp) -> Markup {
    let (class, shape) = badge(sink.state);
    let receivers = u64::from(sink.unavailable_receivers);
    let first = &sink.first_unavailable;
    let more = receivers.saturating_sub(first.len() as u64);
    html! {
        span.state.(class) { span aria-hidden="true" { (shape) } " " (sink.state.word()) }
        @if let Some(outage) = &sink.outage {
            " " small.quiet { "for " span title=(outage.since) { (span(now.since(outage.since))) } }
        }
        @if receivers > 0 {
            " " small.quiet {
                (count(receivers, "receiver")) " unavailable"
                @for (index, name) in first.iter().enumerate() {
                    @if index == 0 { ": " } @else { ", " }
                    span.mono { (visible(&short(name, 80))) }
                }
                @if more > 0 && !first.is_empty() { " and " (number(more)) " more" }
            }
        }
    }
}

/// Why a sink is down, and when the host tries it again.
fn reason(outage: &SinkOutage, now: Timestamp) -> Markup {
    html! {
        (visible(&short(&outage.reason, 300))) "; next try: "
        @if outage.next_try > now { (when(outage.next_try, now)) } @else { "when the next event is due" }
    }
}

/// The colour class and the symbol of a state.
const fn badge(state: SinkState) -> (&'static str, &'static str) {
    match state {
        SinkState::Working => ("done", "●"),
        SinkState::Down => ("dead", "✕"),
        SinkState::Unconfirmed | SinkState::Unknown => ("waiting", "○"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox_event::Route;

    use super::*;
    use crate::pages::fake::{frame, sink};

    fn shown(sinks: &[HostSink]) -> String {
        page(&frame(), sinks, &Fields::default()).into_string()
    }

    fn on_host(sink: SinkStatus, waiting: u64) -> HostSink {
        HostSink { host: "web-1".to_owned(), sink, waiting }
    }

    #[test]
    fn a_sink_that_is_down_is_shown_with_its_outage_and_its_waiting_events() {
        let now = frame().known.now();
        let outage = SinkOutage {
            since: now.minus(Duration::from_secs(250)),
            reason: "connection refused".to_owned(),
            next_try: now.plus(Duration::from_secs(60)),
        };
        let down = SinkStatus { state: SinkState::Down, outage: Some(outage), ..sink("orders", &["Order/*"]) };

        let text = shown(&[on_host(down, 1_400)]);

        for part in [
            "orders",
            "✕</span> down",
            "for <span",
            ">4 min<",
            "connection refused; next try: <time",
            "Order/*",
            "1,400",
            "web-1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn unavailable_receivers_are_named() {
        let first_unavailable = vec!["acme".to_owned(), "globex".to_owned()];
        let hooks = SinkStatus { unavailable_receivers: 7, first_unavailable, ..sink("hooks", &["Order/*"]) };

        let text = shown(&[on_host(hooks, 0)]);

        let named = "7 receivers unavailable: <span class=\"mono\">acme</span>, <span class=\"mono\">globex</span> and 5 more";
        assert!(text.contains(named), "{text}");
    }

    #[test]
    fn success_of_the_last_minute_has_no_seconds() {
        let last_success = Some(frame().known.now().minus(Duration::from_secs(11)));

        let text = shown(&[on_host(SinkStatus { last_success, ..sink("orders", &["Order/*"]) }, 0)]);

        assert!(text.contains(">within the last minute</time>"), "{text}");
    }

    #[test]
    fn a_text_of_another_host_is_escaped() {
        const EVIL: &str = "</td><script>alert(1)</script>\u{202e}";
        let now = frame().known.now();
        let past = now.minus(Duration::from_secs(1));
        let outage = SinkOutage { since: past, reason: EVIL.to_owned(), next_try: past };
        let evil = SinkStatus {
            kind: EVIL.to_owned(),
            target: EVIL.to_owned(),
            unavailable_receivers: 1,
            first_unavailable: vec![EVIL.to_owned()],
            outage: Some(outage),
            routes: vec![Route::new("<script>", "<script>").expect("valid")],
            ..sink(EVIL, &[])
        };

        let text = shown(&[HostSink { host: EVIL.to_owned(), sink: evil, waiting: 0 }]);

        assert!(!text.contains("<script>") && !text.contains('\u{202e}'), "{text}");
        assert!(text.contains("&lt;script&gt;") && text.contains("next try: when the next event is due"), "{text}");
    }

    #[test]
    fn a_host_without_sinks_is_told_how_to_add_one() {
        assert!(shown(&[]).contains("[sinks.NAME]"));
    }

    #[test]
    fn many_sinks_are_paged_and_many_routes_counted() {
        let routes: Vec<String> = (0..60).map(|number| format!("Order/Event{number}")).collect();
        let routes: Vec<&str> = routes.iter().map(String::as_str).collect();
        let many: Vec<HostSink> = (0..250).map(|number| on_host(sink(&format!("sink{number}"), &routes), 0)).collect();
        let text = shown(&many);
        assert!(text.contains("1–100 of 250") && text.contains(" and 55 more"), "{text}");
    }
}
