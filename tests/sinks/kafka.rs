//! Kafka: Tansu. A relay in front of it adds faults, and a gate in front of the relay adds TLS and authentication.

mod authentication;
mod gate;
mod relay;
mod wire;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use krafka::admin::{CreateTopicsOptions, NewTopic};
use krafka::consumer::AutoOffsetReset;
use krafka::{ConsumerRecord, Record};
use outbox::sink::{Message, SinkError};
use serde_json::{Value, json};
use servers::Kafka;
use support::{Harness, Sqlite, eventually, in_time};

pub(crate) use self::gate::{Gate, Tls};

use self::relay::{DENIED, FENCED, Relay, TOO_FEW_REPLICAS, TOO_LARGE, Trouble};
use crate::common::{Unconfirmed, order, send_all_while, send_one, send_until_confirmed, sink, sinks, to, unique};
use crate::receiver::{commit_of, done, relaying};

/// The broker that all tests of this program share. No test stops it.
pub(crate) fn broker() -> SocketAddr {
    static SHARED: OnceLock<Kafka> = OnceLock::new();
    let shared = tokio::task::block_in_place(|| SHARED.get_or_init(|| Kafka::start().expect("it starts")));
    (Ipv4Addr::LOCALHOST, shared.port()).into()
}

const PARTITIONS: i32 = 3;
/// The key of records that a test writes by itself.
const END: &str = "end";

/// A topic of a test's own, with three partitions, read from the broker itself.
pub(crate) struct Topic {
    kafka: krafka::Kafka,
    pub(crate) name: String,
}

impl Topic {
    pub(crate) async fn make() -> Self {
        let topic = Self::without_making().await;
        topic.create().await;
        topic
    }

    /// A topic that is not there yet.
    pub(crate) async fn without_making() -> Self {
        let kafka = krafka::Kafka::builder(broker().to_string()).connect().await.expect("connects");
        Self { kafka, name: unique("orders-") }
    }

    async fn create(&self) {
        let topic = NewTopic::new(&self.name, PARTITIONS, 1).expect("valid");
        let made = self.kafka.admin().create_topics([topic], CreateTopicsOptions::default()).await.expect("answered");
        made[&self.name].as_ref().expect("a topic");
    }

    /// All records, in the order of each partition. What Tansu says of their number may be some seconds old; so a last record of this
    /// call in each partition shows that nothing is missing before it.
    pub(crate) async fn records(&self) -> Vec<ConsumerRecord> {
        let end = unique("end-");
        let producer = self.kafka.producer().build().await.expect("a producer");
        for partition in 0..PARTITIONS {
            let end = Record::new(&self.name, end.clone()).key(END).partition(partition);
            assert!(producer.send(end).await.expect("written").is_persisted());
        }
        let consumer = self.kafka.consumer_without_group().auto_offset_reset(AutoOffsetReset::Earliest);
        let consumer = consumer.build().await.expect("a consumer");
        consumer.subscribe([&self.name]).await.expect("subscribed");
        let (mut records, mut ended) = (Vec::new(), 0);
        while ended < PARTITIONS {
            let record = in_time("a record is read", consumer.recv()).await.expect("readable").expect("it is open");
            ended += i32::from(record.value_str() == Some(&end));
            records.push(record);
        }
        records.retain(|record| record.key_str() != Some(END));
        records
    }

    /// The payloads of all records.
    pub(crate) async fn payloads(&self) -> Vec<String> {
        self.records().await.iter().map(|record| record.value_str().expect("text").to_owned()).collect()
    }
}

pub(crate) fn config(brokers: &str, topic: &Topic) -> Value {
    json!({"kind": "kafka", "brokers": brokers, "topic": topic.name, "timeout": "4s"})
}

/// Why a message is refused.
fn rejection(answer: Result<(), SinkError>) -> String {
    match answer {
        Err(SinkError::Rejected { reason }) => reason,
        other => panic!("it is refused: {other:?}"),
    }
}

