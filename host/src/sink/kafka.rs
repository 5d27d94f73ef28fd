//! Kafka: an idempotent producer that waits for all replicas.
//!
//! The broker removes the duplicates that the producer's own repeats make; a second delivery of an event makes a second message,
//! and consumers remove it by the header `event-id`. librdkafka groups messages and repeats them by itself.
//!
//! Topics fail one by one: what is wrong with one of them, such as that it is not there, says nothing about the others.

mod unconfirmed;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::rdkafka::ClientConfig;
use ::rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use ::rdkafka::message::{Header, OwnedHeaders};
use ::rdkafka::producer::future_producer::DeliveryFuture;
use ::rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use async_trait::async_trait;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex as AsyncMutex;
use unconfirmed::{REST, Unconfirmed};

use super::batching::{Batch, Batching, Limits, Link, PLACES};
use super::common::TIMEOUT;
use super::error::quoted;
use super::headers::{carried, own};
use super::kind::Kind;
use super::{CommonConfig, Message, SinkError, Template};
use crate::units::duration;

const LIMITS: Limits = Limits { messages: 256, bytes: 1 << 20, in_flight: PLACES };

/// The most characters of a topic's name.
const MAX_TOPIC: usize = 249;
/// By how much librdkafka gives up earlier than this host, so that the error is its own, and there is time to ask why.
const EARLIER: Duration = Duration::from_secs(1);
/// How long the cluster has to say why a message was not confirmed.
const ASKING: Duration = Duration::from_millis(800);
/// How long a topic that is not there may be on its way from one broker to the others, at most: librdkafka's own default.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);

/// librdkafka has TLS from the OpenSSL of the machine that builds it, which this build does without.
const NO_TLS: &str = "Kafka is spoken without TLS; let a Kafka proxy beside this host speak it to the cluster";

/// A connection to a Kafka cluster, without TLS.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaConfig {
    /// Where the cluster is: `host:9092`, several with commas. Required.
    pub brokers: String,
    /// Always `None`: Kafka is spoken without TLS. A file that is named is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The topic of a message that has no subject. Default `{aggregate_type}`. In what an event says, whatever a topic's name may
    /// not hold becomes `_`.
    pub topic: Template,
    /// Which topics a message may choose for itself, as patterns. Default none: a cluster may make a topic of any name.
    pub subjects: Vec<String>,
    /// How batches are compressed: `none`, `snappy` or `lz4`. Default none.
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
    /// By LZ4.
    Lz4,
    /// By Snappy.
    Snappy,
}

impl Compression {
    fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
        }
    }
}

impl Default for KafkaConfig {
    fn default() -> Self {
        Self {
            brokers: String::new(),
            ca_file: None,
            topic: "{aggregate_type}".parse().expect("a template of ours"),
            subjects: Vec::new(),
            compression: Compression::default(),
            timeout: TIMEOUT,
        }
    }
}

impl Kind for KafkaConfig {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    fn target(&self) -> String {
        quoted(&self.brokers)
    }

    fn common(&self) -> CommonConfig {
        CommonConfig { timeout: self.timeout, subjects: self.subjects.clone() }
    }

    fn faults(&self, prefix: &str) -> Vec<String> {
        let mut faults = Vec::new();
        if self.ca_file.is_some() {
            faults.push(format!("{prefix}.ca_file is set, but {NO_TLS}"));
        }
        if self.brokers.split(',').any(asks_for_tls) {
            faults.push(format!("{prefix}.brokers asks for TLS, but {NO_TLS}"));
        } else if !self.brokers.split(',').all(is_broker) {
            faults.push(format!("{prefix}.brokers is not a list like host:9092,host:9092"));
        }
        if self.timeout < Duration::from_secs(2) {
            faults.push(format!("{prefix}.timeout is {:?}; it must be at least 2s", self.timeout));
        }
        if self.topic.as_str().is_empty() || self.topic.literals().any(|text| !text.chars().all(may_name_a_topic)) {
            faults.push(format!(
                "{prefix}.topic is `{}`; letters, digits, `.`, `_` and `-` are allowed",
                quoted(self.topic.as_str())
            ));
        }
        faults
    }

    fn start(&self, name: &str) -> Result<Batching, String> {
        Ok(Batching::start(name, Kafka::new(name, self)?, self.common(), LIMITS))
    }
}

