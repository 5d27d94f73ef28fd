//! Building an envelope: what may be said of an event, and the rules for it.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::envelope::JSON;
use super::headers::{CORRELATION_ID, TRACEPARENT, TRANSACTION_ID};
use super::name::check;
use super::{AggregateType, Envelope, EventId, Headers, HeadersError, Keeping, NameError, Route};
use crate::time::{Timestamp, system_clock};

/// The largest payload: 1 MiB.
pub const MAX_PAYLOAD_BYTES: usize = 1_048_576;

/// Why an envelope could not be built. Nothing was written; build it again, corrected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// One of the names breaks its rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// One of the headers breaks a rule.
    #[error(transparent)]
    Headers(#[from] HeadersError),
    /// The payload is larger than the outbox takes.
    #[error("payload has {bytes} bytes; at most 1048576 are allowed: store it elsewhere and send a reference")]
    PayloadTooLarge {
        /// How many bytes it has.
        bytes: usize,
    },
    /// The payload could not be turned into JSON.
    #[error("payload could not be serialised as JSON")]
    Serialise(#[source] serde_json::Error),
    /// The payload was given as JSON text, and is not.
    #[error("payload is not JSON, though it was given as JSON; give other bytes a content type of their own")]
    NotJson(#[source] serde_json::Error),
    /// Two ways to say the same thing.
    #[error("both available_at and deliver_after are set; set one of them")]
    TwoDeliveryTimes,
    /// A delay that is none.
    #[error("deliver_after is {0:?}; it must be above zero (leave it out to deliver at once)")]
    DelayNotPositive(Duration),
    /// A delivery before the event.
    #[error(
        "available_at ({available_at}) is before occurred_at ({occurred_at}); an event cannot be delivered before it happened"
    )]
    AvailableBeforeOccurred {
        /// When it was to be delivered.
        available_at: Timestamp,
        /// When it happened.
        occurred_at: Timestamp,
    },
    /// It would be given up before it is delivered.
    #[error("expires_at ({expires_at}) is not after {after}; the event would expire before its first delivery")]
    ExpiresTooEarly {
        /// When it would expire.
        expires_at: Timestamp,
        /// When it would first be delivered.
        after: Timestamp,
    },
}

impl EnvelopeError {
    /// The field that breaks a rule, by its name in JSON.
    #[doc(hidden)] // for the host
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Name(NameError::Empty { what } | NameError::TooLong { what, .. } | NameError::Character { what, .. }) => what,
            Self::Headers(_) => "headers",
            Self::TwoDeliveryTimes | Self::AvailableBeforeOccurred { .. } => "available_at",
            Self::DelayNotPositive(_) => "deliver_after",
            Self::ExpiresTooEarly { .. } => "expires_at",
            Self::PayloadTooLarge { .. } | Self::Serialise(_) | Self::NotJson(_) => "payload",
        }
    }
}

/// An envelope in the making. Rules are checked at the end, by the method that takes the payload.
#[derive(Clone, Debug, Default)]
#[must_use = "give it a payload: json, json_text or bytes"]
pub struct EnvelopeBuilder {
    id: Option<EventId>,
    event_type: String,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    tenant_id: Option<String>,
    now: Option<Timestamp>,
    occurred_at: Option<Timestamp>,
    available_at: Option<Timestamp>,
    deliver_after: Option<Duration>,
    expires_at: Option<Timestamp>,
    headers: Vec<(String, String)>,
    keeping: Keeping,
}

impl Envelope {
    /// Starts an event of this type: a plain string, an [`EventType`](super::EventType), or an enum made by
    /// [`names!`](crate::names). The payload comes last and ends the building: [`json`](EnvelopeBuilder::json),
    /// [`json_text`](EnvelopeBuilder::json_text) or [`bytes`](EnvelopeBuilder::bytes).
    #[expect(clippy::new_ret_no_self, reason = "the payload ends the building, so that none can be forgotten")]
    pub fn new(event_type: impl AsRef<str>) -> EnvelopeBuilder {
        EnvelopeBuilder { event_type: event_type.as_ref().to_owned(), ..EnvelopeBuilder::default() }
    }

    /// Starts another event from this one, id included, for a hook that gives it another payload. A delay is carried over as
    /// `available_at`.
    pub fn to_builder(&self) -> EnvelopeBuilder {
        EnvelopeBuilder {
            id: Some(self.id),
            event_type: self.event_type().as_str().to_owned(),
            aggregate_type: Some(self.aggregate_type().as_str().to_owned()),
            aggregate_id: self.aggregate_id.as_deref().map(str::to_owned),
            tenant_id: self.tenant_id.as_deref().map(str::to_owned),
            now: None,
            occurred_at: Some(self.occurred_at),
            available_at: self.is_delayed().then_some(self.available_at),
            deliver_after: None,
            expires_at: self.expires_at,
            headers: self.headers.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            keeping: self.keeping,
        }
    }

