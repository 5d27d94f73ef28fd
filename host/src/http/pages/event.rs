//! One event: where it stands and why, what happened to it, what it carries, what can be done.

use std::time::Duration;

use maud::{Markup, html};

use super::copy;
use super::groups::head;
use super::layout::Frame;
use super::look::Look;
use super::payload;
use super::plugins;
use super::routes;
use super::told::{self, Told};
use super::words::{Stand, ago, count, is_word, number, span, visible, when};
use crate::event::{Route, Status};
use crate::store::{AttemptCost, AttemptEnd, AuditRecord, NodeRecord, Record};
use crate::time::Timestamp;
use crate::units::size;

/// What the page of one event shows.
pub(super) struct OneEvent<'a> {
    pub(super) frame: &'a Frame,
    pub(super) record: &'a Record,
    /// The event that it waits behind, where it still is there.
    pub(super) behind: Option<&'a Record>,
    /// What was done by hand to this very event, newest first.
    pub(super) by_hand: &'a [AuditRecord],
    /// Whether the payload is shown: it was asked for, and the visitor may see it.
    pub(super) payload: Payload,
    /// The kind of the database.
    pub(super) kind: &'static str,
}

/// Whether a visitor sees the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    Forbidden,
    Hidden,
    Asked,
}

pub(super) fn page(event: &OneEvent<'_>) -> Markup {
    let frame = event.frame;
    let now = frame.seen.now();
    html! {
        (moving(event))
        (timeline(event, now))
        @if frame.may_act { (actions(event)) }
        (envelope(event, now))
    }
}

/// Where it stands and why: what moves of the page.
pub(super) fn moving(event: &OneEvent<'_>) -> Markup {
    let (frame, record) = (event.frame, event.record);
    let now = frame.seen.now();
    let route = format!("{}/{}", record.aggregate_type, record.event_type);
    let stand = html! {
        h1 { (Stand::of(record, now).show()) " " span.mono { (visible(&route)) } @if let Some(id) = &record.aggregate_id { " " span.quiet.mono { (visible(id)) } } }
        p.mono.all { (record.event_id) }
        p.lead { (sentence(event, now)) }
        @if let Some(error) = &record.last_error {
            p.quiet { "Last error" }
            pre.says { (visible(error)) }
        }
    };
    frame.live("why", &stand)
}

/// Why it is where it is, and what happens next.
fn sentence(event: &OneEvent<'_>, now: Timestamp) -> String {
    let record = event.record;
    let look = event.frame.seen.look.as_deref();
    let failed = match record.attempts {
        0 => String::new(),
        1 => ", after it failed once".to_owned(),
        times => format!(", after it failed {times} times"),
    };
    let at = |time: Option<Timestamp>| time.map_or_else(|| "at a time that was not kept".to_owned(), |time| ago(time, now));
    let due = record.due_at.map(|due| due.max(record.available_at));
    match Stand::of(record, now) {
        Stand::Done => format!("Its listener was done with it {}{failed}.", at(record.done_at)),
        Stand::Dead if record.blocks => format!(
            "It was given up {}{failed}. Later events of its aggregate wait until it is replayed, skipped or discarded.",
            at(record.done_at)
        ),
        Stand::Dead => format!(
            "It was given up {}{failed}. Nothing happens to it until somebody replays or discards it.",
            at(record.done_at)
        ),
        Stand::InFlight => {
            format!("{} has it; if nothing is heard of it, any host takes it {}.", holder(record, look), at(record.lease_end))
        }
        Stand::Blocked => match event.behind {
            Some(first) => format!(
                "It waits behind an earlier event of its aggregate, {}, which is {}.",
                first.event_id,
                Stand::of(first, now).word()
            ),
            None => "It waited behind an event that is gone; a host lets it go on at its next look.".to_owned(),
        },
        Stand::Parked => parked(record, look, now),
        _ if record.expires_at.is_some_and(|end| end <= now) => {
            "Its time to be done is over; the next host that takes it gives it up.".to_owned()
        }
        Stand::Retry => format!("It failed {}; the next attempt is due {}. {}", times(record.attempts), at(due), takes(look)),
        Stand::Delayed if record.deferrals > 0 && due.is_some_and(|due| due > now) => {
            format!("Its listener asked for later; it is due {}. {}", at(due), takes(look))
        }
        Stand::Delayed => {
            format!("Its writer wants it no sooner than {}. {}", at(due), takes(look))
        }
        Stand::Waiting => format!("It waits for its first delivery. {}", takes(look)),
    }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Who takes what is due.
fn takes(look: Option<&Look>) -> &'static str {
    match look {
        Some(look) if !look.nodes.iter().any(|node| node.alive && node.mode != "writer_only") => {
            "No host is alive to take it: start one with “outbox run”."
        }
        _ => "Then a host takes it.",
    }
}

