//! A part of [`outbox`](https://docs.rs/outbox): the connections to brokers and endpoints that the operator has configured, each under a
//! name. Use it through `outbox`; alone it promises nothing.
//!
//! Two users: a relay, which sends the events of a route to a sink without any plugin, and the capability `publish` of plugins.
//! A [`Sink`] answers each message once, and `Ok` means that the broker or endpoint confirmed it. All sinks share a queue of
//! bounded length, which groups the messages that are waiting (`batching::Batching`), and a `breaker`, which sends nothing
//! while a sink is down. An endpoint has a `receiver` for each path, which rests by itself. A `monitor` reads the breakers,
//! and the answers of `observed` sinks of the application, and reports which sinks are down. Each kind of sink is one file or
//! folder: its settings (`kind::Kind`), and its connection (`batching::Link`).
//!
//! This package knows events and time; it knows neither tables nor listeners nor plugins. Its log lines have targets below
//! `outbox::sink`, the path that users of `outbox` know.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "amqp")]
mod amqp;
mod batching;
#[doc(hidden)] // for the host
pub mod bounded;
mod breaker;
mod cloud_event;
mod common;
mod config;
#[cfg(any(feature = "amqp", feature = "kafka", feature = "nats", feature = "redis"))]
mod connection;
mod error;
#[cfg(any(feature = "amqp", feature = "http", feature = "kafka", feature = "nats", feature = "redis"))]
mod headers;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod kind;
mod message;
mod monitor;
#[cfg(feature = "nats")]
mod nats;
mod observed;
mod outage;
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "other kinds of sinks have one receiver"))]
mod receiver;
#[cfg(feature = "redis")]
mod redis;
mod rests;
mod secret;
mod set;
mod stdout;
#[cfg(any(feature = "amqp", feature = "redis"))]
mod stream;
#[cfg(any(feature = "amqp", feature = "http", feature = "kafka", feature = "nats", feature = "redis"))]
mod target;
mod template;
#[cfg(feature = "tls")]
#[cfg_attr(
    not(any(feature = "amqp", feature = "http", feature = "kafka", feature = "nats", feature = "redis")),
    allow(dead_code, reason = "telemetry needs the client alone")
)]
#[doc(hidden)] // for the host
pub mod tls;

use async_trait::async_trait;

#[cfg(feature = "amqp")]
pub use amqp::AmqpConfig;
pub use common::CommonConfig;
pub use config::SinkConfig;
pub use error::SinkError;
#[cfg(feature = "http")]
pub use http::{Format, HttpConfig};
#[cfg(feature = "kafka")]
pub use kafka::{Compression, KafkaConfig, Mechanism};
pub use message::Message;
pub use monitor::SinkMonitor;
#[cfg(feature = "nats")]
pub use nats::NatsConfig;
#[cfg(feature = "redis")]
pub use redis::RedisConfig;
pub use secret::Secret;
pub use set::{Sinks, SinksError};
pub use stdout::StdoutConfig;
pub use template::{Template, TemplateError};

/// Where messages go. Dropping a sink ends its tasks and connections.
///
/// ```
/// # mod outbox { pub use outbox_sink as sink; }
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
///             let broken = || SinkError::Down {
///                 reason: "its lock is broken".to_owned(),
///                 retry_after: Duration::from_secs(1),
///                 tried_ago: Duration::ZERO,
///             };
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
    /// Sends messages. Returns one answer for each, in their order; `Ok` means that the broker or endpoint confirmed the message.
    /// Answers come within twice the sink's timeout: a message may wait that long to be sent, and as long for its confirmation.
    /// Messages may overtake each other: a caller that needs an order waits for each answer. If the caller drops the future,
    /// messages that were not sent yet are not sent; those that were sent may arrive.
    ///
    /// # Errors
    /// One per message; see [`SinkError`]. Sending a message again is safe where the receiver removes duplicates by
    /// [`Message::id`]; elsewhere it makes a second message with the same id.
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>>;

    /// The hash of the message's destination behind this sink: a topic, a stream, a subject, or the sink's only receiver. `None` if a
    /// destination that is unavailable says nothing about this host, such as one endpoint among many.
    #[doc(hidden)] // for the host
    fn destination(&self, _message: &Message) -> Option<u64> {
        None
    }
}
