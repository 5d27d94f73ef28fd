//! The meaning of the client's errors: for a message, for a topic, or for the whole sink.

use std::error::Error;
use std::iter::successors;

use krafka::KrafkaError;
use krafka::error::ErrorCode as Code;

use super::config::KafkaConfig;
use super::resting::REST;
use crate::error::quoted;
use crate::kind::Kind;
use crate::{SinkError, tls};

/// Why a message was not confirmed, by what else the reason concerns.
pub(super) enum Failure {
    /// Nothing but the message.
    Message(SinkError),
    /// All messages of the topic.
    Topic(SinkError),
    /// The whole sink.
    Sink(SinkError),
}

/// Whether the client gave up without the cluster's reason: the cluster is to be asked.
pub(super) fn is_unexplained(error: &KrafkaError) -> bool {
    matches!(error, KrafkaError::Timeout { .. } | KrafkaError::DeliveryTimeout { .. } | KrafkaError::Network(_))
}

/// Says what errors mean for the cluster of these settings.
pub(super) struct Diagnosis<'c>(pub(super) &'c KafkaConfig);

impl Diagnosis<'_> {
    /// The meaning of an error of the client for a message of this topic.
    pub(super) fn of(&self, topic: &str, error: &KrafkaError) -> Failure {
        match error {
            KrafkaError::Broker { code, .. } => self.of_code(topic, *code),
            KrafkaError::UnknownTopic { .. } => self.missing(topic),
            // The client refuses a record that is larger than any request.
            KrafkaError::Config { message } => self.refused(topic, &quoted(message)),
            // The cluster has lost what this producer wrote before. The client continues under another producer ID.
            KrafkaError::OutOfOrderSequence { .. } => self.not_confirmed(topic, &error.to_string()),
            _ => Failure::Sink(self.down(error)),
        }
    }

    fn of_code(&self, topic: &str, code: Code) -> Failure {
        match code {
            Code::UnknownTopicOrPartition | Code::UnknownTopicId => self.missing(topic),
            Code::TopicAuthorizationFailed => Failure::Topic(SinkError::closed(format!(
                "Kafka at {} does not let this host write to the topic `{topic}`; grant it there",
                self.target()
            ))),
            Code::MessageTooLarge | Code::RecordListTooLarge | Code::InvalidMessageSize => {
                Failure::Message(SinkError::rejected(format!(
                    "the message is larger than Kafka at {} takes for the topic `{topic}`; raise max.message.bytes of the topic there",
                    self.target()
                )))
            }
            Code::InvalidTopic
            | Code::InvalidRecord
            | Code::InvalidTimestamp
            | Code::UnsupportedCompressionType
            | Code::UnsupportedForMessageFormat
            | Code::PolicyViolation => self.refused(topic, &format!("{code:?}")),
            Code::ClusterAuthorizationFailed => Failure::Sink(self.not_idempotent()),
            code if code.is_retriable() => self.not_confirmed(topic, &format!("{code:?}")),
            code => Failure::Sink(SinkError::down(format!("Kafka at {} failed: {code:?}", self.target()))),
        }
    }

    fn refused(&self, topic: &str, why: &str) -> Failure {
        Failure::Message(SinkError::rejected(format!(
            "Kafka at {} refused the message for the topic `{topic}`: {why}",
            self.target()
        )))
    }

    fn missing(&self, topic: &str) -> Failure {
        Failure::Topic(SinkError::closed(format!(
            "Kafka at {} has no topic `{topic}`; create it there, or correct the topic in the configuration",
            self.target()
        )))
    }

    /// The cluster answers, but does not confirm messages of this topic, as while some of its brokers are being maintained. That must
    /// not use up the attempts of its events.
    pub(super) fn not_confirmed(&self, topic: &str, why: &str) -> Failure {
        let reason = format!(
            "Kafka at {} did not confirm the message for the topic `{topic}`: {}; look at the brokers of this topic",
            self.target(),
            quoted(why)
        );
        Failure::Topic(SinkError::unavailable_for(REST, reason))
    }

    /// The cluster did not answer the message, nor the question why. `error` is the client's for the message.
    pub(super) fn unreachable(&self, error: &KrafkaError) -> Failure {
        Failure::Sink(SinkError::down(format!("Kafka at {} does not answer: {}", self.target(), self.reason(error))))
    }

    pub(super) fn silent(&self) -> SinkError {
        SinkError::down(format!("Kafka at {} does not answer", self.target()))
    }

    pub(super) fn cannot_connect(&self, error: &KrafkaError) -> SinkError {
        match error {
            KrafkaError::Broker { code: Code::ClusterAuthorizationFailed, .. } => self.not_idempotent(),
            _ => SinkError::down(format!("Kafka at {} cannot be connected to: {}", self.target(), self.reason(error))),
        }
    }

    /// Clusters before Kafka 2.8 let only some users write so.
    fn not_idempotent(&self) -> SinkError {
        SinkError::down(format!(
            "Kafka at {} does not let this host write idempotently; grant it IdempotentWrite on the cluster",
            self.target()
        ))
    }

    /// The sink does not work.
    fn down(&self, error: &KrafkaError) -> SinkError {
        SinkError::down(format!("Kafka at {}: {}", self.target(), self.reason(error)))
    }

    /// The deepest cause: what is around it repeats it, with the addresses that were tried. And what to do, if that is known.
    fn reason(&self, error: &KrafkaError) -> String {
        let deepest = successors(Some(error as &(dyn Error + 'static)), |error| (*error).source()).last().unwrap_or(error);
        let text = match error {
            // The client's message names the step that failed, and the answer of the cluster.
            KrafkaError::Auth { message, .. } | KrafkaError::DeliveryTimeout { message, .. } => quoted(message),
            // The client's message says what to call in its own interface.
            KrafkaError::Broker { code, .. } => format!("it answers {code:?}"),
            _ => quoted(&deepest.to_string()),
        };
        let client_certificate = match &self.0.cert_file {
            None => "the server asks for a client certificate; name its files in cert_file and key_file".to_owned(),
            Some(file) => format!("the server does not accept the client certificate in cert_file ({})", file.display()),
        };
        match tls::advice(error, self.0.ca_file.as_deref(), &client_certificate) {
            Some(advice) => format!("{text}; {advice}"),
            None => text,
        }
    }

    fn target(&self) -> String {
        self.0.target()
    }
}
