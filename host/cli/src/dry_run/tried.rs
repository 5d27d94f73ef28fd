//! One event, and what would become of it.

use outbox::event::{StateWrite, Status};
use outbox::listener::{FailureKind, Outcome};
use outbox::store::Record;
use outbox::wasm::{Call, CallReport, Outside};
use outbox::{Envelope, EnvelopeError, Event, EventId};
use serde::Serialize;

/// What would become of an event.
#[derive(Serialize)]
pub(super) struct Tried {
    pub(super) event_id: EventId,
    pub(super) seq: u64,
    pub(super) route: String,
    /// How it stands.
    pub(super) now: Status,
    pub(super) last_error: Option<String>,
    pub(super) then: Then,
    /// Whether that is something else than how it stands.
    pub(super) differs: bool,
    /// The reason, or what went wrong.
    pub(super) says: String,
    /// How many events it would emit, and how many values of its state it would change.
    emits: usize,
    writes: usize,
    /// How many HTTP requests and messages it made. None was sent: each request was answered 200, each message confirmed.
    pub(super) requests: usize,
    pub(super) messages: usize,
    fuel: u64,
}

/// How an event would end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Then {
    Done,
    /// Asked for later.
    Deferred,
    /// Failed, to be tried again.
    Retry,
    Dead,
    /// The plugin was not asked.
    Unanswered,
}

impl Then {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Deferred => "deferred",
            Self::Retry => "retry",
            Self::Dead => "dead",
            Self::Unanswered => "unanswered",
        }
    }

    fn is(self, status: Status) -> bool {
        match self {
            Self::Done => status == Status::Done,
            Self::Dead => status == Status::Dead,
            Self::Retry => status == Status::Retry,
            Self::Deferred => status == Status::New,
            Self::Unanswered => true,
        }
    }
}

impl Tried {
    pub(super) fn unanswered(row: &Record, route: String, says: String) -> Self {
        Self::new(row, route, Then::Unanswered, says)
    }

    pub(super) fn reported(row: &Record, route: String, report: &CallReport) -> Self {
        let (then, says) = match &report.outcome {
            Outcome::Done => (Then::Done, String::new()),
            Outcome::RetryAfter(delay) => (Then::Deferred, format!("in {}", humantime::format_duration(*delay))),
            Outcome::Dead(reason) => (Then::Dead, reason.clone()),
            Outcome::Failed(failure) if failure.kind == FailureKind::Unrecoverable => (Then::Dead, failure.to_string()),
            Outcome::Failed(failure) => (Then::Retry, failure.to_string()),
            Outcome::Unroutable(reason) => (Then::Unanswered, reason.clone()),
            Outcome::Busy { reason, .. } => (Then::Retry, reason.to_string()),
        };
        let written =
            report.effects.state.iter().flat_map(|state| state.keys.values()).filter_map(|change| change.write.as_ref());
        let writes = written.filter(|write| matches!(write, StateWrite::Set(_) | StateWrite::Delete)).count();
        let outside = |is: fn(&Outside) -> bool| report.outside.iter().filter(|call| is(call)).count();
        Self {
            emits: report.effects.emitted.len(),
            writes,
            requests: outside(|call| matches!(call, Outside::HttpRequest { .. })),
            messages: outside(|call| matches!(call, Outside::Message { .. })),
            fuel: report.used.fuel,
            ..Self::new(row, route, then, says)
        }
    }

    fn new(row: &Record, route: String, then: Then, says: String) -> Self {
        Self {
            event_id: row.event_id,
            seq: row.seq,
            route,
            now: row.status,
            last_error: row.last_error.clone(),
            then,
            differs: !then.is(row.status),
            says,
            emits: 0,
            writes: 0,
            requests: 0,
            messages: 0,
            fuel: 0,
        }
    }
}

/// The event as its listener would be given it.
pub(super) fn event_of(row: &Record) -> Result<Event, EnvelopeError> {
    let headers = row.headers.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut builder = Envelope::new(&row.event_type)
        .aggregate_type(&row.aggregate_type)
        .id(row.event_id)
        .occurred_at(row.occurred_at)
        .headers(headers);
    if let Some(aggregate_id) = &row.aggregate_id {
        builder = builder.aggregate_id(aggregate_id);
    }
    if let Some(tenant_id) = &row.tenant_id {
        builder = builder.tenant(tenant_id);
    }
    // Left out where no host reads it.
    let payload = row.payload.clone();
    let payload =
        payload.ok_or_else(|| EnvelopeError::PayloadTooLarge { bytes: row.payload_bytes.try_into().unwrap_or(usize::MAX) })?;
    let envelope = builder.bytes(&row.content_type, payload)?;
    // A finished event that is brought back begins anew.
    let attempt = match row.status {
        Status::New | Status::Retry => row.attempts.saturating_add(1),
        Status::Done | Status::Dead => 1,
    };
    Ok(Event::of(envelope).sequence(row.seq).attempt(attempt).fence(row.claim_seq.saturating_add(1)).build())
}

pub(super) fn call_of(row: &Record, event: Event) -> Call {
    let deferrals = match row.status {
        Status::New | Status::Retry => row.deferrals,
        Status::Done | Status::Dead => 0,
    };
    Call { deferrals, ..Call::from(event) }
}