fn holder(record: &Record, look: Option<&Look>) -> String {
    let owner = record.locked_by.as_deref().unwrap_or("nobody");
    let node: Option<&NodeRecord> = look.and_then(|look| look.nodes.iter().find(|node| node.owner == owner));
    format!("The host {}", visible(node.map_or(owner, |node| &node.label)))
}

/// Why it waits without a time.
fn parked(record: &Record, look: Option<&Look>, now: Timestamp) -> String {
    let route = Route::new(record.aggregate_type.as_str(), record.event_type.as_str()).ok();
    let held = look.zip(route).and_then(|(look, route)| routes::pause(look, &route));
    match held {
        Some(known) => {
            let by = known.paused_by.as_deref().map_or_else(String::new, |by| format!(" by {by}"));
            let why = known.pause_reason.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
            let since = known.paused_at.map_or_else(String::new, |at| ago(at, now));
            visible(&format!("Its route was paused {since}{by}{why}. It goes on when the route {} is resumed.", known.route))
        }
        None => visible(&format!(
            "It waits without a time: {}. It goes on by itself when a host has a listener for its route.",
            record.parked.as_deref().unwrap_or("no reason was kept")
        )),
    }
}

fn timeline(event: &OneEvent<'_>, now: Timestamp) -> Markup {
    let record = event.record;
    let look = event.frame.seen.look.as_deref();
    let mut steps: Vec<(Timestamp, bool, Markup)> = Vec::new();
    let mut add = |at: Option<Timestamp>, what: Markup| steps.extend(at.map(|at| (at, at > now, what)));
    add(Some(record.created_at), html! { "written" @if let Some(late) = lateness(record) { " (" (late) ")" } });
    if record.available_at > record.created_at {
        add(Some(record.available_at), html! { "its writer wants it no sooner" });
    }
    add(record.expires_at, html! { "to be done by then, or given up" });
    add(
        record.locked_at,
        html! {
            "claimed by " span.mono { (holder(record, look).trim_start_matches("The host ")) } ", its claim number " (number(record.claim_seq))
        },
    );
    add(
        record.done_at,
        html! { @if record.status == Status::Dead { "given up" @if let Some(error) = &record.last_error { ": " span.says { (visible(head(error))) } } } @else { "done" } },
    );
    for entry in event.by_hand {
        let why = entry.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
        add(Some(entry.at), html! { (visible(&format!("{} by {}{why}", entry.action.replace('_', " "), entry.actor))) });
    }
    if !matches!(record.status, Status::Done | Status::Dead) {
        add(record.due_at.filter(|due| *due > now), html! { "due" });
    }
    steps.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    html! {
        h2 { "What happened" }
        ol.timeline {
            @for (at, is_next, what) in &steps { li.next[*is_next] { (when(*at, now)) " " (what) } }
        }
        @if let Some(cost) = &record.last_cost { p { (attempt(cost, look)) } }
        p.quiet {
            (count(record.attempts.into(), "failed attempt")) ", " (count(record.deferrals.into(), "deferral")) ", " (count(record.claim_seq, "claim")) ", " (count(record.replays.into(), "replay"))
            ". The row keeps its last claim and attempt; earlier ones are counted only."
        }
    }
}

/// How far the writer's clock and the database's are apart, where it is worth a word.
fn lateness(record: &Record) -> Option<String> {
    let apart = record.created_at.since(record.occurred_at).max(record.occurred_at.since(record.created_at));
    (apart >= Duration::from_secs(1)).then(|| format!("it happened {} apart, by its writer's clock", span(apart)))
}

fn attempt(kept: &AttemptCost, look: Option<&Look>) -> Markup {
    let AttemptCost { attempt, outcome, cost } = kept;
    let came_to = match outcome {
        AttemptEnd::Done => "was done",
        AttemptEnd::Deferred => "asked for later",
        AttemptEnd::Retry => "failed",
        AttemptEnd::Dead => "failed for the last time",
    };
    html! {
        "Attempt " (number((*attempt).into())) " " (came_to) " in " (span(cost.took))
        @if let Some(guest) = &cost.guest {
            ": " (number(guest.fuel)) " fuel, " @if let Some(limit) = fuel_limit(&guest.digest.to_string(), look) { (plugins::part("Fuel", guest.fuel, limit)) " of its limit, " }
            (size(guest.memory_bytes)) " of memory, " (count(guest.host_calls.into(), "call")) " of the host, by "
            span.mono { (component(&guest.digest.to_string(), look)) }
        }
        @if cost.events > 1 { "; its share of one call for " (number(cost.events.into())) " events" }
    }
}