/// Why the messages of a topic wait without a counted attempt: no host may write to it.
fn closed(answer: Result<(), SinkError>) -> String {
    match answer {
        Err(SinkError::Closed { reason }) => reason,
        other => panic!("it is closed: {other:?}"),
    }
}

/// Why a message waits without a counted attempt, while the sink works.
fn delay(answer: Result<(), SinkError>) -> String {
    match answer {
        Err(SinkError::Unavailable { reason, retry_after: Some(_), .. }) => reason,
        other => panic!("it waits: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_message_is_in_the_topic_with_its_aggregate_as_key_and_its_event() {
    let topic = Topic::make().await;
    let message = order(7);
    assert_eq!(send_one(&*sink(config(&broker().to_string(), &topic)), message.clone()).await, Ok(()));
    let records = topic.records().await;
    let [record] = &records[..] else { panic!("one record: {records:?}") };
    assert_eq!((record.key_str(), record.value_str()), (Some("7"), Some("7")));
    assert_eq!(record.header_str("event-id"), Some(message.event_id.to_string().as_str()));
    assert_eq!(record.header_str("id"), Some(message.id.as_str()));
    assert!(record.header_str("traceparent").is_some_and(|value| value.starts_with("00-")), "{record:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_messages_are_readable() {
    for compression in ["none", "gzip", "snappy", "lz4"] {
        let topic = Topic::make().await;
        let mut config = config(&broker().to_string(), &topic);
        config["compression"] = json!(compression);
        assert_eq!(send_one(&*sink(config), order(7)).await, Ok(()), "{compression}");
        assert_eq!(topic.payloads().await, ["7"], "{compression}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_topic_name_fails_its_own_message_alone() {
    let topic = Topic::make().await;
    let sink = sink(config(&broker().to_string(), &topic));
    let mut answers = sink.send(&[to("a b", order(1)), order(2)]).await;
    assert_eq!(answers.pop(), Some(Ok(())));
    assert_eq!(rejection(answers.remove(0)), "`a b` is not a valid name of a topic");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_fails_alone() {
    let (topic, relay) = (Topic::make().await, Relay::before(broker()).await);
    let sink = sink(config(&relay.brokers(), &topic));
    assert_eq!(send_one(&*sink, order(1)).await, Ok(()));
    relay.trouble(&topic.name, Trouble::Refused { code: TOO_LARGE, times: 1 });

    let reason = rejection(send_one(&*sink, order(2)).await);

    let expected = format!("takes for the topic `{}`; raise max.message.bytes of the topic there", topic.name);
    assert!(reason.starts_with("the message is larger than Kafka at 127.0.0.1:") && reason.ends_with(&expected), "{reason}");
    // Not at once: Tansu, unlike Kafka, then refuses the producer, since it counts its epoch up by itself.
    send_until_confirmed(&*sink, order(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_the_cluster_refuses_is_replaced() {
    let (topic, relay) = (Topic::make().await, Relay::before(broker()).await);
    let sink = sink(config(&relay.brokers(), &topic));
    relay.trouble(&topic.name, Trouble::Refused { code: FENCED, times: 1 });

    let fenced = send_one(&*sink, order(1)).await;
    send_until_confirmed(&*sink, order(1)).await;

    assert!(matches!(&fenced, Err(SinkError::Down { reason, .. }) if reason.contains("ProducerFenced")), "{fenced:?}");
    assert_eq!(topic.payloads().await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_topic_that_this_host_may_not_write_to_wait_and_no_others_do() {
    let relay = Relay::before(broker()).await;
    for trouble in [Trouble::Hidden(DENIED), Trouble::Refused { code: DENIED, times: usize::MAX }] {
        let (topic, denied) = (Topic::make().await, Topic::make().await);
        let sink = sink(config(&relay.brokers(), &topic));
        relay.trouble(&denied.name, trouble);

        let mut answers = sink.send(&[to(&denied.name, order(1)), order(2)]).await;

        assert_eq!(answers.pop(), Some(Ok(())), "{trouble:?}");
        let reason = closed(answers.remove(0));
        let expected = format!("does not let this host write to the topic `{}`; grant it there", denied.name);
        assert!(reason.starts_with("Kafka at 127.0.0.1:") && reason.ends_with(&expected), "{reason}");
        relay.heal(&denied.name);
        eventually("it may write", async || send_one(&*sink, to(&denied.name, order(3))).await.is_ok()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_missing_topic_wait_until_it_is_made_and_no_others_do() {
    let (topic, missing) = (Topic::make().await, Topic::without_making().await);
    let sink = sink(config(&broker().to_string(), &topic));
    let mut answers = sink.send(&[order(1), to(&missing.name, order(2)), order(3)]).await;
    assert_eq!((&answers[0], &answers[2]), (&Ok(()), &Ok(())));
    let alone = send_one(&*sink, to(&missing.name, order(4))).await;
    let expected = format!("has no topic `{}`; create it there, or correct the topic in the configuration", missing.name);
    for answer in [answers.swap_remove(1), alone] {
        let reason = closed(answer);
        assert!(reason.ends_with(&expected), "{reason}");
    }
    assert_eq!(send_one(&*sink, order(5)).await, Ok(()), "the sink is not down");
    missing.create().await;
    eventually("the topic is found", async || send_one(&*sink, to(&missing.name, order(6))).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_without_a_leader_fails_its_own_messages_alone() {
    let (topic, stuck, relay) = (Topic::make().await, Topic::make().await, Relay::before(broker()).await);
    relay.trouble(&stuck.name, Trouble::Leaderless);
    let sink = sink(config(&relay.brokers(), &topic));

    let reason = delay(send_one(&*sink, to(&stuck.name, order(1))).await);

    let told = format!("did not confirm the message for the topic `{}`: its partition 0 has no leader; look at", stuck.name);
    assert!(reason.contains(&told), "{reason}");
    assert_eq!(send_one(&*sink, order(2)).await, Ok(()), "the sink is not down");
    relay.heal(&stuck.name);
    eventually("it has a leader", async || send_one(&*sink, to(&stuck.name, order(3))).await.is_ok()).await;
}

/// As at a host that reaches the brokers, but not the leaders of one topic.
#[tokio::test(flavor = "multi_thread")]
async fn host_reports_the_stall_of_one_topic_while_another_is_confirmed() {
    let (topic, stuck, relay) = (Topic::make().await, Topic::make().await, Relay::before(broker()).await);
    relay.trouble(&stuck.name, Trouble::Leaderless);
    let mut config = config(&relay.brokers(), &topic);
    config["topic"] = json!("{aggregate_type}");
    let sinks = sinks(config);
    let monitor = sinks.monitor();
    let (db, store) = Sqlite::on_system_clock().await;
    let outbox = relaying(store, sinks).await;
    commit_of(&outbox, &[stuck.name.as_str()], 1).await;

    let mut confirmed = 0;
    eventually("the stall is reported beside confirmed events", async || {
        commit_of(&outbox, &[topic.name.as_str()], 1).await;
        confirmed += 1;
        done(&db, confirmed).await;
        outbox.readiness().stalled().iter().any(|stalled| stalled.reason.contains(&stuck.name))
    })
    .await;
    assert_eq!(monitor.list()[0].unavailable_receivers, 1);
    assert_eq!(monitor.list()[0].first_unavailable, [stuck.name.as_str()]);

    relay.heal(&stuck.name);
    done(&db, confirmed + 1).await;
    eventually("no stall is left", async || outbox.readiness().stalled().is_empty()).await;
    assert_eq!(monitor.list()[0].unavailable_receivers, 0);
    assert_eq!(db.number("SELECT sum(attempts) FROM outbox_event").await, 0);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_topic_with_too_few_replicas_wait_and_lose_no_attempt() {
    let (topic, relay) = (Topic::make().await, Relay::before(broker()).await);
    relay.trouble(&topic.name, Trouble::Refused { code: TOO_FEW_REPLICAS, times: usize::MAX });
    let sink = sink(config(&relay.brokers(), &topic));

    let reason = delay(send_one(&*sink, order(1)).await);

    assert!(reason.contains("NotEnoughReplicas"), "{reason}");
    relay.heal(&topic.name);
    eventually("it has enough replicas", async || send_one(&*sink, order(1)).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_topic_rests_after_an_update_to_other_brokers() {
    let (topic, relay) = (Topic::make().await, Relay::before(broker()).await);
    relay.trouble(&topic.name, Trouble::Refused { code: TOO_FEW_REPLICAS, times: usize::MAX });
    let sinks = sinks(config(&relay.brokers(), &topic));
    let sink = sinks.get("tested").expect("it is there");
    delay(send_one(&*sink, order(1)).await);
    delay(send_one(&*sink, order(2)).await);

    let changed = serde_json::from_value(config(&broker().to_string(), &topic)).expect("a good configuration");
    sinks.update("tested", &changed).await.expect("good settings");

    assert_eq!(send_one(&*sink, order(3)).await, Ok(()), "the other cluster has enough replicas");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_nobody_confirms_holds_up_no_other() {
    let (topic, stuck, relay) = (Topic::make().await, Topic::make().await, Relay::before(broker()).await);
    relay.trouble(&stuck.name, Trouble::Leaderless);
    let mut config = config(&relay.brokers(), &topic);
    config["timeout"] = json!("10m");
    let sink = sink(config);
    let mut unconfirmed = Unconfirmed::default();
    for number in 0..20 {
        unconfirmed.send(&*sink, to(&stuck.name, order(number))).await;
        let others = [order(number), order(100 + number)];
        assert_eq!(in_time("the others are confirmed", sink.send(&others)).await, [Ok(()), Ok(())]);
    }
    unconfirmed.have_no_answer().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_reorder_no_messages_of_one_key() {
    let (topic, relay) = (Topic::make().await, Relay::before(broker()).await);
    let sink = sink(config(&relay.brokers(), &topic));
    for number in 0..50 {
        let trouble = match number % 3 {
            0 => Trouble::Refused { code: TOO_FEW_REPLICAS, times: 1 },
            1 => Trouble::AnswerLost { times: 1 },
            _ => Trouble::AnswerLost { times: 0 },
        };
        relay.trouble(&topic.name, trouble);
        let message = Message { key: Some("7".to_owned()), ..order(number) };
        assert_eq!(send_one(&*sink, message).await, Ok(()));
    }
    assert_eq!(topic.payloads().await, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_confirmation_is_lost_is_in_the_topic_once() {
    let (topic, relay) = (Topic::make().await, Relay::before(broker()).await);
    let sink = sink(config(&relay.brokers(), &topic));
    relay.trouble(&topic.name, Trouble::AnswerLost { times: 2 });
    assert_eq!(send_one(&*sink, order(7)).await, Ok(()));
    assert_eq!(topic.payloads().await, ["7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_messages_none_is_lost_when_the_broker_goes_away_in_the_middle() {
    let (topic, relay) = (Topic::make().await, Relay::before(broker()).await);
    let sink = sink(config(&relay.brokers(), &topic));
    send_all_while(sink.clone(), (0..1_000).map(order).collect(), async {
        relay.go_away();
        let down = send_one(&*sink, order(0)).await;
        // Down, or without a turn, since the messages before it wait for the broker.
        assert!(matches!(&down, Err(error) if error.is_retryable()), "{down:?}");
        relay.come_back();
    })
    .await;
    let payloads: BTreeSet<String> = topic.payloads().await.into_iter().collect();
    assert_eq!(payloads, (0..1_000).map(|number| number.to_string()).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_whose_broker_is_not_there_is_down_and_says_why() {
    let topic = Topic::make().await;
    let answer = send_one(&*sink(config("127.0.0.1:1", &topic)), order(1)).await;
    let expected = "Kafka at 127.0.0.1:1 cannot be connected to: Connection refused (os error 111)";
    assert!(matches!(&answer, Err(SinkError::Down { reason, .. }) if reason == expected), "{answer:?}");
}