fn is_broker(text: &str) -> bool {
    let parts = text.trim().rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && !host.contains(['/', '@', ' ']) && port.parse::<u16>().is_ok())
}

/// As other clients write it: `SSL://host:9093`, `SASL_SSL://host:9094`.
fn asks_for_tls(broker: &str) -> bool {
    let scheme = broker.trim().split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| matches!(&*scheme, "ssl" | "sasl_ssl" | "tls" | "kafkas" | "kafka+ssl"))
}

fn may_name_a_topic(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

fn clean(value: &str) -> String {
    value.chars().map(|c| if may_name_a_topic(c) { c } else { '_' }).collect()
}

/// A connection to Kafka.
struct Kafka {
    name: String,
    config: KafkaConfig,
    client: ClientConfig,
    producer: Mutex<FutureProducer>,
    /// Held while the cluster is asked about a topic. What it last said, and when.
    asked: AsyncMutex<Option<Said>>,
    /// Whose messages are refused at once for a while.
    unconfirmed: Mutex<Unconfirmed>,
}

/// What the cluster said of a topic whose messages it did not confirm.
struct Said {
    at: Instant,
    topic: String,
    error: SinkError,
}

impl Kafka {
    /// Makes the producer, which connects by itself.
    fn new(name: &str, config: &KafkaConfig) -> Result<Self, String> {
        let patience = config.timeout.saturating_sub(EARLIER);
        let spread = (patience / 2).min(LONGEST_SPREAD).as_millis().to_string();
        let patience = patience.as_millis().to_string();
        let mut client = ClientConfig::new();
        client
            .set("bootstrap.servers", &config.brokers)
            .set("client.id", format!("outbox-{name}"))
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // After that time the message has failed, and the event is delivered again.
            .set("message.timeout.ms", &patience)
            .set("request.timeout.ms", &patience)
            // A topic that is not there by then is missing: its messages fail, and further ones at once. A topic that is made later
            // is found by itself.
            .set("topic.metadata.propagation.max.ms", &spread)
            .set("linger.ms", "2")
            .set("compression.codec", config.compression.as_str())
            .set("queue.buffering.max.kbytes", "65536")
            .set("reconnect.backoff.max.ms", "5000")
            // Errors come with each message; librdkafka would print them to stderr as well.
            .set("log_level", "0");
        let producer = Mutex::new(client.create().map_err(|error: KafkaError| error.to_string())?);
        Ok(Self {
            name: name.to_owned(),
            config: config.clone(),
            client,
            producer,
            asked: AsyncMutex::default(),
            unconfirmed: Mutex::default(),
        })
    }

    fn topic<'m>(&self, message: &'m Message) -> Result<Cow<'m, str>, SinkError> {
        let topic = self.config.topic.subject_of(message, clean);
        if topic.is_empty() || topic.len() > MAX_TOPIC || !topic.chars().all(may_name_a_topic) || matches!(&*topic, "." | "..")
        {
            return Err(SinkError::rejected(format!("`{}` is not a valid name of a topic", quoted(&topic))));
        }
        Ok(topic)
    }

    /// Refuses a message of a topic that rests.
    fn refuse_resting(&self, topic: &str, now: Instant) -> Result<(), SinkError> {
        let Some(rest) = self.unconfirmed().admit(topic, self.config.timeout, now) else { return Ok(()) };
        let reason = format!("Kafka at {} has not confirmed the topic `{topic}` lately", self.config.target());
        Err(SinkError::unavailable_for(rest, reason))
    }

    fn queue(&self, producer: &FutureProducer, topic: &str, message: &Message) -> Result<DeliveryFuture, SinkError> {
        let mut headers = OwnedHeaders::new();
        for (name, value) in carried(message, |_| false) {
            headers = headers.insert(Header { key: name, value: Some(value) });
        }
        for (name, value) in own(message) {
            headers = headers.insert(Header { key: name, value: Some(&value) });
        }
        headers = headers.insert(Header { key: "id", value: Some(&message.id) });
        headers = headers.insert(Header { key: "content-type", value: Some(&message.content_type) });
        let mut record = FutureRecord::to(topic).payload(&message.body[..]).headers(headers);
        if let Some(key) = message.key() {
            record = record.key(key);
        }
        producer.send_result(record).map_err(|(error, _)| self.meaning(topic, &error))
    }

    /// Waits for what becomes of a message that was queued.
    async fn delivered(
        &self,
        producer: &FutureProducer,
        topic: &str,
        delivery: DeliveryFuture,
        deadline: Instant,
    ) -> Result<(), SinkError> {
        let waiting = async {
            match delivery.await {
                Ok(Ok(_)) => {
                    if self.unconfirmed().forget(topic) {
                        tracing::info!(sink = self.name, topic, "the topic is confirmed again");
                    }
                    Ok(())
                }
                Ok(Err((error, _))) if error.rdkafka_error_code() == Some(Code::MessageTimedOut) => {
                    Err(self.why_not_confirmed(producer, topic).await)
                }
                Ok(Err((error, _))) => Err(self.meaning(topic, &error)),
                Err(_) => Err(self.silent()),
            }
        };
        tokio::time::timeout_at(deadline.into(), waiting).await.unwrap_or_else(|_| Err(self.silent()))
    }

    /// Asks the cluster about a topic whose message it did not confirm. If it answers, the sink works, and only the topic does not.
    async fn why_not_confirmed(&self, producer: &FutureProducer, topic: &str) -> SinkError {
        let wanted_at = Instant::now();
        let mut asked = self.asked.lock().await;
        // Many messages of a topic run out of time together: one question is enough for them.
        if let Some(said) = &*asked
            && said.at >= wanted_at
            && (said.topic == topic || said.error.is_down())
        {
            return said.error.clone();
        }
        let question = (producer.clone(), topic.to_owned());
        let asking = tokio::task::spawn_blocking(move || state_of(&question.0, &question.1));
        let error = match asking.await {
            Ok(Ok(Some(Code::UnknownTopicOrPartition | Code::UnknownTopic))) => self.missing(topic),
            Ok(Ok(Some(code))) => self.not_confirmed(topic, &code.to_string()),
            Ok(Ok(None)) => self.not_confirmed(topic, "perhaps too few of its replicas are in step"),
            Ok(Err(error)) => SinkError::down(format!("Kafka at {}: {}", self.config.target(), quoted(&crate::chain(&error)))),
            Err(_) => self.silent(),
        };
        *asked = Some(Said { at: Instant::now(), topic: topic.to_owned(), error: error.clone() });
        error
    }

    /// What an error means for a message of this topic.
    fn meaning(&self, topic: &str, error: &KafkaError) -> SinkError {
        let said = quoted(&crate::chain(error));
        match error.rdkafka_error_code() {
            Some(Code::UnknownTopic | Code::UnknownTopicOrPartition) => self.missing(topic),
            Some(Code::TopicAuthorizationFailed) => SinkError::rejected(format!(
                "Kafka at {} does not let this host write to the topic `{topic}`; grant it there",
                self.config.target()
            )),
            Some(
                Code::MessageSizeTooLarge
                | Code::InvalidMessage
                | Code::InvalidMessageSize
                | Code::InvalidTopic
                | Code::InvalidRecord
                | Code::InvalidTimestamp
                | Code::UnsupportedForMessageFormat
                | Code::PolicyViolation,
            ) => SinkError::rejected(format!(
                "Kafka at {} refused the message for the topic `{topic}`: {said}",
                self.config.target()
            )),
            Some(Code::QueueFull) => SinkError::crowded(format!("Kafka at {}: {said}", self.config.target())),
            Some(
                Code::UnknownPartition
                | Code::LeaderNotAvailable
                | Code::NotLeaderForPartition
                | Code::NotEnoughReplicas
                | Code::NotEnoughReplicasAfterAppend
                | Code::KafkaStorageError,
            ) => self.not_confirmed(topic, &said),
            _ => SinkError::down(format!("Kafka at {}: {said}", self.config.target())),
        }
    }

    fn missing(&self, topic: &str) -> SinkError {
        // Each of its messages is to be told so.
        self.unconfirmed().forget(topic);
        SinkError::rejected(format!(
            "Kafka at {} has no topic `{topic}`; create it there, or correct the topic in the configuration",
            self.config.target()
        ))
    }

    /// The cluster answers, but does not confirm messages of this topic, as while some of its brokers are being maintained: that must
    /// not use up the attempts of its events. No event keeps the reason, so it is told here.
    fn not_confirmed(&self, topic: &str, why: &str) -> SinkError {
        let reason = format!(
            "Kafka at {} did not confirm the message for the topic `{topic}`: {why}; look at the brokers of this topic",
            self.config.target()
        );
        if self.unconfirmed().note(topic, Instant::now()) {
            tracing::warn!(sink = self.name, topic, reason, "a topic is not confirmed; its events wait and lose no attempt");
        }
        SinkError::unavailable_for(REST, reason)
    }

    fn unconfirmed(&self) -> MutexGuard<'_, Unconfirmed> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silent(&self) -> SinkError {
        SinkError::down(format!("Kafka at {} does not answer", self.config.target()))
    }

    /// After a fatal error an idempotent producer sends nothing any more: it is replaced by a new one.
    fn renew_after_a_fatal_error(&self, producer: &FutureProducer) {
        if producer.client().fatal_error().is_some()
            && let Ok(another) = self.client.create()
        {
            *self.producer.lock().unwrap_or_else(PoisonError::into_inner) = another;
        }
    }
}

