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

/// An event to emit. Every field has a method; the payload is empty unless one is set.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an event is emitted by emit()"]
#[non_exhaustive]
pub struct NewEvent {
    /// The aggregate type and the event type.
    pub route: Route,
    /// The aggregate's id; `None` for none.
    pub aggregate_id: Option<String>,
    /// The tenant; `None` for the tenant of the event that is being answered.
    pub tenant_id: Option<String>,
    /// The media type of the payload.
    pub content_type: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The event's id; `None` for one that the host makes.
    pub id: Option<String>,
    /// How long the event waits before it is delivered; `None` for no wait.
    pub deliver_after: Option<Duration>,
    /// After how long the event is given up if it is not done; `None` for never.
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

    /// Sets the aggregate's id, by which events are ordered.
    pub fn aggregate_id(mut self, id: impl Into<String>) -> Self {
        self.aggregate_id = Some(id.into());
        self
    }

    /// Sets the tenant, if it is not the tenant of the event that is being answered.
    pub fn tenant(mut self, id: impl Into<String>) -> Self {
        self.tenant_id = Some(id.into());
        self
    }

    /// Sets the event's id: an event whose id is already in the outbox is not emitted again.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Adds a header.
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((key.into(), value.into()));
        self
    }

    /// Delays the delivery.
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.deliver_after = Some(delay);
        self
    }

    /// Gives the event up if it is not done after this time.
    pub fn expires_after(mut self, delay: Duration) -> Self {
        self.expires_after = Some(delay);
        self
    }

    /// Sets a payload that serde turns into JSON.
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

    /// Sets the payload's bytes and their media type.
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
