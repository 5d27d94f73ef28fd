//! One event: its state and the reason for it, its history, its content, and the actions.

use maud::{Markup, html};
use outbox::why::{Action, ActionCode, Explanation, attempt};
use outbox_event::EventId;
use outbox_event::time::Timestamp;
use outbox_event::units::{count, size};
use outbox_store::Record;

use super::copy;
use super::payload;
use super::plugins;
use crate::pages::document::Frame;
use crate::pages::link::{encoded, query};
use crate::pages::words::{Stand, is_word, visible, when};

/// What the page of one event shows.
pub(crate) struct OneEvent<'a> {
    pub(crate) frame: &'a Frame,
    pub(crate) record: &'a Record,
    /// The explanation of its state.
    pub(crate) why: &'a Explanation,
    /// Whether the payload is shown.
    pub(crate) payload: Payload,
}

/// Whether a visitor sees the payload.
pub(crate) enum Payload {
    Forbidden,
    Hidden,
    /// Shown, with the table that a copy of the event is written into.
    Asked(copy::Table),
}

pub(crate) fn page(event: &OneEvent<'_>) -> Markup {
    let frame = event.frame;
    let now = frame.known.now();
    html! {
        (moving(event))
        (timeline(event.why))
        (actions(event))
        (envelope(event, now))
    }
}

/// The part of the page that is updated: the state and its reason.
pub(crate) fn moving(event: &OneEvent<'_>) -> Markup {
    let (frame, record) = (event.frame, event.record);
    let now = frame.known.now();
    let route = format!("{}/{}", record.aggregate_type, record.event_type);
    let stand = html! {
        h1 { (Stand::of(record, now).show()) " " span.mono { (visible(&route)) } @if let Some(id) = &record.aggregate_id { " " span.quiet.mono { (visible(id)) } } }
        p.mono.all { (record.event_id) }
        p.lead { (event.why.sentence) }
        @if let Some(why) = &record.unreadable {
            p.quiet { "Columns that cannot be read" }
            pre.says tabindex="0" { (visible(why)) }
        }
        @if let Some(error) = &record.last_error {
            p.quiet { "Last error" }
            pre.says tabindex="0" { (visible(error)) }
        }
    };
    frame.live("why", &stand)
}

/// What happened and what comes next, newest first.
fn timeline(why: &Explanation) -> Markup {
    html! {
        h2 { "History" }
        ol.timeline {
            @for step in why.history.iter().rev() {
                li.next[step.at > why.now] { (when(step.at, why.now)) " " (visible(&step.what)) @if let Some(until) = step.until { " (last batch " (when(until, why.now)) ")" } }
            }
        }
        @if let Some(cost) = &why.last_cost {
            p {
                (visible(&capital(&attempt(cost, why.last_plugin.as_deref()))))
                @if let (Some(guest), Some(limit)) = (&cost.cost.guest, why.last_fuel_limit) { "; fuel: " (plugins::part("Fuel", guest.fuel, limit)) " of the limit" }
            }
        }
        p.quiet { (capital(&why.counted())) ". Only the last claim and the last attempt are kept in detail." }
    }
}

/// The actions, each with its consequences.
fn actions(event: &OneEvent<'_>) -> Markup {
    let may = |action: &&Action| event.frame.may_act || !is_change(action.code);
    let actions: Vec<&Action> = event.why.actions.iter().filter(may).collect();
    html! {
        @if !actions.is_empty() {
            h2 { "Actions" }
            div.actions { @for one in actions { (action(event, one)) } }
        }
    }
}

/// Whether an action changes anything.
const fn is_change(code: ActionCode) -> bool {
    !matches!(code, ActionCode::ExplainHead | ActionCode::ListPlugins | ActionCode::ListSinks | ActionCode::ExamineDatabase)
}

