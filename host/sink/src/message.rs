//! One outgoing message.

use std::sync::Arc;

use bytes::Bytes;
use outbox_event::{Event, EventId};

/// One outgoing message.
#[derive(Clone, Debug)]
pub struct Message {
    /// The message's id, the same on every delivery of its event: the event's id for a relay, `ID.N` for the Nth message of a
    /// plugin's call. Brokers remove duplicates by it. 1 to 200 bytes.
    pub id: String,
    /// The event that the message carries, or that caused it. Sent with every message as `event-id`.
    pub event_id: EventId,
    /// The subject, stream, topic, routing key or path; empty for the sink's own.
    pub subject: String,
    /// Whether the operator chose the subject, as a relay's route does. One that a plugin chose must be among the sink's
    /// `subjects`, and cannot reach what a broker keeps for itself.
    pub trusts_subject: bool,
    /// What keeps messages in order where the sink has partitions; `None` for the aggregate's id.
    pub key: Option<String>,
    /// The media type of the body; empty for none.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
    /// The headers. Names that the sink sets itself, and names that control a broker or server, are left out.
    pub headers: Vec<(String, String)>,
    /// The event, for templates and CloudEvents; `None` where there is none, such as in a test.
    pub event: Option<Arc<Event>>,
}

impl Message {
    /// A message that carries an event as it is, with its headers, for the sink's own subject.
    #[must_use]
    pub fn of_event(event: &Arc<Event>) -> Self {
        Self {
            id: event.id().to_string(),
            event_id: event.id(),
            subject: String::new(),
            trusts_subject: false,
            key: None,
            content_type: event.content_type().to_owned(),
            body: event.payload_bytes().clone(),
            headers: event.headers_onward().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            event: Some(event.clone()),
        }
    }

    /// Its own key, or that of its event's aggregate.
    #[cfg_attr(
        not(any(feature = "kafka", feature = "redis", feature = "amqp")),
        allow(dead_code, reason = "only some kinds of sinks need it")
    )]
    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref().or_else(|| self.event.as_ref()?.aggregate_id())
    }

    /// Roughly how much memory it takes, in bytes.
    pub(super) fn size_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        size_of::<Self>() + self.id.len() + self.subject.len() + self.body.len() + headers
    }
}
