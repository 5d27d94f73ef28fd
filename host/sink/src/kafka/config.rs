//! `kind = "kafka"`.

use std::path::PathBuf;
use std::time::Duration;

use outbox_event::units::duration;
use serde::{Deserialize, Serialize};

use crate::common::TIMEOUT;
use crate::{Secret, Template};

/// A connection to a Kafka cluster.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaConfig {
    /// Where the cluster is: `host:9092`, several with commas. One `tls://host:9093` requires TLS of all brokers. Required.
    pub brokers: String,
    /// How the host authenticates. `None` for `SCRAM-SHA-512` if there is a user, and for no authentication otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// The user; for a token endpoint, the client's ID. `None` if not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's password; for a token endpoint, the client's secret. `None` if not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// A file with the token for `OAUTHBEARER`, read again before the token expires. `None` if not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// The `https://` address that issues tokens for `OAUTHBEARER` to the user. `None` if not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// The scope of the tokens that the token endpoint issues. `None` for the endpoint's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_scope: Option<String>,
    /// Certificates in PEM to trust instead of the system's; `None` for the system's. Read again every minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The client certificate in PEM, with its chain; `None` if not used. Read again every minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The client certificate's key in PEM, not encrypted; `None` if not used. Read again every minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The topic of a message that has no subject. Default `{aggregate_type}`. In values of an event, characters that a topic name
    /// cannot contain become `_`.
    pub topic: Template,
    /// Which topics a message may choose for itself, as patterns. Default none: a cluster may make a topic of any name.
    pub subjects: Vec<String>,
    /// How batches are compressed: `none`, `gzip`, `snappy` or `lz4`. Default none.
    pub compression: Compression,
    /// The time within which all replicas must have the message. Default 10 s; at least 2 s.
    #[serde(with = "duration")]
    pub timeout: Duration,
}

/// How batches are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By gzip.
    Gzip,
    /// By LZ4.
    Lz4,
    /// By Snappy.
    Snappy,
}

/// How the host authenticates to the cluster: SASL mechanisms, by Kafka's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Mechanism {
    /// User and password, as they are: anyone on the way can read them without TLS.
    #[serde(rename = "PLAIN")]
    Plain,
    /// User and password, which do not leave the host, with SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// User and password, which do not leave the host, with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
    /// A token, from a file or from a token endpoint.
    #[serde(rename = "OAUTHBEARER")]
    OAuthBearer,
}

impl Compression {
    /// The same for the client.
    pub(super) fn codec(self) -> krafka::Compression {
        match self {
            Self::None => krafka::Compression::None,
            Self::Gzip => krafka::Compression::Gzip,
            Self::Lz4 => krafka::Compression::Lz4,
            Self::Snappy => krafka::Compression::Snappy,
        }
    }
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            brokers: String::new(),
            mechanism: None,
            user: None,
            password: None,
            token_file: None,
            token_url: None,
            token_scope: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            topic: "{aggregate_type}".parse().expect("a template of ours"),
            subjects: Vec::new(),
            compression: Compression::default(),
            timeout: TIMEOUT,
        }
    }
}

impl KafkaConfig {
    /// The brokers, without a scheme.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        self.brokers.split(',').map(|broker| tls_host(broker).unwrap_or(broker.trim()))
    }

    /// Whether any broker asks for TLS: then all brokers are met with it, also those that the cluster names.
    pub(super) fn is_tls(&self) -> bool {
        self.brokers.split(',').any(|broker| tls_host(broker).is_some())
    }
}

/// The host and port of a broker that asks for TLS. A scheme may be written in capitals.
fn tls_host(broker: &str) -> Option<&str> {
    let (scheme, host) = broker.trim().split_once("://")?;
    scheme.eq_ignore_ascii_case("tls").then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_broker_that_asks_for_tls_asks_for_all() {
        let config = |brokers: &str| KafkaConfig { brokers: brokers.to_owned(), ..KafkaConfig::default() };
        assert!(config("a:9093, TLS://b:9093").is_tls() && !config("a:9092,tls:9092").is_tls());
        assert_eq!(config("a:9093, TLS://b:9093").hosts().collect::<Vec<_>>(), ["a:9093", "b:9093"]);
    }
}
