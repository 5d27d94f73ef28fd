//! The events that the rules try a plugin with.

use std::sync::Arc;

use bytes::Bytes;
use outbox_event::time::Timestamp;
use outbox_event::{Envelope, Event, EventId, MAX_PAYLOAD_BYTES, Route};

use super::replies::Script;
use crate::{CallReport, PluginHost};

/// Of an event that the rules about headroom look at: larger ones are rare, and cost what they cost.
pub(super) const REALISTIC_BYTES: usize = 16 << 10;
/// 2026-01-01: an event happened when it happened, or the same event would not be the same twice.
pub(super) const OCCURRED_AT: i64 = 1_767_225_600_000_000;

/// One event, and the plugin as it meets it.
#[derive(Clone)]
pub(super) struct Subject {
    /// What kind of event it is, for people.
    pub(super) what: String,
    /// With the settings and the state that belong to the event.
    pub(super) host: Arc<PluginHost>,
    pub(super) event: Arc<Event>,
    pub(super) deferrals: u32,
    pub(super) max_attempts: Option<u32>,
    /// What replies to its requests and messages; `None` where all of them succeed.
    pub(super) script: Option<Arc<Script>>,
}

/// A subject that was answered, and how, in an instance of its own.
#[derive(Clone)]
pub(super) struct Answered {
    pub(super) subject: Subject,
    pub(super) report: CallReport,
}

impl Subject {
    pub(super) fn new(what: String, host: Arc<PluginHost>, event: Event) -> Self {
        Self { what, host, event: Arc::new(event), deferrals: 0, max_attempts: None, script: None }
    }

    /// The same with another event.
    pub(super) fn with(&self, what: &str, event: Event) -> Self {
        Self { what: format!("{}, {what}", self.route()), event: Arc::new(event), ..self.clone() }
    }

    pub(super) fn route(&self) -> &Route {
        self.event.route()
    }
}

/// Ordinary events of a route, whatever it is about.
pub(super) fn ordinary(host: &Arc<PluginHost>, route: &Route) -> Vec<Subject> {
    let text = "x".repeat(REALISTIC_BYTES - 32);
    let payloads = [
        ("an empty object", "{}".to_owned()),
        ("a small object", r#"{"id": 1, "name": "a", "total": 9.5, "items": [1, 2, 3]}"#.to_owned()),
        ("null", "null".to_owned()),
        ("16 KiB of text", format!("{{\"text\": \"{text}\"}}")),
    ];
    let subject = |(number, (what, payload)): (usize, (&str, String))| {
        let event = event(route, number, "application/json", payload.into());
        Subject::new(format!("{route}, {what}"), host.clone(), event)
    };
    payloads.into_iter().enumerate().map(subject).collect()
}

/// An event of a route, of which the rules decide the payload.
pub(super) fn event(route: &Route, number: usize, content_type: &str, payload: Bytes) -> Event {
    let envelope = Envelope::new(&route.event_type)
        .aggregate(&route.aggregate_type, number.to_string())
        .id(id(number))
        .occurred_at(Timestamp::from_micros(OCCURRED_AT))
        .header("correlation-id", "conformance")
        .bytes(content_type, payload)
        .expect("a declared route, and at most 1 MiB");
    Event::of(envelope).sequence(number as u64 + 1).build()
}

/// The same id at every run.
fn id(number: usize) -> EventId {
    format!("01KDVQ2C00{number:016}").parse().expect("26 characters of a ULID")
}

/// The event with other bytes in it.
pub(super) fn with_payload(event: &Event, payload: impl Into<Bytes>) -> Event {
    rebuilt(event, |envelope| envelope.to_builder().bytes(envelope.content_type(), payload))
}

/// The event with a thousand headers, as many as one may have.
pub(super) fn with_many_headers(event: &Event) -> Event {
    let own = event.envelope().headers().iter().count();
    let headers = (own..1_000).map(|number| (format!("x-conformance-{number:04}"), "v".repeat(64)));
    rebuilt(event, |envelope| {
        envelope.to_builder().headers(headers).bytes(envelope.content_type(), envelope.payload_bytes().to_vec())
    })
}

/// The event of a type that the plugin did not declare.
pub(super) fn of_unknown_type(event: &Event) -> Event {
    let envelope = Envelope::new("UnknownToThisPlugin")
        .aggregate(event.aggregate_type(), "1")
        .id(event.id())
        .occurred_at(event.occurred_at())
        .json_text("{}")
        .expect("a good envelope");
    Event::of(envelope).sequence(event.sequence()).build()
}

/// The delivery that comes after this one was cut off.
pub(super) fn redelivered(event: &Event) -> Event {
    let (attempt, fence) = (event.attempt().saturating_add(1), event.fence().saturating_add(1));
    Event::of(event.envelope().clone()).sequence(event.sequence()).attempt(attempt).fence(fence).build()
}

/// The event on an attempt that no host has ever reached.
pub(super) fn on_last_attempt(event: &Event) -> Event {
    Event::of(event.envelope().clone()).sequence(u64::MAX).attempt(u32::MAX).fence(u64::MAX).build()
}

/// A JSON text of the largest size, as an export of many records looks.
pub(super) fn largest_json() -> Bytes {
    let record = r#"{"id":4711,"name":"a thing of the shop","total":99.5,"sent":false,"tags":["a","b"]}"#;
    let count = (MAX_PAYLOAD_BYTES - 16) / (record.len() + 1);
    format!("{{\"items\":[{}]}}", vec![record; count].join(",")).into()
}

fn rebuilt(event: &Event, change: impl FnOnce(&Envelope) -> Result<Envelope, outbox_event::EnvelopeError>) -> Event {
    let envelope = change(event.envelope()).expect("within the bounds of an envelope");
    Event::of(envelope).sequence(event.sequence()).attempt(event.attempt()).fence(event.fence()).build()
}