/// The plugin with this digest, where a live host tells of it.
fn told_of(digest: &str, look: Option<&Look>) -> Option<Told> {
    let plugins = look.map(|look| told::of_all(&look.nodes)).unwrap_or_default();
    let is_of = |told: &Told| told.digest.as_deref().is_some_and(|whole| whole.starts_with(digest));
    plugins.into_iter().map(|plugin| plugin.told).find(is_of)
}

/// The fuel that one call of this component may use; `None` where no live host tells of it.
fn fuel_limit(digest: &str, look: Option<&Look>) -> Option<u64> {
    told_of(digest, look)?.limits.map(|limits| limits.fuel)
}

/// How a component is called.
fn component(digest: &str, look: Option<&Look>) -> String {
    told_of(digest, look).map_or_else(
        || digest.to_owned(),
        |told| visible(&format!("{} {} ({digest})", told.name, told.version.as_deref().unwrap_or_default())),
    )
}

/// Everything that can be done, each with what follows.
fn actions(event: &OneEvent<'_>) -> Markup {
    let record = event.record;
    if record.status != Status::Dead {
        return html! {};
    }
    let action = |path: &str, title: &str, class: &str, meaning: &str| {
        html! {
            form.action method="post" action=(format!("{}/{path}", event.frame.event(record.event_id))) {
                strong { (title) }
                p.quiet { (meaning) }
                label { span.unseen { "Reason" } input name="reason" placeholder="Reason, for the audit" required maxlength="1000" autocomplete="off"; }
                div.row-of { button.(class) { (title) } }
            }
        }
    };
    html! {
        h2 { "What can be done" }
        div.actions {
            (action("replay", "Replay this event", "primary", "It is delivered again at once, with no failures counted. Events of its aggregate that were delivered meanwhile stay delivered."))
            @if record.blocks { (action("skip", "Skip this event", "", "It stays dead, and later events of its aggregate go on without it.")) }
            (action("discard", "Discard this event", "danger", "It is deleted for good, with its payload. Nothing brings it back."))
        }
    }
}

fn envelope(event: &OneEvent<'_>, now: Timestamp) -> Markup {
    let record = event.record;
    html! {
        h2 { "Envelope" }
        dl.facts {
            dt { "Route" } dd.mono { (visible(&format!("{}/{}", record.aggregate_type, record.event_type))) }
            @if let Some(id) = &record.aggregate_id { dt { "Aggregate" } dd.mono.all { (visible(id)) } }
            @if let Some(tenant) = &record.tenant_id { dt { "Tenant" } dd.mono { (visible(tenant)) } }
            dt { "Happened" } dd { (when(record.occurred_at, now)) " " span.quiet.mono { (record.occurred_at) } }
            dt { "Written" } dd { (when(record.created_at, now)) " " span.quiet.mono { (record.created_at) } }
            dt { "Row" } dd.mono { "seq " (record.seq) }
        }
        @if !record.headers.is_empty() && event.payload != Payload::Forbidden {
            details { summary { (count(record.headers.len() as u64, "header")) }
                dl.facts { @for (key, value) in record.headers.iter() { dt.mono { (visible(key)) } dd.mono { (visible(value)) } } }
            }
        }
        h2 #payload { "Payload" }
        p.quiet { (visible(&record.content_type)) ", " (size(record.payload_bytes)) }
        @match (event.payload, &record.payload) {
            (Payload::Forbidden, _) => p { "Your role does not show payloads and headers." },
            (Payload::Hidden, _) => p { a.button href=(format!("{}?payload=show#payload", event.frame.event(record.event_id))) { "Show the payload" } },
            (Payload::Asked, Some(bytes)) => {
                @let shown = payload::shown(bytes);
                pre tabindex="0" { (shown.text) }
                @if shown.is_cut { p.quiet { "Only its beginning is shown, as " (shown.kind) ". " (command("All of it: ", "show", record.event_id.as_str())) } }
            }
            (Payload::Asked, None) => p { "There is none." },
        }
        @if event.payload == Payload::Asked { (copy::commands(record, event.kind, event.frame.visitor.is_some())) }
        p.quiet { (command("The same on a terminal: ", "why", record.event_id.as_str())) }
    }
}

