//! `[sinks.NAME]`: what kind of sink, where it is, and how long it may take.

use serde::{Deserialize, Serialize};

use super::StdoutConfig;
use super::common::{CommonConfig, TIMEOUT, any_subject};
use crate::units::too_long;

/// One sink. In a file its kind stands beside its settings: `kind = "nats"`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "one for each sink, read at the start")]
pub enum SinkConfig {
    /// One JSON line for each message, for trying things out.
    Stdout(StdoutConfig),
    /// Webhooks.
    #[cfg(feature = "sink-http")]
    Http(super::HttpConfig),
    /// NATS, JetStream.
    #[cfg(feature = "sink-nats")]
    Nats(super::NatsConfig),
    /// Redis, streams.
    #[cfg(feature = "sink-redis")]
    Redis(super::RedisConfig),
    /// RabbitMQ, with publisher confirms.
    #[cfg(feature = "sink-amqp")]
    Amqp(super::AmqpConfig),
    /// Kafka, with an idempotent producer.
    #[cfg(feature = "sink-kafka")]
    Kafka(super::KafkaConfig),
}

impl SinkConfig {
    /// Its kind, as it is written: `nats`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stdout(_) => "stdout",
            #[cfg(feature = "sink-http")]
            Self::Http(_) => "http",
            #[cfg(feature = "sink-nats")]
            Self::Nats(_) => "nats",
            #[cfg(feature = "sink-redis")]
            Self::Redis(_) => "redis",
            #[cfg(feature = "sink-amqp")]
            Self::Amqp(_) => "amqp",
            #[cfg(feature = "sink-kafka")]
            Self::Kafka(_) => "kafka",
        }
    }

    /// Where it leads to, without credentials.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Stdout(_) => "standard output".to_owned(),
            #[cfg(feature = "sink-http")]
            Self::Http(config) => config.target(),
            #[cfg(feature = "sink-nats")]
            Self::Nats(config) => config.target(),
            #[cfg(feature = "sink-redis")]
            Self::Redis(config) => config.target(),
            #[cfg(feature = "sink-amqp")]
            Self::Amqp(config) => config.target(),
            #[cfg(feature = "sink-kafka")]
            Self::Kafka(config) => config.target(),
        }
    }

    /// What every kind of sink has.
    #[must_use]
    pub fn common(&self) -> CommonConfig {
        let (timeout, subjects) = match self {
            Self::Stdout(_) => (TIMEOUT, any_subject()),
            #[cfg(feature = "sink-http")]
            Self::Http(config) => (config.timeout, config.subjects.clone()),
            #[cfg(feature = "sink-nats")]
            Self::Nats(config) => (config.timeout, config.subjects.clone()),
            #[cfg(feature = "sink-redis")]
            Self::Redis(config) => (config.timeout, config.subjects.clone()),
            #[cfg(feature = "sink-amqp")]
            Self::Amqp(config) => (config.timeout, config.subjects()),
            #[cfg(feature = "sink-kafka")]
            Self::Kafka(config) => (config.timeout, config.subjects.clone()),
        };
        CommonConfig { timeout, subjects }
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
        match self {
            Self::Stdout(config) => faults.extend(config.faults(prefix)),
            #[cfg(feature = "sink-http")]
            Self::Http(config) => faults.extend(config.faults(prefix)),
            #[cfg(feature = "sink-nats")]
            Self::Nats(config) => faults.extend(config.faults(prefix)),
            #[cfg(feature = "sink-redis")]
            Self::Redis(config) => faults.extend(config.faults(prefix)),
            #[cfg(feature = "sink-amqp")]
            Self::Amqp(config) => faults.extend(config.faults(prefix)),
            #[cfg(feature = "sink-kafka")]
            Self::Kafka(config) => faults.extend(config.faults(prefix)),
        }
        faults
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
