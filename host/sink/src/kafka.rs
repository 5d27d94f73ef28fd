//! Kafka: an idempotent producer that waits for all replicas.
//!
//! The broker removes the duplicates that the producer's own retries make. A second delivery of an event makes a second record;
//! consumers remove it by the header `event-id`. The client groups records and retries them by itself, in their order.
//!
//! Topics fail one by one: a topic that is missing says nothing about the others.

mod config;
mod failure;
mod kind;
mod resting;
mod security;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::join_all;
use krafka::admin::DescribeTopicsOptions;
use krafka::producer::Producer;
use krafka::{KrafkaError, Record};
use tokio::sync::OnceCell;

pub use config::{Compression, KafkaConfig, Mechanism};

use super::batching::{Batch, Limits, Link, PLACES};
use super::breaker::OpenBreakers;
use super::connection::Connection;
use super::error::quoted;
use super::headers::{carried, own};
use super::rests::Rests;
use super::{Message, SinkError};
use failure::{Diagnosis, Failure};
use resting::{ClusterTopics, RestingTopics};

const LIMITS: Limits = Limits { messages: 256, bytes: 1 << 20, in_flight: PLACES };

/// The most characters of a topic's name.
const MAX_TOPIC: usize = 249;
/// How long a record waits for others of its partition. Below it, each request carries few records.
const LINGER: Duration = Duration::from_millis(2);
/// Bytes of one record batch: below what a topic takes by default, 1 MiB, and enough to fill a connection of some milliseconds.
const BATCH_BYTES: usize = 256 << 10;
/// The [`PLACES`] limit what the client holds; so this is only the largest value that it takes.
const BUFFER_BYTES: usize = u32::MAX as usize;
/// By how much the client gives up before the batch does, so that there is time to ask the cluster why.
const EARLIER: Duration = Duration::from_secs(1);
/// How long the cluster has to say why a message was not confirmed.
const ASKING: Duration = Duration::from_millis(800);
/// How long one request may take before its connection is given up: Kafka's own default.
const LONGEST_REQUEST: Duration = Duration::from_secs(30);
/// How long a new topic may take at most to spread to all brokers.
const LONGEST_SPREAD: Duration = Duration::from_secs(30);
const LONGEST_CONNECT: Duration = Duration::from_secs(5);
/// How often the files of TLS are read again: certificates are renewed days before they expire.
const RELOADED_EVERY: Duration = Duration::from_secs(60);

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
    connection: Connection<Arc<Open>>,
    resting: Arc<ClusterTopics>,
}

/// A producer, and the cluster that it sends to.
struct Open {
    cluster: krafka::Kafka,
    producer: Producer,
    /// Whether the producer can send nothing more.
    is_over: AtomicBool,
}

/// The cluster's answers about topics whose messages one batch could not send. One question for each topic.
type Asked = Mutex<HashMap<String, Arc<OnceCell<SinkError>>>>;

impl Kafka {
    fn new(name: &str, config: KafkaConfig, resting: Arc<ClusterTopics>) -> Result<Self, String> {
        security::of(&config).map_err(|error| error.to_string())?;
        Ok(Self { name: name.to_owned(), config, connection: Connection::default(), resting })
    }

    /// Makes a producer, which keeps its connections by itself from then on: it is replaced only if it can send nothing more. Another
    /// producer would not keep its records behind those of the first that are still on their way.
    async fn connect(&self) -> Result<Arc<Open>, SinkError> {
        self.open().await.map(Arc::new).map_err(|error| self.diagnosis().cannot_connect(&error))
    }

    async fn open(&self) -> Result<Open, KrafkaError> {
        let patience = self.config.timeout.saturating_sub(EARLIER);
        let request = patience.saturating_sub(LINGER).min(LONGEST_REQUEST);
        let hosts: Vec<&str> = self.config.hosts().collect();
        let cluster = krafka::Kafka::builder(hosts.join(","))
            .client_id(format!("outbox-{}", self.name))
            .security(security::of(&self.config)?)
            .request_timeout(request)
            .connect_timeout(request.min(LONGEST_CONNECT))
            .tls_reload_interval(Some(RELOADED_EVERY))
            .connect()
            .await?;
        let producer = cluster
            .producer()
            .compression(self.config.compression.codec())
            .linger(LINGER)
            .batch_size(BATCH_BYTES)
            .buffer_memory(BUFFER_BYTES)
            // After that time the message has failed, and the event is delivered again.
            .delivery_timeout(patience)
            // A topic that is not there by then is missing.
            .max_block((patience / 2).min(LONGEST_SPREAD))
            // The cluster learns no more of a host than its records say.
            .metrics_push(false)
            .build()
            .await?;
        Ok(Open { cluster, producer, is_over: AtomicBool::new(false) })
    }

