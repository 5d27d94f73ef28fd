//! An event as its writer hands it over, before it has a status.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::{AggregateType, EventId, EventType, Headers, Route, TRACEPARENT, TRACESTATE, TraceParent};
use crate::time::Timestamp;

/// The content type of a payload unless it says otherwise.
pub(super) const JSON: &str = "application/json";

/// Whether an event is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeping {
    /// In the table, from the writer's transaction until it is purged.
    #[default]
    Stored,
    /// Never in the table: delivered after the commit from memory, and lost in the cases that
    /// [`excluded`](super::EnvelopeBuilder::excluded) names.
    Excluded,
}

/// An event as its writer hands it over: checked, complete, immutable, cheap to clone.
///
/// ```
/// use std::time::Duration;
///
/// # use outbox_event as outbox;
/// use outbox::Envelope;
///
/// # fn main() -> Result<(), outbox::EnvelopeError> {
/// let envelope = Envelope::new("OrderPlaced")
///     .aggregate("Order", "42")
///     .tenant("acme")
///     .header("source", "checkout")
///     .deliver_after(Duration::from_secs(60))
///     .json(&serde_json::json!({"order_id": 42, "total": 99.5}))?; // the payload comes last, and ends the building
///
/// assert_eq!(envelope.route().to_string(), "Order/OrderPlaced");
/// assert!(envelope.is_delayed());
/// assert!(Envelope::new("").json(&()).is_err(), "rules are checked at the end");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    pub(super) id: EventId,
    pub(super) route: Route,
    pub(super) aggregate_id: Option<Box<str>>,
    pub(super) tenant_id: Option<Box<str>>,
    pub(super) occurred_at: Timestamp,
    pub(super) available_at: Timestamp,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) headers: Headers,
    pub(super) content_type: Cow<'static, str>,
    pub(super) payload: Bytes,
    pub(super) keeping: Keeping,
}

impl Envelope {
    /// An envelope as a store read it back. The names were checked when they were made; what a plain INSERT wrote is taken as
    /// it is, since a refusal would come too late. An empty aggregate id means that the event belongs to no aggregate.
    #[doc(hidden)] // for stores
    #[must_use]
    #[expect(clippy::too_many_arguments, reason = "one for each column; a struct for them would be this struct")]
    pub fn stored(
        id: EventId,
        route: Route,
        aggregate_id: Option<&str>,
        tenant_id: Option<&str>,
        occurred_at: Timestamp,
        available_at: Timestamp,
        expires_at: Option<Timestamp>,
        headers: Headers,
        content_type: &str,
        payload: Bytes,
    ) -> Self {
        let content_type = if content_type == JSON { Cow::Borrowed(JSON) } else { Cow::Owned(content_type.to_owned()) };
        Self {
            id,
            route,
            aggregate_id: aggregate_id.filter(|id| !id.is_empty()).map(Box::from),
            tenant_id: tenant_id.map(Box::from),
            occurred_at,
            available_at,
            expires_at,
            headers,
            content_type,
            payload,
            keeping: Keeping::Stored,
        }
    }

    /// The event's key.
    #[must_use]
    pub fn id(&self) -> EventId {
        self.id
    }

    /// The pair that picks its listener.
    #[must_use]
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// What happened.
    #[must_use]
    pub fn event_type(&self) -> &EventType {
        &self.route.event_type
    }

    /// To what kind of thing it happened.
    #[must_use]
    pub fn aggregate_type(&self) -> &AggregateType {
        &self.route.aggregate_type
    }

    /// To which one it happened; `None` when the writer said nothing.
    #[must_use]
    pub fn aggregate_id(&self) -> Option<&str> {
        self.aggregate_id.as_deref()
    }

    /// The tenant that the event belongs to; `None` when the writer said nothing.
    #[must_use]
    pub fn tenant_id(&self) -> Option<&str> {
        self.tenant_id.as_deref()
    }

    /// When it happened.
    #[must_use]
    pub fn occurred_at(&self) -> Timestamp {
        self.occurred_at
    }

    /// When it may first be delivered; `occurred_at` when the writer asked for no delay.
    #[must_use]
    pub fn available_at(&self) -> Timestamp {
        self.available_at
    }

    /// When it is given up even if it was never delivered; `None` for never.
    #[must_use]
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// What travels beside the payload.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Says which trace the event belongs to, unless it says so itself. Left out where the headers have no room for it.
    #[doc(hidden)] // for the host
    pub fn trace(&mut self, parent: &TraceParent, state: &str) {
        if self.headers.add(TRACEPARENT, parent.as_str()) && !state.is_empty() {
            self.headers.add(TRACESTATE, state);
        }
    }

    /// What the payload's bytes are; `application/json` unless said otherwise.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.content_type
    }

    /// The payload: the very bytes that were written.
    #[must_use]
    pub fn payload_bytes(&self) -> &Bytes {
        &self.payload
    }

    /// The payload read as JSON.
    ///
    /// # Errors
    /// When the bytes are not JSON, or not of this shape.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.payload)
    }

    /// Whether its first delivery was put off.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        self.available_at > self.occurred_at
    }

    /// Whether it is stored.
    #[must_use]
    pub fn keeping(&self) -> Keeping {
        self.keeping
    }

    /// Roughly how much memory it takes, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        std::mem::size_of::<Self>() + self.payload.len() + self.headers.size_bytes()
    }
}
