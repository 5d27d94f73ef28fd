//! Kafka, in librdkafka's own mock cluster: no server of Kafka is a package of the system.

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::sink::SinkError;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::RDKafkaRespErr;
use serde_json::json;
use support::{PATIENCE, eventually, in_time};

use crate::common::{Unconfirmed, order, send_all_while, send_one, sink, to};

type Cluster = MockCluster<'static, DefaultProducerContext>;

fn cluster() -> Cluster {
    let cluster = MockCluster::new(1).expect("a cluster");
    cluster.create_topic("Order", 3, 1).expect("a topic");
    cluster
}

fn config(cluster: &Cluster) -> serde_json::Value {
    json!({"kind": "kafka", "brokers": cluster.bootstrap_servers(), "timeout": "5s"})
}

/// Key, headers and payload of all messages of a topic, read until there are this many.
fn read(cluster: &Cluster, topic: &str, count: usize) -> Vec<(String, String, String)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .set("group.id", "test")
        .set("auto.offset.reset", "earliest")
        .create()
        .expect("a consumer");
    consumer.subscribe(&[topic]).expect("subscribed");
    let started = std::time::Instant::now();
    let mut messages = Vec::new();
    while messages.len() < count && started.elapsed() < PATIENCE {
        let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) else { continue };
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let headers = message.headers().map_or_else(String::new, |headers| {
            headers.iter().map(|header| format!("{}={}\n", header.key, text(header.value))).collect()
        });
        messages.push((text(message.key()), headers, text(message.payload())));
    }
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_message_is_in_the_topic_with_its_aggregate_as_key_and_its_event() {
    let cluster = cluster();
    let message = order(7);
    assert_eq!(send_one(&*sink(config(&cluster)), message.clone()).await, Ok(()));
    let read = tokio::task::block_in_place(|| read(&cluster, "Order", 1));
    let (key, headers, payload) = &read[0];
    assert_eq!((key.as_str(), payload.as_str()), ("7", "7"));
    assert!(headers.contains(&format!("event-id={}\n", message.event_id)) && headers.contains("traceparent=00-"), "{headers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_no_topics_and_a_message_that_the_broker_refuses_are_rejected() {
    let cluster = cluster();
    let sink = sink(config(&cluster));
    let no_topic = send_one(&*sink, to("a b", order(1))).await;
    assert!(
        matches!(&no_topic, Err(SinkError::Rejected { reason }) if reason.contains("not a valid name of a topic")),
        "{no_topic:?}"
    );
    let mut huge = order(2);
    huge.body = vec![b'x'; 2 << 20].into();
    let huge = send_one(&*sink, huge).await;
    assert!(matches!(huge, Err(SinkError::Rejected { .. })), "{huge:?}");
    // A topic of its own: what the client knows of the other one it may have asked before.
    cluster.topic_error("denied", RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).expect("told");
    let denied = send_one(&*sink, to("denied", order(3))).await;
    assert!(matches!(denied, Err(SinkError::Rejected { .. })), "{denied:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_there_fails_its_own_messages_alone_until_it_is_made() {
    let cluster = cluster();
    let sink = sink(config(&cluster));
    let missing = |error| cluster.topic_error("missing", error).expect("told");
    missing(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    let answers = sink.send(&[order(1), to("missing", order(2)), order(3)]).await;
    assert_eq!((&answers[0], &answers[2]), (&Ok(()), &Ok(())));
    let alone = send_one(&*sink, to("missing", order(4))).await;
    for answer in [&answers[1], &alone] {
        assert!(
            matches!(answer, Err(SinkError::Rejected { reason })
                if reason.contains("has no topic `missing`; create it there, or correct")),
            "{answer:?}"
        );
    }
    assert_eq!(send_one(&*sink, order(5)).await, Ok(()), "the sink is not down");
    missing(RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR);
    eventually("the topic is found", async || send_one(&*sink, to("missing", order(6))).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_without_a_leader_fails_its_own_messages_alone() {
    let cluster = cluster();
    cluster.create_topic("leaderless", 1, 1).expect("a topic");
    cluster.partition_leader("leaderless", 0, None).expect("told");
    let sink = sink(config(&cluster));
    let stuck = send_one(&*sink, to("leaderless", order(1))).await;
    assert!(
        matches!(&stuck, Err(SinkError::Unavailable { reason, retry_after: Some(_) })
            if reason.contains("did not confirm the message for the topic `leaderless`")),
        "{stuck:?}"
    );
    assert_eq!(send_one(&*sink, order(2)).await, Ok(()), "the sink is not down");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_nobody_confirms_holds_up_no_other() {
    let cluster = cluster();
    cluster.create_topic("leaderless", 1, 1).expect("a topic");
    cluster.partition_leader("leaderless", 0, None).expect("told");
    let mut config = config(&cluster);
    config["timeout"] = json!("10m");
    let sink = sink(config);
    let mut unconfirmed = Unconfirmed::default();
    for number in 0..20 {
        unconfirmed.send(&*sink, to("leaderless", order(number))).await;
        let others = [order(number), order(100 + number)];
        assert_eq!(in_time("the others are confirmed", sink.send(&others)).await, [Ok(()), Ok(())]);
    }
    unconfirmed.have_no_answer().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_messages_none_is_lost_when_the_broker_goes_away_in_the_middle() {
    let cluster = cluster();
    let sink = sink(config(&cluster));
    send_all_while(sink.clone(), (0..1_000).map(order).collect(), async {
        cluster.broker_down(1).expect("down");
        let down = send_one(&*sink, order(0)).await;
        // Down, or without a turn, since the messages before it wait for the broker.
        assert!(matches!(&down, Err(error) if error.is_retryable()), "{down:?}");
        cluster.broker_up(1).expect("up");
    })
    .await;
    let read = tokio::task::block_in_place(|| read(&cluster, "Order", 1_000));
    let payloads: BTreeSet<String> = read.into_iter().map(|(.., payload)| payload).collect();
    assert_eq!(payloads, (0..1_000).map(|number| number.to_string()).collect());
}
