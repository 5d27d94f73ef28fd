//! Messages to the brokers and endpoints that the operator named. Needs the sink's name in `publish.sinks` of the plugin's
//! manifest.
//!
//! A message is sent once the sink has confirmed it, whatever the listener answers afterwards. It carries the event's id.
//!
//! ```
//! use outbox_sdk::prelude::*;
//!
//! fn on_order_placed(event: &Event) -> Answer {
//!     Message::new("orders.placed").bytes("application/json", event.payload.clone()).send("orders")?;
//!     Ok(Done)
//! }
//!
//! on_order_placed(&Event::for_test("Order", "OrderPlaced"))?;
//! assert_eq!(outbox_sdk::testing::published()[0].1.subject, "orders.placed");
//! # Ok::<(), Failure>(())
//! ```

use serde::Serialize;

use crate::{Event, Failure, Refusal};

/// A message to publish.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a message is sent by send()"]
#[non_exhaustive]
pub struct Message {
    /// Subject, topic, stream, routing key or path, as the sink understands it; empty for the sink's own default.
    pub subject: String,
    /// What keeps messages in order where the sink has partitions; `None` for the aggregate id of the event.
    pub key: Option<String>,
    /// The media type of the body.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
    /// The headers.
    pub headers: Vec<(String, String)>,
    /// The id of the event that the message belongs to; `None` for the event of the call. See [`Message::for_event`].
    pub event_id: Option<String>,
}

impl Message {
    /// An empty message with this subject.
    pub fn new(subject: impl Into<String>) -> Self {
        let content_type = "application/octet-stream".to_owned();
        Self { subject: subject.into(), key: None, content_type, body: Vec::new(), headers: Vec::new(), event_id: None }
    }

    /// Says which event of the call the message belongs to. A function that takes many events must say so, since the message's
    /// id is made from the event's id, and receivers recognise repeats by it.
    pub fn for_event(mut self, event: &Event) -> Self {
        self.event_id = Some(event.id.clone());
        self
    }

    /// Sets the key that keeps messages in order where the sink has partitions.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header.
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((key.into(), value.into()));
        self
    }

    /// Sets a body that serde turns into JSON.
    ///
    /// # Errors
    /// An unrecoverable failure when the value cannot be JSON.
    pub fn json(mut self, body: &impl Serialize) -> Result<Self, Failure> {
        let wrong = |error| Failure::unrecoverable(format_args!("the message {} cannot be JSON: {error}", self.subject));
        self.body = serde_json::to_vec(body).map_err(wrong)?;
        self.content_type = "application/json".to_owned();
        Ok(self)
    }

    /// Sets the body's bytes and their media type.
    pub fn bytes(mut self, content_type: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        (self.content_type, self.body) = (content_type.into(), body.into());
        self
    }

    /// Sends the message, and waits until the sink has confirmed it.
    ///
    /// # Errors
    /// What the host refuses, and a sink that is down.
    pub fn send(self, sink: &str) -> Result<(), Refusal> {
        host::send(sink, self)
    }
}

/// Sends messages together; one answer for each, in order.
pub fn send_all(sink: &str, messages: Vec<Message>) -> Vec<Result<(), Refusal>> {
    host::send_all(sink, messages)
}

#[cfg(target_family = "wasm")]
mod host {
    use super::Message;
    use crate::Refusal;
    use crate::bindings::outbox::listener::publish;

    fn given(message: Message) -> publish::Message {
        let Message { subject, key, content_type, body, headers, event_id } = message;
        let attributes = crate::event::attributes_for(event_id);
        publish::Message { subject, key, content_type, body, headers, attributes }
    }

    pub(super) fn send(sink: &str, message: Message) -> Result<(), Refusal> {
        publish::send(sink, &given(message)).map_err(Refusal::from)
    }

    pub(super) fn send_all(sink: &str, messages: Vec<Message>) -> Vec<Result<(), Refusal>> {
        let messages: Vec<_> = messages.into_iter().map(given).collect();
        publish::send_all(sink, &messages).into_iter().map(|sent| sent.map_err(Refusal::from)).collect()
    }
}

#[cfg(not(target_family = "wasm"))]
mod host {
    use super::Message;
    use crate::Refusal;
    use crate::testing::with_host;

    #[expect(clippy::unnecessary_wraps, reason = "as the host's own")]
    pub(super) fn send(sink: &str, message: Message) -> Result<(), Refusal> {
        with_host(|host| host.published.push((sink.to_owned(), message)));
        Ok(())
    }

    pub(super) fn send_all(sink: &str, messages: Vec<Message>) -> Vec<Result<(), Refusal>> {
        messages.into_iter().map(|message| send(sink, message)).collect()
    }
}