    fn topic<'m>(&self, message: &'m Message) -> Result<Cow<'m, str>, SinkError> {
        let topic = self.config.topic.subject_of(message, clean);
        if topic.is_empty() || topic.len() > MAX_TOPIC || !topic.chars().all(may_name_a_topic) || matches!(&*topic, "." | "..")
        {
            return Err(SinkError::rejected(format!("`{}` is not a valid name of a topic", quoted(&topic))));
        }
        Ok(topic)
    }

    /// Sends one message, and waits until all replicas have it.
    async fn deliver(&self, open: &Open, asked: &Asked, message: &Message, deadline: Instant) -> Result<(), SinkError> {
        let topic = self.topic(message)?;
        self.resting().admit(&topic, self.config.timeout, Instant::now())?;
        let sending = async {
            match open.producer.send(record(&topic, message)).await {
                Ok(_) => Ok(()),
                Err(error) => Err(self.why(open, asked, &topic, &error).await),
            }
        };
        let sent = tokio::time::timeout_at(deadline.into(), sending).await;
        let sent = sent.unwrap_or_else(|_| Err(self.diagnosis().silent()));
        if sent.is_ok() && self.resting().wake(&topic) {
            tracing::info!(target: "outbox::sink::kafka", sink = self.name, topic = &*topic, "the topic is confirmed again");
        }
        sent
    }

    /// Why a message was not confirmed. Asks the cluster if the client does not know: if the cluster answers, the sink works.
    async fn why(&self, open: &Open, asked: &Asked, topic: &str, error: &KrafkaError) -> SinkError {
        if error.is_fatal() && !matches!(error, KrafkaError::Auth { .. }) {
            open.is_over.store(true, Ordering::Relaxed);
        }
        if !failure::is_unexplained(error) {
            return self.note(topic, self.diagnosis().of(topic, error));
        }
        let answer = asked.lock().unwrap_or_else(PoisonError::into_inner).entry(topic.to_owned()).or_default().clone();
        let asking = async { self.note(topic, self.ask(open, topic, error).await) };
        answer.get_or_init(|| asking).await.clone()
    }

    async fn ask(&self, open: &Open, topic: &str, error: &KrafkaError) -> Failure {
        let options = DescribeTopicsOptions::default().timeout(ASKING);
        let admin = open.cluster.admin();
        let asking = admin.describe_topics([topic], options);
        let Ok(answer) = tokio::time::timeout(ASKING, asking).await else { return self.diagnosis().unreachable(error) };
        match answer.map(|mut topics| topics.remove(topic)) {
            Ok(Some(Ok(state))) => match state.partitions.iter().find(|partition| partition.leader.is_none()) {
                Some(partition) => {
                    self.diagnosis().not_confirmed(topic, &format!("its partition {} has no leader", partition.partition))
                }
                None => self.diagnosis().not_confirmed(topic, &error.to_string()),
            },
            Ok(Some(Err(answer))) | Err(answer) if failure::is_unexplained(&answer) => self.diagnosis().unreachable(error),
            Ok(Some(Err(answer))) | Err(answer) => self.diagnosis().of(topic, &answer),
            Ok(None) => self.diagnosis().not_confirmed(topic, &error.to_string()),
        }
    }

    /// Lets the topic rest if the failure concerns all its messages.
    fn note(&self, topic: &str, failure: Failure) -> SinkError {
        let error = match failure {
            Failure::Message(error) | Failure::Sink(error) => return error,
            Failure::Topic(error) => error,
        };
        // No event keeps the reason of a delivery that is not counted.
        if self.resting().rest(topic, error.clone(), Instant::now()) {
            tracing::warn!(
                target: "outbox::sink::kafka",
                sink = self.name,
                topic,
                reason = %error,
                "a topic is not confirmed; its events wait and lose no attempt"
            );
        }
        error
    }

    fn resting(&self) -> MutexGuard<'_, RestingTopics> {
        self.resting.topics()
    }

    fn diagnosis(&self) -> Diagnosis<'_> {
        Diagnosis(&self.config)
    }
}

#[async_trait]
impl Link for Kafka {
    async fn send(&self, batch: &Batch, deadline: Instant) {
        let connecting = self.connection.get(|open| !open.is_over.load(Ordering::Relaxed), self.connect());
        let open = match tokio::time::timeout_at(deadline.into(), connecting).await {
            Ok(Ok(open)) => open,
            Ok(Err(error)) => return batch.fail(&error),
            Err(_) => return batch.fail(&self.diagnosis().silent()),
        };
        let asked = Asked::default();
        let delivering = batch.messages().iter().enumerate().map(async |(index, message)| {
            batch.answer(index, self.deliver(&open, &asked, message, deadline).await);
        });
        join_all(delivering).await;
    }

    fn destination<'m>(&self, message: &'m Message) -> Option<Cow<'m, str>> {
        self.topic(message).ok()
    }

    fn reaches_each_destination(&self) -> bool {
        true
    }

    fn counts_closed(&self) -> bool {
        true
    }

    fn open_breakers(&self) -> OpenBreakers {
        OpenBreakers::of_receivers(self.resting().names(Instant::now()))
    }

    fn rests(&self) -> Rests {
        Rests::new(self.resting.clone())
    }
}

/// The record of a message. Its key decides about its partition, by the same hash as in Kafka's Java client.
fn record(topic: &str, message: &Message) -> Record {
    let mut record = Record::new(topic, message.body.clone());
    for (name, value) in carried(message, |_| false) {
        record = record.header(name, value.to_owned());
    }
    for (name, value) in own(message) {
        record = record.header(name, value);
    }
    record = record.header("id", message.id.clone()).header("content-type", message.content_type.clone());
    match message.key() {
        Some(key) => record.key(key.to_owned()),
        None => record,
    }
}
