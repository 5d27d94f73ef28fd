//! RabbitMQ.

use std::collections::BTreeSet;

use lapin::options::{BasicGetOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties};
use outbox::sink::SinkError;
use serde_json::{Value, json};
use servers::{Broker, RESTRICTED_EXCHANGE};
use support::eventually;

use crate::broker::{control, kill, own, restart, resume, shared};
use crate::common::{order, send_all_while, send_one, send_until_confirmed, sink, to, unique};

/// A durable queue, by its name; the default exchange routes to it.
pub(crate) struct Queue {
    channel: Channel,
    name: String,
    _connection: Connection,
}

impl Queue {
    /// A server that was started just now accepts connections before it serves them.
    pub(crate) async fn make(url: &str, name: &str) -> Self {
        eventually("RabbitMQ has the queue", async || Self::try_make(url, name).await.is_ok()).await;
        Self::try_make(url, name).await.expect("it had it just now")
    }

    async fn try_make(url: &str, name: &str) -> Result<Self, lapin::Error> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(name.into(), options, FieldTable::default()).await?;
        Ok(Self { channel, name: name.to_owned(), _connection: connection })
    }

    /// Takes one message out.
    async fn take(&self) -> Option<lapin::message::BasicGetMessage> {
        let options = BasicGetOptions { no_ack: true };
        self.channel.basic_get(self.name.as_str().into(), options).await.expect("answers")
    }

    pub(crate) async fn take_all(&self) -> Vec<String> {
        let mut bodies = Vec::new();
        while let Some(message) = self.take().await {
            bodies.push(String::from_utf8(message.delivery.data.clone()).expect("text"));
        }
        bodies
    }
}

