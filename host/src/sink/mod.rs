//! Sinks: named connections of the operator to brokers and endpoints, for messages on their way out.
//!
//! Two users: a relay, which sends the events of a route to a sink without any plugin, and the capability `publish` of plugins.
//! A [`Sink`] answers each message once, and `Ok` means that the other side confirmed it. What all sinks share is here: a queue
//! of bounded length whose messages are grouped without waiting for more (`batching::Batching`), and a `breaker` that
//! keeps everybody away from a sink that is down. A kind of sink is one file or folder, a `batching::Link` each.
//!
//! This room knows events and time; it knows neither tables nor listeners nor plugins.

#[cfg(feature = "sink-amqp")]
mod amqp;
mod batching;
mod breaker;
mod cloud_event;
mod common;
mod config;
mod error;
#[cfg(any(feature = "sink-kafka", feature = "sink-tls"))]
mod headers;
#[cfg(feature = "sink-http")]
mod http;
#[cfg(feature = "sink-kafka")]
mod kafka;
mod message;
#[cfg(feature = "sink-nats")]
mod nats;
#[cfg(feature = "sink-redis")]
mod redis;
mod secret;
mod set;
mod stdout;
#[cfg(feature = "sink-tls")]
mod target;
mod template;
#[cfg(any(feature = "sink-tls", feature = "otel"))]
#[cfg_attr(not(feature = "sink-tls"), allow(dead_code, reason = "telemetry needs the client alone"))]
pub(crate) mod tls;

use async_trait::async_trait;

#[cfg(feature = "sink-amqp")]
pub use amqp::AmqpConfig;
pub use common::CommonConfig;
pub use config::SinkConfig;
pub use error::SinkError;
#[cfg(feature = "sink-http")]
pub use http::{Format, HttpConfig};
#[cfg(feature = "sink-kafka")]
pub use kafka::{Compression, KafkaConfig};
pub use message::Message;
#[cfg(feature = "sink-nats")]
pub use nats::NatsConfig;
#[cfg(feature = "sink-redis")]
pub use redis::RedisConfig;
pub use secret::Secret;
pub use set::{Sinks, SinksError};
pub use stdout::StdoutConfig;
pub use template::{Template, TemplateError};

/// Where messages go. One that is dropped ends what it has running.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// use outbox::sink::{Message, Sink, SinkError, Sinks};
///
/// /// Keeps every message, for a test.
/// #[derive(Default)]
/// struct Kept(Mutex<Vec<Message>>);
///
/// #[async_trait::async_trait]
/// impl Sink for Kept {
///     async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
///         let Ok(mut kept) = self.0.lock() else {
///             let broken = || SinkError::Down { reason: "its lock is broken".to_owned(), retry_after: Duration::from_secs(1) };
///             return messages.iter().map(|_| Err(broken())).collect();
///         };
///         kept.extend_from_slice(messages);
///         messages.iter().map(|_| Ok(())).collect()
///     }
/// }
///
/// let sinks = Sinks::default().with("kept", Arc::new(Kept::default()));
/// assert!(sinks.get("kept").is_some());
/// ```
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Sends messages. One answer for each, in their order; `Ok` means that the other side confirmed the message. It answers
    /// within twice the sink's own timeout: a message may wait that long for its turn, and then for its confirmation. Messages
    /// may overtake each other: whoever needs an order waits for each answer. A caller that goes away takes back what was not
    /// sent yet; what was sent may arrive.
    ///
    /// # Errors
    /// Each message has its own; see [`SinkError`]. Sending one again is safe where the other side removes duplicates by
    /// [`Message::id`], and elsewhere makes a second one with the same id.
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>>;
}
