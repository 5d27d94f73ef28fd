//! Sinks: the connections to brokers and endpoints that the operator has configured, each under a name.
//!
//! Two users: a relay, which sends the events of a route to a sink without any plugin, and the capability `publish` of plugins.
//! A [`Sink`] answers each message once, and `Ok` means that the broker or endpoint confirmed it. The types are declared in the
//! package `outbox-sink`, which has one feature for each kind of sink.

#[cfg(feature = "sink-amqp")]
#[doc(inline)]
pub use outbox_sink::AmqpConfig;
#[cfg(feature = "sink-nats")]
#[doc(inline)]
pub use outbox_sink::NatsConfig;
#[cfg(feature = "sink-redis")]
#[doc(inline)]
pub use outbox_sink::RedisConfig;
#[cfg(feature = "otel")]
pub(crate) use outbox_sink::tls;
#[doc(inline)]
pub use outbox_sink::{
    CommonConfig, Message, Secret, Sink, SinkConfig, SinkError, SinkMonitor, Sinks, SinksError, StdoutConfig, Template,
    TemplateError,
};
#[cfg(feature = "sink-kafka")]
#[doc(inline)]
pub use outbox_sink::{Compression, KafkaConfig, Mechanism};
#[cfg(feature = "sink-http")]
#[doc(inline)]
pub use outbox_sink::{Format, HttpConfig};