/// What is wrong with a topic, or with one of its partitions; `None` for nothing that the cluster knows of. Blocks.
fn state_of(producer: &FutureProducer, topic: &str) -> Result<Option<Code>, KafkaError> {
    let metadata = producer.client().fetch_metadata(Some(topic), ASKING)?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else { return Ok(None) };
    let of_partition = || found.partitions().iter().find_map(|partition| partition.error());
    Ok(found.error().or_else(of_partition).map(Code::from))
}

#[async_trait]
impl Link for Kafka {
    async fn send(&self, batch: &Batch<'_>, deadline: Instant) {
        let producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let queue = |message| {
            let topic = self.topic(message)?;
            self.refuse_resting(&topic, Instant::now())?;
            self.queue(&producer, &topic, message).map(|delivery| (topic, delivery))
        };
        // All of them before the first is waited for: librdkafka groups what is there.
        let queued: Vec<_> = batch.messages().iter().map(queue).collect();
        let delivering = queued.into_iter().enumerate().map(async |(index, queued)| {
            let answer = match queued {
                Ok((topic, delivery)) => self.delivered(&producer, &topic, delivery, deadline).await,
                Err(error) => Err(error),
            };
            let is_down = answer.as_ref().is_err_and(SinkError::is_down);
            batch.answer(index, answer);
            is_down
        });
        if join_all(delivering).await.contains(&true) {
            self.renew_after_a_fatal_error(&producer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_topic_that_rests_is_refused_for_that_long_and_the_sink_is_not_down() {
        let config = serde_json::from_str(r#"{"brokers": "localhost:9092"}"#).expect("readable");
        let (kafka, now) = (Kafka::new("log", &config).expect("valid"), Instant::now());
        kafka.unconfirmed().note("orders", now);

        let refused = kafka.refuse_resting("orders", now).expect_err("it rests");

        assert!(!refused.is_down() && refused.to_string().contains("has not confirmed the topic `orders` lately"), "{refused}");
        assert!(matches!(refused, SinkError::Unavailable { retry_after: Some(unconfirmed::REST), .. }), "{refused:?}");
        assert!(
            kafka.refuse_resting("payments", now).is_ok() && kafka.refuse_resting("orders", now + unconfirmed::REST).is_ok()
        );
    }

    #[test]
    fn faults_name_the_setting() {
        let faults = |text: &str| serde_json::from_str::<KafkaConfig>(text).expect("readable").faults("sinks.log").join("\n");
        assert!(faults("{}").contains("sinks.log.brokers is not a list"));
        assert!(faults(r#"{"brokers": "a:9092,b"}"#).contains("sinks.log.brokers"));
        assert!(faults(r#"{"brokers": "kafka://a:9092"}"#).contains("sinks.log.brokers"));
        assert!(faults(r#"{"brokers": "a:9092", "topic": "a b"}"#).contains("sinks.log.topic"));
        for asking in [r#"{"brokers": "SASL_SSL://a:9094"}"#, r#"{"brokers": "a:9093", "ca_file": "ca.pem"}"#] {
            assert!(faults(asking).contains("Kafka is spoken without TLS; let a Kafka proxy"), "{}", faults(asking));
        }
        assert_eq!(faults(r#"{"brokers": "a:9092, b:9092", "topic": "shop.{aggregate_type}"}"#), "");
    }
}