/// A command about an event, to be copied. Nothing for an id that a shell might take for more than a word: whoever writes events chooses
/// their ids.
fn command(before: &str, verb: &str, id: &str) -> Markup {
    html! {
        @if is_word(id) { (before) code.all { "outbox event " (verb) " " (id) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::pages::fake::{frame, record};

    fn one(record: &Record, payload: Payload) -> String {
        page(&OneEvent { frame: &frame(), record, behind: None, by_hand: &[], payload, kind: "sqlite" }).into_string()
    }

    #[test]
    fn a_payload_is_shown_to_whoever_asks_and_may_and_is_text() {
        let evil = "<script>alert(1)</script>";
        let headers = crate::event::Headers::new([("x".to_owned(), evil.to_owned())]).unwrap();
        let payload = Some(bytes::Bytes::from_static(b"</pre><script>alert(2)</script>"));
        let record = Record { payload, headers, last_error: Some(evil.to_owned()), ..record() };

        let asked = one(&record, Payload::Asked);
        assert!(asked.contains("&lt;/pre&gt;&lt;script&gt;alert(2)") && !asked.contains("<script>"), "{asked}");
        assert!(!one(&record, Payload::Hidden).contains("alert(2)") && !one(&record, Payload::Hidden).contains("INSERT INTO"));
        assert!(asked.contains("data-copy") && asked.contains("INSERT INTO"), "{asked}");
        let forbidden = one(&record, Payload::Forbidden);
        assert!(!forbidden.contains("INSERT INTO"), "{forbidden}");
        assert!(!forbidden.contains("alert(2)") && forbidden.matches("alert(1)").count() == 2, "no header either: {forbidden}");
    }

    #[test]
    fn every_state_says_what_happens_next() {
        let now = frame().seen.now();
        let later = now.plus(Duration::from_secs(90));
        let base = Record { status: Status::New, done_at: None, due_at: Some(now), attempts: 0, last_error: None, ..record() };
        let said = |record: Record| one(&record, Payload::Hidden);
        assert!(said(base.clone()).contains("It waits for its first delivery. Then a host takes it."));
        assert!(
            said(Record { status: Status::Retry, attempts: 2, due_at: Some(later), ..base.clone() })
                .contains("It failed 2 times; the next attempt is due in 1 min.")
        );
        assert!(said(Record { available_at: later, ..base.clone() }).contains("Its writer wants it no sooner than in 1 min."));
        assert!(
            said(Record { parked: Some("nobody answers".to_owned()), due_at: None, ..base.clone() })
                .contains("It waits without a time: nobody answers.")
        );
        assert!(said(Record { behind: Some(3), due_at: None, ..base.clone() }).contains("behind an event that is gone"));
        assert!(
            said(Record { lease_end: Some(later), locked_by: Some("owner-web-1".to_owned()), ..base.clone() })
                .contains("The host web-1 has it")
        );
        assert!(said(Record { expires_at: Some(now.minus(Duration::from_secs(1))), ..base }).contains("gives it up"));
        assert!(said(Record { blocks: true, ..record() }).contains("Later events of its aggregate wait"));
        assert!(said(record()).contains("It was given up") && said(record()).contains("after it failed 3 times"));
    }

    #[test]
    fn only_a_dead_event_can_be_replayed_and_only_one_that_blocks_skipped() {
        assert!(one(&record(), Payload::Hidden).contains("/replay\"") && !one(&record(), Payload::Hidden).contains("/skip\""));
        assert!(one(&Record { blocks: true, ..record() }, Payload::Hidden).contains("/skip\""));
        assert!(!one(&Record { status: Status::Done, ..record() }, Payload::Hidden).contains("<form class=\"action\""));
        let frame = Frame { may_act: false, ..frame() };
        let text = page(&OneEvent {
            frame: &frame,
            record: &record(),
            behind: None,
            by_hand: &[],
            payload: Payload::Forbidden,
            kind: "sqlite",
        })
        .into_string();
        assert!(!text.contains("<form"), "a viewer can do nothing: {text}");
    }

    #[test]
    fn a_command_to_copy_holds_no_id_that_a_shell_would_run() {
        assert!(command("So: ", "why", "01J00000000000000000000001").into_string().contains("outbox event why 01J"));
        for id in ["$(reboot)", "a;b", "-rf", "a`b`", "a|b"] {
            assert_eq!(command("So: ", "why", id).into_string(), "", "{id}");
        }
    }
}