pub(crate) fn config(url: &str, queue: &str) -> Value {
    json!({"kind": "amqp", "url": url, "routing_key": queue, "timeout": "3s"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_message_is_in_the_queue_persistent_with_its_id_and_its_event() {
    let (url, name) = (shared(Broker::RabbitMq), unique("orders-"));
    let queue = Queue::make(&url, &name).await;
    let elsewhere = Queue::make(&url, "elsewhere").await;
    let message = order(7);
    assert_eq!(send_one(&*sink(config(&url, &name)), message.clone()).await, Ok(()));
    let got = queue.take().await.expect("it is there").delivery;
    assert_eq!(got.data, b"7");
    let properties = got.properties;
    assert_eq!(properties.message_id().as_ref().map(|id| id.as_str()), Some(message.id.as_str()));
    assert_eq!(*properties.delivery_mode(), Some(2));
    let headers = properties.headers().clone().expect("headers");
    let header = |name: &str| match headers.inner().get(name) {
        Some(AMQPValue::LongString(text)) => Some(text.to_string()),
        _ => None,
    };
    assert_eq!(header("event-id"), Some(message.event_id.to_string()));
    assert!(header("traceparent").is_some() && header("CC").is_none(), "{headers:?}");
    assert!(elsewhere.take().await.is_none(), "an event's header routes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_no_queue_takes_waits_for_one_and_the_others_are_confirmed() {
    let (url, name) = (shared(Broker::RabbitMq), unique("orders-"));
    let queue = Queue::make(&url, &name).await;
    let long = "x".repeat(300);
    let sink = sink(config(&url, &name));
    let missing = unique("missing-");
    let answers = sink.send(&[order(1), to(&missing, order(2)), to(&long, order(3)), order(4)]).await;
    assert_eq!((&answers[0], &answers[3]), (&Ok(()), &Ok(())));
    assert!(matches!(&answers[1], Err(SinkError::Closed { reason }) if reason.contains("no queue takes")), "{answers:?}");
    assert!(matches!(&answers[2], Err(SinkError::Rejected { reason }) if reason.contains("255")), "{answers:?}");
    let mut taken = queue.take_all().await;
    taken.sort();
    assert_eq!(taken, ["1", "4"]);

    let made = Queue::make(&url, &missing).await;
    send_until_confirmed(&*sink, to(&missing, order(2))).await;
    assert_eq!(made.take_all().await, ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_which_the_channel_is_closed_is_a_failed_attempt_and_the_sink_works() {
    let (url, name) = (shared(Broker::RabbitMq), unique("orders-"));
    let queue = Queue::make(&url, &name).await;
    let sink = sink(json!({"kind": "amqp", "url": url, "routing_key": name, "timeout": "30s"}));
    let mut large = order(1);
    // More than `max_message_size` of this server.
    large.body = vec![b'x'; 8_100_000].into();
    let answers = sink.send(&[large, order(2)]).await;
    assert_eq!(answers[1], Ok(()), "it loses no attempt");
    assert!(
        matches!(&answers[0], Err(SinkError::Failed { reason, .. }) if reason.contains("PRECONDITION_FAILED")),
        "{answers:?}"
    );
    assert_eq!(send_one(&*sink, order(3)).await, Ok(()), "the sink is not down");
    assert_eq!(queue.take_all().await.into_iter().collect::<BTreeSet<_>>(), ["2", "3"].map(str::to_owned).into());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_whose_topic_is_not_permitted_fail_and_the_others_of_their_batch_lose_no_attempt() {
    let (url, name) = (shared(Broker::RabbitMq), unique("allowed-"));
    let queue = Queue::make(&url, &name).await;
    let channel = &queue.channel;
    let (exchange, queue_name) = (|| RESTRICTED_EXCHANGE.into(), || name.as_str().into());
    let topic = lapin::ExchangeKind::Topic;
    channel.exchange_declare(exchange(), topic, Default::default(), FieldTable::default()).await.expect("made");
    let bound = channel.queue_bind(queue_name(), exchange(), queue_name(), Default::default(), FieldTable::default());
    bound.await.expect("bound");
    let mut config = config(&url, &name);
    config["exchange"] = json!(RESTRICTED_EXCHANGE);
    config["timeout"] = json!("30s");
    let sink = sink(config);
    let is_denied = |number: usize| number % 5 == 1;
    let messages: Vec<_> =
        (0..20).map(|number| if is_denied(number) { to("denied", order(number)) } else { order(number) }).collect();

    let answers = sink.send(&messages).await;

    for (number, answer) in answers.iter().enumerate() {
        if is_denied(number) {
            let expected = "access to topic 'denied' in exchange 'restricted'";
            assert!(matches!(answer, Err(SinkError::Failed { reason }) if reason.contains(expected)), "{number}: {answer:?}");
        } else {
            assert_eq!(answer, &Ok(()), "{number}");
        }
    }
    assert_eq!(send_one(&*sink, order(20)).await, Ok(()), "the sink is not down");
    let bodies: BTreeSet<String> = queue.take_all().await.into_iter().collect();
    assert_eq!(bodies, (0..=20).filter(|number| !is_denied(*number)).map(|number| number.to_string()).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_published_once_however_often_it_is_tried_while_an_alarm_blocks_publishers() {
    let server = own(Broker::RabbitMq);
    let url = server.url();
    let queue = Queue::make(&url, "orders").await;
    let sink = sink(config(&url, "orders"));
    control(&server, &["set_vm_memory_high_watermark", "0.00001"]);
    // RabbitMQ blocks a connection when a message comes during an alarm.
    let mut confirmed = 0;
    eventually("the sink is down", async || match send_one(&*sink, order(1)).await {
        Ok(()) => {
            confirmed += 1;
            false
        }
        Err(SinkError::Down { reason, .. }) => reason.contains("blocks publishers: low on"),
        Err(other) => panic!("{other:?}"),
    })
    .await;

    for _ in 0..3 {
        match send_one(&*sink, order(1)).await {
            Err(SinkError::Down { reason, retry_after, .. }) => {
                assert!(reason.contains("blocks publishers: low on"), "{reason}");
                // So that the next one is tried.
                tokio::time::sleep(retry_after).await;
            }
            other => panic!("{other:?}"),
        }
    }
    control(&server, &["set_vm_memory_high_watermark", "0.9"]);
    send_until_confirmed(&*sink, order(2)).await;

    let bodies = queue.take_all().await;
    assert_eq!(bodies.iter().filter(|body| *body == "1").count(), confirmed + 1, "{bodies:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_is_not_there_is_told_and_when_it_is_made_everything_arrives() {
    let (url, name) = (shared(Broker::RabbitMq), unique("orders-"));
    let queue = Queue::make(&url, &name).await;
    let mut config = config(&url, &name);
    config["exchange"] = json!(name);
    let sink = sink(config);
    let missing = send_one(&*sink, order(1)).await;
    assert!(matches!(&missing, Err(SinkError::Down { reason, .. }) if reason.contains("NOT_FOUND")), "{missing:?}");
    let channel = &queue.channel;
    let name = || name.as_str().into();
    let fanout = lapin::ExchangeKind::Fanout;
    channel.exchange_declare(name(), fanout, Default::default(), FieldTable::default()).await.expect("made");
    channel.queue_bind(name(), name(), "".into(), Default::default(), FieldTable::default()).await.expect("bound");
    send_until_confirmed(&*sink, order(1)).await;
    assert_eq!(queue.take_all().await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_messages_none_is_lost_when_the_server_is_killed_in_the_middle() {
    let mut server = own(Broker::RabbitMq);
    let url = server.url();
    drop(Queue::make(&url, "orders").await);
    // What a crash leaves of a queue that was made just before is RabbitMQ's business: this is about the messages in it.
    restart(&mut server);
    let sink = sink(config(&url, "orders"));
    send_all_while(sink.clone(), (0..1_000).map(order).collect(), async {
        kill(&mut server);
        let down = send_one(&*sink, order(0)).await;
        assert!(matches!(down, Err(SinkError::Down { .. })), "{down:?}");
        resume(&mut server);
        // As its readers do when they come back.
        drop(Queue::make(&url, "orders").await);
    })
    .await;
    let bodies: BTreeSet<String> = Queue::make(&url, "orders").await.take_all().await.into_iter().collect();
    assert_eq!(bodies, (0..1_000).map(|number| number.to_string()).collect());
}