    /// The same event with something said differently; what is not said again stays, and so do the bytes of the payload. For a
    /// hook that adds a header, say.
    ///
    /// # Errors
    /// When a field breaks its rule; the message says which.
    pub fn with(&self, change: impl FnOnce(EnvelopeBuilder) -> EnvelopeBuilder) -> Result<Self, EnvelopeError> {
        change(self.to_builder()).build(self.content_type.clone(), self.payload.clone())
    }
}

impl EnvelopeBuilder {
    /// To what it happened: kind and key.
    pub fn aggregate(self, aggregate_type: impl AsRef<str>, aggregate_id: impl Into<String>) -> Self {
        self.aggregate_type(aggregate_type).aggregate_id(aggregate_id)
    }

    /// To what kind of thing it happened. Default [`AggregateType::GLOBAL`].
    pub fn aggregate_type(mut self, aggregate_type: impl AsRef<str>) -> Self {
        self.aggregate_type = Some(aggregate_type.as_ref().to_owned());
        self
    }

    /// To which one it happened; at most 128 characters.
    pub fn aggregate_id(mut self, aggregate_id: impl Into<String>) -> Self {
        self.aggregate_id = Some(aggregate_id.into());
        self
    }

    /// The tenant that the event belongs to; at most 64 characters. Carried to the listener, not interpreted.
    pub fn tenant(mut self, tenant_id: impl Into<String>) -> Self {
        self.tenant_id = Some(tenant_id.into());
        self
    }

    /// The event's key. Default: a new ULID.
    pub fn id(mut self, id: EventId) -> Self {
        self.id = Some(id);
        self
    }

    /// When it happened. Default: now.
    pub fn occurred_at(mut self, time: Timestamp) -> Self {
        self.occurred_at = Some(time);
        self
    }

    /// Not delivered before this time. Excludes [`deliver_after`](Self::deliver_after).
    pub fn available_at(mut self, time: Timestamp) -> Self {
        self.available_at = Some(time);
        self
    }

    /// Not delivered before this time after it happened. Excludes [`available_at`](Self::available_at).
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.deliver_after = Some(delay);
        self
    }

    /// Given up, dead, if it is not done by this time. Default: never.
    pub fn expires_at(mut self, time: Timestamp) -> Self {
        self.expires_at = Some(time);
        self
    }

    /// One header more; the same key again replaces the value.
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((key.into(), value.into()));
        self
    }

    /// Many headers more.
    pub fn headers(mut self, headers: impl IntoIterator<Item = (String, String)>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Ties together what belongs to one piece of business; the header `correlation-id`.
    pub fn correlation_id(self, id: impl Into<String>) -> Self {
        self.header(CORRELATION_ID, id)
    }

    /// Names the writer's transaction; the header `transaction-id`.
    pub fn transaction_id(self, id: impl Into<String>) -> Self {
        self.header(TRANSACTION_ID, id)
    }

    /// The W3C trace context of the writer; the header `traceparent`.
    pub fn traceparent(self, value: impl Into<String>) -> Self {
        self.header(TRACEPARENT, value)
    }

    /// Never stored: delivered after the commit from memory. For what is worth telling but not worth a row.
    ///
    /// A failed attempt is repeated as for any other event, from memory. The event is **lost** when the process dies, is killed
    /// or stops before a listener was done with it; when it dies (its listener gives it up, fails too often, or was never there);
    /// and when the outcome of its transaction stays unknown, because a `Receipt` or the future of a write was dropped or because
    /// the commit's result is unknown. A write is refused where the event could not be kept: with a delay, in modes that deliver
    /// from the store alone, and while the hot queue has no room.
    pub fn excluded(mut self) -> Self {
        self.keeping = Keeping::Excluded;
        self
    }

    /// What is taken as the current time, instead of the system clock; for tests.
    pub fn now(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }

    /// Ends with a payload that serde turns into JSON, once.
    ///
    /// # Errors
    /// When the value cannot be JSON, or a field breaks its rule; the message says which.
    pub fn json<T: Serialize + ?Sized>(self, payload: &T) -> Result<Envelope, EnvelopeError> {
        let text = serde_json::to_vec(payload).map_err(EnvelopeError::Serialise)?;
        self.build(Cow::Borrowed(JSON), Bytes::from(text))
    }

    /// Ends with a payload that is JSON text already; its bytes are kept as they are.
    ///
    /// # Errors
    /// When it is not JSON, or a field breaks its rule; the message says which.
    pub fn json_text(self, payload: impl Into<Bytes>) -> Result<Envelope, EnvelopeError> {
        let payload = payload.into();
        serde_json::from_slice::<serde::de::IgnoredAny>(&payload).map_err(EnvelopeError::NotJson)?;
        self.build(Cow::Borrowed(JSON), payload)
    }

    /// Ends with any bytes and what they are, for example `application/x-protobuf`.
    ///
    /// # Errors
    /// When a field breaks its rule; the message says which.
    pub fn bytes(self, content_type: impl Into<String>, payload: impl Into<Bytes>) -> Result<Envelope, EnvelopeError> {
        let content_type = content_type.into();
        check("content_type", &content_type, 128)?;
        self.build(Cow::Owned(content_type), payload.into())
    }

    fn build(self, content_type: Cow<'static, str>, payload: Bytes) -> Result<Envelope, EnvelopeError> {
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(EnvelopeError::PayloadTooLarge { bytes: payload.len() });
        }
        let aggregate_type = self.aggregate_type.as_deref().unwrap_or(AggregateType::GLOBAL);
        let route = Route::of_event(aggregate_type, self.event_type)?;
        let now = self.now.unwrap_or_else(|| system_clock().now());
        let occurred_at = self.occurred_at.unwrap_or(now);
        let available_at = available_at(occurred_at, self.available_at, self.deliver_after)?;
        if let Some(expires_at) = self.expires_at.filter(|expires_at| *expires_at <= available_at) {
            return Err(EnvelopeError::ExpiresTooEarly { expires_at, after: available_at });
        }
        Ok(Envelope {
            id: self.id.unwrap_or_else(|| EventId::generate(now)),
            route,
            aggregate_id: optional("aggregate_id", self.aggregate_id, 128)?,
            tenant_id: optional("tenant_id", self.tenant_id, 64)?,
            occurred_at,
            available_at,
            expires_at: self.expires_at,
            headers: Headers::new(self.headers)?,
            content_type,
            payload,
            keeping: self.keeping,
        })
    }
}