fn action(event: &OneEvent<'_>, action: &Action) -> Markup {
    let frame = event.frame;
    let of = |verb: &str| match action.event_id {
        Some(id) if id == event.record.event_id => format!("{verb} this event"),
        _ => format!("{verb} the first event of its queue"),
    };
    let form = |path: &str, title: String, class: &str, id: EventId| {
        html! {
            form.action method="post" action=(format!("{}/{path}", frame.event(id))) {
                (meaning(&title, action))
                label { span.unseen { "Reason" } input name="reason" placeholder="Reason, for the audit log" required maxlength="1000" autocomplete="off"; }
                div.row-of { button.(class) { (title) } }
            }
        }
    };
    let link = |to: &str, title: String| html! { div.action { (meaning(&title, action)) div.row-of { a.button href=(frame.to(to)) { (title) } } } };
    match (action.code, action.event_id, &action.route) {
        (ActionCode::Replay, Some(id), _) => form("replay", of("Replay"), "primary", id),
        (ActionCode::Skip, Some(id), _) => form("skip", of("Skip"), "", id),
        (ActionCode::Discard, Some(id), _) => form("discard", of("Discard"), "danger", id),
        (ActionCode::ExplainHead, Some(id), _) => link(&format!("events/{}", encoded(id.as_str())), of("Show")),
        (ActionCode::ResumeRoute | ActionCode::ResumePattern, _, Some(route)) => {
            let pair = query(&[("aggregate_type", route.aggregate_type.as_str()), ("event_type", route.event_type.as_str())]);
            link(&format!("routes/resume?{pair}"), format!("Resume {}", visible(&route.to_string())))
        }
        (ActionCode::ListPlugins, ..) => link("plugins", "Show plugins".to_owned()),
        (ActionCode::ListSinks, ..) => link("sinks", "Show sinks".to_owned()),
        _ => html! { div.action { p { (visible(&capital(&action.meaning))) ":" } code.all { (visible(&action.command)) } } },
    }
}

/// The title of an action, and its consequences.
fn meaning(title: &str, action: &Action) -> Markup {
    html! { strong { (title) } p.quiet { (visible(&capital(&action.meaning))) "." } }
}

/// The text with a capital first letter.
fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn envelope(event: &OneEvent<'_>, now: Timestamp) -> Markup {
    let record = event.record;
    html! {
        h2 { "Envelope" }
        dl.facts {
            dt { "Route" } dd.mono { (visible(&format!("{}/{}", record.aggregate_type, record.event_type))) }
            @if let Some(id) = &record.aggregate_id { dt { "Aggregate" } dd.mono.all { (visible(id)) } }
            @if let Some(tenant) = &record.tenant_id { dt { "Tenant" } dd.mono { (visible(tenant)) } }
            dt { "Occurred" } dd { (when(record.occurred_at, now)) " " span.quiet.mono { (record.occurred_at) } }
            dt { "Written" } dd { (when(record.created_at, now)) " " span.quiet.mono { (record.created_at) } }
            dt { "Row" } dd.mono { "seq " (record.seq) }
        }
        @if !record.headers.is_empty() && !matches!(event.payload, Payload::Forbidden) {
            details { summary { (count(record.headers.len() as u64, "header")) }
                dl.facts { @for (key, value) in record.headers.iter() { dt.mono { (visible(key)) } dd.mono { (visible(value)) } } }
            }
        }
        h2 #payload { "Payload" }
        p.quiet { (visible(&record.content_type)) ", " (size(record.payload_bytes)) }
        @match (&event.payload, &record.payload) {
            (Payload::Forbidden, _) => p { "Your role may not see payloads and headers." },
            (Payload::Hidden, _) => p { a.button href=(format!("{}?payload=show#payload", event.frame.event(record.event_id))) { "Show the payload" } },
            (Payload::Asked(_), Some(bytes)) => {
                @let shown = payload::shown(bytes);
                pre tabindex="0" { (shown.text) }
                @if shown.is_cut { p.quiet { "Only the beginning is shown, as " (shown.kind) ". " (command("To see all of it: ", "show", record.event_id.as_str())) } }
            }
            (Payload::Asked(_), None) => p { "The payload is too large to be shown." },
        }
        @if let Payload::Asked(table) = &event.payload { (copy::commands(record, table, event.frame.visitor.is_some())) }
        p.quiet { (command("The same in a terminal: ", "why", record.event_id.as_str())) }
    }
}

