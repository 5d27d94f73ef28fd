//! `[sinks.NAME]`: what kind of sink, where it is, and how long it may take.

use std::sync::Arc;

use outbox_event::units::too_long;
use serde::{Deserialize, Serialize};

use super::batching::{Batching, Link};
use super::kind::Kind;
use super::rests::Rests;
use super::{CommonConfig, StdoutConfig};

/// One sink. In a file its kind stands beside its settings: `kind = "nats"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "one for each sink, read at the start")]
pub enum SinkConfig {
    /// One JSON line for each message, for trying things out.
    Stdout(StdoutConfig),
    /// Webhooks.
    #[cfg(feature = "http")]
    Http(super::HttpConfig),
    /// NATS, JetStream.
    #[cfg(feature = "nats")]
    Nats(super::NatsConfig),
    /// Redis, streams.
    #[cfg(feature = "redis")]
    Redis(super::RedisConfig),
    /// RabbitMQ, with publisher confirms.
    #[cfg(feature = "amqp")]
    Amqp(super::AmqpConfig),
    /// Kafka, with an idempotent producer.
    #[cfg(feature = "kafka")]
    Kafka(super::KafkaConfig),
}

impl SinkConfig {
    /// The settings of whichever kind it is.
    fn settings(&self) -> &dyn Kind {
        match self {
            Self::Stdout(config) => config,
            #[cfg(feature = "http")]
            Self::Http(config) => config,
            #[cfg(feature = "nats")]
            Self::Nats(config) => config,
            #[cfg(feature = "redis")]
            Self::Redis(config) => config,
            #[cfg(feature = "amqp")]
            Self::Amqp(config) => config,
            #[cfg(feature = "kafka")]
            Self::Kafka(config) => config,
        }
    }

    /// Its kind, as it is written: `nats`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.settings().kind()
    }

    /// Where its messages go, without credentials.
    #[must_use]
    pub fn target(&self) -> String {
        self.settings().target()
    }

    /// The settings that every kind of sink has.
    #[must_use]
    pub fn common(&self) -> CommonConfig {
        self.settings().common()
    }

    /// Everything that is wrong with these values, one text each; names begin with `prefix`, such as `sinks.orders`. Nothing is
    /// connected to; files that are named are looked at.
    #[must_use]
    pub fn faults(&self, prefix: &str) -> Vec<String> {
        let CommonConfig { timeout, .. } = self.common();
        let mut faults = Vec::new();
        if timeout.is_zero() {
            faults.push(format!("{prefix}.timeout is 0; it must be above zero"));
        }
        faults.extend(too_long(format_args!("{prefix}.timeout"), timeout));
        faults.extend(self.settings().faults(prefix));
        faults
    }

    /// Starts the sink `name`. For a configuration without faults, within a tokio runtime.
    pub(super) fn start(&self, name: &str) -> Result<Batching, String> {
        let settings = self.settings();
        let link = settings.link(name, Rests::default())?;
        Ok(Batching::start(name, link, settings.target(), settings.common(), settings.limits()))
    }

    /// A new connection for the sink `name`, whose receivers rest as they did. As [`start`](Self::start).
    pub(super) fn link(&self, name: &str, rests: Rests) -> Result<Arc<dyn Link>, String> {
        self.settings().link(name, rests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_of_an_unknown_kind_and_an_unknown_setting_are_told_by_name() {
        let error = |text: &str| serde_json::from_str::<SinkConfig>(text).expect_err("no sink").to_string();
        assert!(error(r#"{"kind": "pigeon"}"#).contains("unknown variant `pigeon`"), "{}", error(r#"{"kind": "pigeon"}"#));
        assert!(error(r#"{"kind": "stdout", "colour": 1}"#).contains("unknown field `colour`"));
    }
}
