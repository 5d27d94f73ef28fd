//! Follow-up events, committed together with the answer. Needs `emit = true` in the plugin's manifest.
//!
//! ```
//! use outbox_sdk::prelude::*;
//!
//! fn on_order_placed(event: &Event, total: f64) -> Answer {
//!     NewEvent::new("Payment", "PaymentRequested").aggregate_id(&event.id).json(&total)?.emit()?;
//!     Ok(Done)
//! }
//!
//! on_order_placed(&Event::for_test("Order", "OrderPlaced"), 9.5)?;
//! assert_eq!(outbox_sdk::testing::emitted()[0].route.event_type, "PaymentRequested");
//! # Ok::<(), Failure>(())
//! ```

use std::time::Duration;

use serde::Serialize;

use crate::{Failure, Refusal, Route};

/// An event in the making. Every field has a method; the payload is empty until one is given.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an event is emitted by emit()"]
#[non_exhaustive]
pub struct NewEvent {
    /// What happened, and to what kind of thing.
    pub route: Route,
    /// To which one it happened.
    pub aggregate_id: Option<String>,
    /// Whose it is; `None` for the tenant of the event that is being answered.
    pub tenant_id: Option<String>,
    /// What the payload is.
    pub content_type: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// For whoever listens.
    pub headers: Vec<(String, String)>,
    /// `None` for an id that the host makes.
    pub id: Option<String>,
    /// From now; `None` for at once.
    pub deliver_after: Option<Duration>,
    /// From now; `None` for never.
    pub expires_after: Option<Duration>,
}

impl NewEvent {
    /// An event on this route.
    pub fn new(aggregate_type: &str, event_type: &str) -> Self {
        Self {
            route: Route { aggregate_type: aggregate_type.to_owned(), event_type: event_type.to_owned() },
            aggregate_id: None,
            tenant_id: None,
            content_type: "application/octet-stream".to_owned(),
            payload: Vec::new(),
            headers: Vec::new(),
            id: None,
            deliver_after: None,
            expires_after: None,
        }
    }

    /// To which one it happened; the key for order.
    pub fn aggregate_id(mut self, id: impl Into<String>) -> Self {
        self.aggregate_id = Some(id.into());
        self
    }

    /// Whose it is, when not the tenant of the event that is being answered.
    pub fn tenant(mut self, id: impl Into<String>) -> Self {
        self.tenant_id = Some(id.into());
        self
    }

    /// Its id: an event whose id is in the outbox already is not emitted again.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// One header more.
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((key.into(), value.into()));
        self
    }

    /// Not delivered before so long from now.
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.deliver_after = Some(delay);
        self
    }

    /// Given up if it is not done after so long.
    pub fn expires_after(mut self, delay: Duration) -> Self {
        self.expires_after = Some(delay);
        self
    }

    /// With a payload that serde turns into JSON.
    ///
    /// # Errors
    /// An unrecoverable failure when the value cannot be JSON.
    pub fn json(mut self, payload: &impl Serialize) -> Result<Self, Failure> {
        let wrong =
            |error| Failure::unrecoverable(format_args!("the payload of {} cannot be JSON: {error}", self.route.event_type));
        self.payload = serde_json::to_vec(payload).map_err(wrong)?;
        self.content_type = "application/json".to_owned();
        Ok(self)
    }

    /// With these bytes.
    pub fn bytes(mut self, content_type: impl Into<String>, payload: impl Into<Vec<u8>>) -> Self {
        (self.content_type, self.payload) = (content_type.into(), payload.into());
        self
    }

    /// Hands the event to the host, to be written with the answer. Returns its id.
    ///
    /// # Errors
    /// What the host refuses: events that are not granted, or one that breaks a rule; the message says which.
    pub fn emit(self) -> Result<String, Refusal> {
        host::emit(self)
    }
}

#[cfg(target_family = "wasm")]
mod host {
    use super::NewEvent;
    use crate::Refusal;
    use crate::bindings::millis;
    use crate::bindings::outbox::listener::emit::{Envelope, emit as call};
    use crate::bindings::outbox::listener::types::Route;

    pub(super) fn emit(event: NewEvent) -> Result<String, Refusal> {
        let envelope = Envelope {
            route: Route { aggregate_type: event.route.aggregate_type, event_type: event.route.event_type },
            aggregate_id: event.aggregate_id,
            tenant_id: event.tenant_id,
            content_type: event.content_type,
            payload: event.payload,
            headers: event.headers,
            id: event.id,
            deliver_after_ms: event.deliver_after.map(millis),
            expires_after_ms: event.expires_after.map(millis),
            attributes: Vec::new(),
        };
        call(&envelope).map_err(Refusal::from)
    }
}

#[cfg(not(target_family = "wasm"))]
#[expect(clippy::unnecessary_wraps, reason = "as the host's own")]
mod host {
    use super::NewEvent;
    use crate::Refusal;
    use crate::testing::with_host;

    pub(super) fn emit(event: NewEvent) -> Result<String, Refusal> {
        Ok(with_host(|host| {
            let id = event.id.clone().unwrap_or_else(|| format!("emitted-{}", host.emitted.len() + 1));
            host.emitted.push(event);
            id
        }))
    }
}