/// A command about an event, to be copied. Writers choose the ids: none is shown for an id that a shell might take for more
/// than a word.
fn command(before: &str, verb: &str, id: &str) -> Markup {
    html! {
        @if is_word(id) { (before) code.all { "outbox event " (verb) " " (id) } }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox::why::Facts;
    use outbox_event::Status;
    use outbox_store::RouteRecord;

    use super::*;
    use crate::pages::fake::{frame, record, route};

    fn facts(record: Record) -> Facts {
        let known = frame().known;
        let snapshot = known.snapshot.as_deref().expect("it is made up");
        changed!(Facts { nodes: snapshot.nodes.clone(), routes: snapshot.routes.clone(), ..Facts::new(record, known.now()) })
    }

    fn asked() -> Payload {
        Payload::Asked(copy::Table { kind: "sqlite", name: "outbox_event".to_owned() })
    }

    fn shown(facts: &Facts, payload: Payload, may_act: bool) -> String {
        let frame = Frame { may_act, ..frame() };
        page(&OneEvent { frame: &frame, record: &facts.record, why: &Explanation::of(facts), payload }).into_string()
    }

    fn one(record: &Record, payload: Payload) -> String {
        shown(&facts(record.clone()), payload, true)
    }

    #[test]
    fn a_payload_is_shown_to_whoever_asks_and_may_and_is_text() {
        let evil = "<script>alert(1)</script>";
        let headers = outbox_event::Headers::new([("x".to_owned(), evil.to_owned())]).unwrap();
        let payload = Some(bytes::Bytes::from_static(b"</pre><script>alert(2)</script>"));
        let record = changed!(Record { payload, headers, last_error: Some(evil.to_owned()), ..record() });

        let asked = one(&record, asked());
        assert!(asked.contains("&lt;/pre&gt;&lt;script&gt;alert(2)") && !asked.contains("<script>"), "{asked}");
        assert!(!one(&record, Payload::Hidden).contains("alert(2)") && !one(&record, Payload::Hidden).contains("INSERT INTO"));
        assert!(asked.contains("data-copy") && asked.contains("INSERT INTO"), "{asked}");
        let forbidden = one(&record, Payload::Forbidden);
        assert!(!forbidden.contains("INSERT INTO"), "{forbidden}");
        assert!(!forbidden.contains("alert(2)") && forbidden.matches("alert(1)").count() == 2, "no header either: {forbidden}");
    }

    #[test]
    fn every_text_that_may_scroll_can_be_focused() {
        let payload = Some(bytes::Bytes::from_static(b"{}"));
        let unreadable = Some("the column headers is not JSON".to_owned());
        let record = changed!(Record { payload, unreadable, last_error: Some("refused".to_owned()), ..record() });

        let text = one(&record, asked());

        let tags: Vec<&str> = text.split("<pre").skip(1).filter_map(|rest| rest.split('>').next()).collect();
        assert!(tags.len() > 3 && tags.iter().all(|tag| tag.contains("tabindex=\"0\"")), "{tags:?}");
    }

    #[test]
    fn the_page_says_why_in_the_words_of_the_command_line_and_no_text_of_a_writer_is_markup() {
        let evil = "<script>alert(1)</script>";
        let due_at = Some(frame().known.now().plus(Duration::from_secs(90)));
        let record =
            changed!(Record { status: Status::Retry, done_at: None, due_at, last_error: Some(evil.to_owned()), ..record() });
        let text = one(&record, Payload::Hidden);
        assert!(text.contains("class=\"lead\">It failed 3 times, last with: &lt;script&gt;alert(1)"), "{text}");
        assert!(!text.contains("<script>"), "{text}");
    }

    #[test]
    fn no_state_is_told_with_counters_of_nothing() {
        let soon = Some(frame().known.now().plus(Duration::from_secs(90)));
        let never = changed!(Record {
            status: Status::New,
            done_at: None,
            attempts: 0,
            claim_seq: 0,
            due_at: soon,
            last_error: None,
            ..record()
        });
        let at_once = changed!(Record { attempts: 0, claim_seq: 1, ..record() });
        for (record, counted) in [
            (changed!(Record { status: Status::Retry, done_at: None, due_at: soon, ..record() }), "3 failed attempts."),
            (record(), "3 failed attempts."),
            (at_once, "No failed attempt."),
            (never.clone(), "No outcome yet."),
            (changed!(Record { parked: Some("no listener".to_owned()), due_at: None, ..never.clone() }), "No outcome yet."),
            (changed!(Record { behind: Some(3), due_at: None, ..never.clone() }), "No outcome yet."),
            (
                changed!(Record { status: Status::Done, attempts: 0, claim_seq: 1, last_error: None, ..record() }),
                "No failed attempt.",
            ),
        ] {
            let text = one(&record, Payload::Hidden);
            assert!(text.contains(counted) && !text.contains(">0 ") && !text.contains(", 0 "), "{counted}: {text}");
        }
    }

    #[test]
    fn only_a_dead_event_can_be_replayed_and_only_one_that_blocks_skipped() {
        assert!(one(&record(), Payload::Hidden).contains("/replay\"") && !one(&record(), Payload::Hidden).contains("/skip\""));
        assert!(one(&changed!(Record { blocks: true, ..record() }), Payload::Hidden).contains("/skip\""));
        assert!(
            !one(&changed!(Record { status: Status::Done, ..record() }), Payload::Hidden).contains("<form class=\"action\"")
        );
        let text = shown(&facts(record()), Payload::Forbidden, false);
        assert!(!text.contains("<form"), "a viewer can do nothing: {text}");
    }

    #[test]
    fn the_page_offers_what_the_explanation_does_to_the_event_in_front_and_to_the_pause() {
        let head = changed!(Record { event_id: "front".parse().unwrap(), blocks: true, ..record() });
        let behind = changed!(Record { status: Status::New, done_at: None, behind: Some(head.seq), ..record() });
        let blocked = changed!(Facts { queue: vec![head], ..facts(behind.clone()) });
        let text = shown(&blocked, Payload::Hidden, true);
        for part in [
            "events/front/replay\"",
            "events/front/skip\"",
            "events/front/discard\"",
            "href=\"./events/front\"",
            "first event of its queue",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("Replay this event"), "only a dead event can be replayed: {text}");
        let viewer = shown(&blocked, Payload::Forbidden, false);
        assert!(viewer.contains("href=\"./events/front\"") && !viewer.contains("<form"), "a viewer may look: {viewer}");

        let pause = changed!(RouteRecord { paused_at: Some(frame().known.now()), ..route("Order", "*") });
        let due_at = Some(frame().known.now());
        let paused = changed!(Facts { routes: vec![pause], ..facts(changed!(Record { behind: None, due_at, ..behind })) });
        let link = "routes/resume?aggregate_type=Order&amp;event_type=%2A";
        let text = shown(&paused, Payload::Hidden, true);
        assert!(text.contains(link) && text.contains("Resume Order/*"), "{text}");
        assert!(!shown(&paused, Payload::Forbidden, false).contains(link), "a viewer resumes nothing");
    }

    #[test]
    fn the_page_tells_every_step_of_the_explanation() {
        let expires_at = Some(frame().known.now().plus(Duration::from_secs(90)));
        let record = changed!(Record {
            expires_at,
            // Before the page is drawn.
            locked_at: Some(frame().known.now().minus(Duration::from_secs(1))),
            locked_by: Some("owner-web-1".to_owned()),
            ..record()
        });
        let facts = facts(record);
        let text = shown(&facts, Payload::Hidden, true);
        let steps = Explanation::of(&facts).history;
        assert_eq!(steps.len(), 3, "{steps:?}");
        for step in steps {
            assert!(text.contains(&step.what), "{}: {text}", step.what);
        }
        assert_eq!(text.matches("<li class=\"next\">").count(), 0, "nothing is to come for a finished event: {text}");
    }

    #[test]
    fn what_is_to_come_is_told_as_such() {
        let expires_at = Some(frame().known.now().plus(Duration::from_secs(90)));
        let record =
            changed!(Record { expires_at, status: Status::New, done_at: None, due_at: Some(frame().known.now()), ..record() });
        let text = shown(&facts(record), Payload::Hidden, true);
        let next = text.split("<li class=\"next\">").nth(1).unwrap_or_else(|| panic!("{text}"));
        assert!(next.split("</li>").next().is_some_and(|step| step.contains("expires")), "{next}");
    }

    #[test]
    fn a_command_to_copy_holds_no_id_that_a_shell_would_run() {
        assert!(command("So: ", "why", "01J00000000000000000000001").into_string().contains("outbox event why 01J"));
        for id in ["$(reboot)", "a;b", "-rf", "a`b`", "a|b"] {
            assert_eq!(command("So: ", "why", id).into_string(), "", "{id}");
        }
    }
}