fn available_at(occurred_at: Timestamp, at: Option<Timestamp>, after: Option<Duration>) -> Result<Timestamp, EnvelopeError> {
    match (at, after) {
        (Some(_), Some(_)) => Err(EnvelopeError::TwoDeliveryTimes),
        (None, None) => Ok(occurred_at),
        (None, Some(delay)) if delay < Duration::from_micros(1) => Err(EnvelopeError::DelayNotPositive(delay)),
        (None, Some(delay)) => Ok(occurred_at.plus(delay)),
        (Some(available_at), None) if available_at < occurred_at => {
            Err(EnvelopeError::AvailableBeforeOccurred { available_at, occurred_at })
        }
        (Some(available_at), None) => Ok(available_at),
    }
}

fn optional(what: &'static str, text: Option<String>, max: usize) -> Result<Option<Box<str>>, NameError> {
    text.map(|text| check(what, &text, max).map(|()| text.into_boxed_str())).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let envelope = Envelope::new("OrderPlaced").json(&serde_json::json!({"a": 1})).expect("valid");
        assert_eq!(envelope.aggregate_type().as_str(), "__GLOBAL__");
        assert_eq!(envelope.available_at(), envelope.occurred_at());
        assert_eq!(envelope.content_type(), "application/json");
        assert_eq!(envelope.id().as_str().len(), 26);
        assert!(!envelope.is_delayed() && envelope.headers().is_empty());
    }

    #[test]
    fn the_bytes_written_are_the_bytes_kept() {
        let text = "{\"b\":1.10,\"a\":  [1e400]}";
        let envelope = Envelope::new("X").json_text(text).expect("valid");
        assert_eq!(envelope.payload_bytes(), text.as_bytes());
    }

    #[test]
    fn each_rule_has_its_own_message() {
        let new = || Envelope::new("X").now(at(100));
        let refused = |builder: EnvelopeBuilder| builder.json_text("{}").expect_err("refused").to_string();
        assert!(refused(Envelope::new("")).starts_with("event_type is empty"));
        assert!(refused(Envelope::new("*")).starts_with("event_type holds the character '*'"));
        assert!(refused(new().aggregate_type("*")).starts_with("aggregate_type holds the character '*'"));
        assert!(refused(new().aggregate_type("a".repeat(65))).starts_with("aggregate_type has 65"));
        assert!(refused(new().aggregate_id("a".repeat(129))).starts_with("aggregate_id has 129"));
        assert!(refused(new().tenant("a".repeat(65))).starts_with("tenant_id has 65"));
        assert!(refused(new().header("", "x")).starts_with("a header's key is empty"));
        assert!(refused(new().deliver_after(Duration::ZERO)).starts_with("deliver_after is 0ns"));
        assert!(refused(new().available_at(at(99))).starts_with("available_at (1970-01-01T00:01:39.000000Z) is before"));
        assert!(refused(new().available_at(at(101)).deliver_after(Duration::from_secs(1))).starts_with("both available_at"));
        assert!(refused(new().expires_at(at(100))).starts_with("expires_at (1970-01-01T00:01:40.000000Z) is not after"));
        let error = new().bytes("a/b", vec![0; MAX_PAYLOAD_BYTES + 1]).expect_err("too large");
        assert!(error.to_string().starts_with("payload has 1048577 bytes"));
        assert!(new().bytes("a/b", vec![0; MAX_PAYLOAD_BYTES]).is_ok());
        assert!(new().json_text("{").expect_err("not JSON").to_string().starts_with("payload is not JSON"));
    }

    #[test]
    fn a_delay_counts_from_when_the_event_happened() {
        let envelope =
            Envelope::new("X").occurred_at(at(10)).deliver_after(Duration::from_secs(5)).json_text("1").expect("valid");
        assert_eq!(envelope.available_at(), at(15));
        assert!(envelope.is_delayed());
    }
}
