//! Takes events many at a time: what `on-events` is tested with. Made without the SDK, which never gives too few answers: see
//! `effects-rust` for its `batches`. The payload, a JSON text, says what becomes of an event:
//!
//! | Payload | In `on-events` | In `on-event` |
//! |---|---|---|
//! | `"count"` | is dead with the reason `one of N` | is dead with the reason `alone` |
//! | `"fail"` | fails for good, with the reason `one of N` | the same, with `alone` |
//! | `"trap"` | traps, and the whole call with it | traps |
//! | `"alone"` | traps, and the whole call with it | is done |
//! | `"short"` | one answer is missing in the whole call | is done |
//! | `"emit"` | is dead with what it is told when it emits | emits, and is done |
//! | any other | is done | is done |

#![allow(unsafe_code, reason = "generated bindings")]

mod bindings {
    #![allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
    wit_bindgen::generate!({ world: "batch-listener", path: "../../wit/0.1.0" });
}

use bindings::exports::outbox::listener::batch_handler;
use bindings::exports::outbox::listener::handler;
use bindings::outbox::listener::emit::{Envelope, emit};
use bindings::outbox::listener::types::{Description, DispatchResult, Event, Failure, FailureKind, Route};

struct Batches;

impl handler::Guest for Batches {
    fn describe() -> Description {
        let route = |event_type: &str| Route { aggregate_type: "Batches".to_owned(), event_type: event_type.to_owned() };
        Description {
            name: "batches".to_owned(),
            version: "1.0.0".to_owned(),
            routes: vec![route("Do"), route("Emitted")],
            attributes: Vec::new(),
        }
    }

    fn on_event(event: Event) -> Result<DispatchResult, Failure> {
        answer(&event, None)
    }
}

impl batch_handler::Guest for Batches {
    fn on_events(events: Vec<Event>) -> Vec<Result<DispatchResult, Failure>> {
        let count = events.len();
        let is_short = events.iter().any(|event| said(event) == "short");
        let answers = events.iter().map(|event| answer(event, Some(count)));
        answers.skip(usize::from(is_short)).collect()
    }
}

fn said(event: &Event) -> String {
    String::from_utf8_lossy(&event.payload).trim_matches('"').to_owned()
}

/// `count`: of the events of the call; `None` in `on-event`.
fn answer(event: &Event, count: Option<usize>) -> Result<DispatchResult, Failure> {
    let with = count.map_or_else(|| "alone".to_owned(), |count| format!("one of {count}"));
    match (said(event).as_str(), count) {
        ("count", _) => Ok(DispatchResult::Dead(Some(with))),
        ("fail", _) => Err(Failure { message: with, code: None, kind: FailureKind::Unrecoverable, attributes: Vec::new() }),
        ("trap", _) | ("alone", Some(_)) => panic!("as asked"),
        ("emit", _) => match emit(&follow_up(event)) {
            Ok(_) => Ok(DispatchResult::Done),
            Err(refusal) => Ok(DispatchResult::Dead(Some(refusal.message))),
        },
        _ => Ok(DispatchResult::Done),
    }
}

fn follow_up(event: &Event) -> Envelope {
    Envelope {
        route: Route { aggregate_type: "Batches".to_owned(), event_type: "Emitted".to_owned() },
        aggregate_id: Some(event.id.clone()),
        tenant_id: None,
        content_type: "application/json".to_owned(),
        payload: b"1".to_vec(),
        headers: Vec::new(),
        id: None,
        deliver_after_ms: None,
        expires_after_ms: None,
        attributes: Vec::new(),
    }
}

bindings::export!(Batches with_types_in bindings);
