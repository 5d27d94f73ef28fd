//! NATS with JetStream.

use std::collections::BTreeSet;

use outbox::node::SinkState;
use outbox::sink::SinkError;
use serde_json::{Value, json};
use servers::Broker;
use support::{eventually, in_time};

use crate::broker::{kill, own, resume, shared};
use crate::certificate::certificate;
use crate::common::{Unconfirmed, order, send_all_while, send_one, send_until_confirmed, sink, sinks, to, unique};

/// A stream, read by JetStream's own interface.
pub(crate) struct Stream {
    client: async_nats::Client,
    pub(crate) name: String,
}

impl Stream {
    /// A stream of its own, which takes every subject that begins with its name.
    pub(crate) async fn make(url: &str, more: Value) -> Self {
        // The client does not heed what stands before the `@`.
        let (credentials, host) = url.split_once("://").unwrap_or(("", url)).1.rsplit_once('@').unwrap_or(("", url));
        let (user, password) = credentials.split_once(':').unwrap_or_default();
        let mut options = async_nats::ConnectOptions::new().user_and_password(user.to_owned(), password.to_owned());
        if url.starts_with("tls://") {
            options = options.require_tls(true).tls_client_config(certificate().client());
        }
        let client = options.connect(host).await.expect("connects");
        let name = unique("S");
        let mut config = json!({"name": name, "subjects": [format!("{name}.>")], "storage": "file"});
        config.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        let stream = Self { client, name };
        let made = stream.ask("CREATE", &config).await;
        assert!(made.get("error").is_none(), "{made}");
        stream
    }

    async fn ask(&self, what: &str, question: &Value) -> Value {
        let subject = format!("$JS.API.STREAM.{what}.{}", self.name);
        let answer = self.client.request(subject, question.to_string().into()).await.expect("JetStream answers");
        serde_json::from_slice(&answer.payload).expect("JSON")
    }

    pub(crate) async fn count(&self) -> u64 {
        self.ask("INFO", &json!({})).await["state"]["messages"].as_u64().expect("a number")
    }

    /// Subject, headers and payload of a message.
    pub(crate) async fn message(&self, number: u64) -> (String, String, String) {
        let answer = self.ask("MSG.GET", &json!({"seq": number})).await;
        let text = |name: &str| {
            let base64 = answer["message"][name].as_str().unwrap_or_default();
            String::from_utf8(data_encoding::BASE64.decode(base64.as_bytes()).expect("base64")).expect("text")
        };
        (answer["message"]["subject"].as_str().unwrap_or_default().to_owned(), text("hdrs"), text("data"))
    }

    /// All payloads.
    pub(crate) async fn payloads(&self) -> Vec<String> {
        let mut payloads = Vec::new();
        for number in 1..=self.count().await {
            payloads.push(self.message(number).await.2);
        }
        payloads
    }
}

pub(crate) fn config(url: &str, stream: &Stream) -> Value {
    json!({"kind": "nats", "url": url, "timeout": "2s", "subject": format!("{}.{{aggregate_type}}.{{event_type}}", stream.name)})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_message_is_in_the_stream_with_its_id_and_its_events_and_no_order_to_the_server() {
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    let message = order(7);
    assert_eq!(send_one(&*sink(config(&url, &stream)), message.clone()).await, Ok(()));
    let (subject, headers, payload) = stream.message(1).await;
    assert_eq!((subject, payload.as_str()), (format!("{}.Order.OrderPlaced", stream.name), "7"));
    let has = |name: &str, value: &str| headers.lines().any(|line| line.eq_ignore_ascii_case(&format!("{name}: {value}")));
    assert!(has("event-id", &message.event_id.to_string()), "{headers}");
    assert!(
        has("Nats-Msg-Id", &message.id) && has("aggregate-id", "7") && has("content-type", "application/json"),
        "{headers}"
    );
    assert!(headers.contains("traceparent: 00-") && !headers.contains("Nats-Rollup"), "{headers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_message_twice_is_one_in_the_stream() {
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    let sink = sink(config(&url, &stream));
    let message = order(7);
    assert_eq!(sink.send(&[message.clone(), message.clone()]).await, [Ok(()), Ok(())]);
    assert_eq!(send_one(&*sink, message).await, Ok(()));
    assert_eq!(stream.count().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_stream_or_the_server_does_not_take_is_rejected_and_the_others_are_not() {
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({"max_msg_size": 1_000})).await;
    let mut large = order(1);
    large.body = vec![b'x'; 2_000].into();
    let mut huge = order(2);
    huge.body = vec![b'x'; 3 << 20].into();
    let sink = sink(config(&url, &stream));
    let answers = sink.send(&[large, order(3), huge, to("a..b", order(4)), order(5)]).await;
    for refused in [0, 2, 3] {
        assert!(matches!(answers[refused], Err(SinkError::Rejected { .. })), "{answers:?}");
    }
    assert_eq!((&answers[1], &answers[4]), (&Ok(()), &Ok(())));
    let mut payloads = stream.payloads().await;
    payloads.sort();
    assert_eq!(payloads, ["3", "5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_uncounted_while_the_quota_of_the_account_is_used_up() {
    let server = own(Broker::Nats);
    let url = server.url_with_quota();
    let stream = Stream::make(&url, json!({})).await;
    let sink = sink(config(&url, &stream));
    let large = |number| {
        let mut message = order(number);
        message.body = vec![b'x'; 4_000].into();
        message
    };
    let mut answer = Ok(());
    for number in 0..20 {
        answer = send_one(&*sink, large(number)).await;
        if answer.is_err() {
            break;
        }
    }
    assert!(matches!(&answer, Err(SinkError::Closed { reason }) if reason.contains("limits exceeded")), "{answer:?}");

    let purged = stream.ask("PURGE", &json!({})).await;
    assert!(purged.get("error").is_none(), "{purged}");

    send_until_confirmed(&*sink, large(20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_waits_for_a_stream_of_its_subject_and_a_plugin_reaches_nothing_of_the_servers_own() {
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    let sink = sink(config(&url, &stream));
    let answer = send_one(&*sink, to("unanswered", order(1))).await;
    assert!(matches!(&answer, Err(SinkError::Closed { reason }) if reason.contains("no stream")), "{answer:?}");
    let delete =
        outbox::sink::Message { trusts_subject: false, ..to(&format!("$JS.API.STREAM.DELETE.{}", stream.name), order(2)) };
    assert!(matches!(send_one(&*sink, delete).await, Err(SinkError::Rejected { .. })));
    assert_eq!(stream.count().await, 0, "and it is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn sink_without_a_stream_is_reported_as_down_until_a_stream_takes_a_message() {
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    let sinks = sinks(config(&url, &stream));
    let (sink, monitor) = (sinks.get("tested").expect("it is there"), sinks.monitor());

    eventually("it is down", async || {
        send_one(&*sink, to("unanswered", order(1))).await.expect_err("no stream takes it");
        monitor.list()[0].outage.is_some()
    })
    .await;
    let outage = monitor.list()[0].outage.clone().expect("it is down");
    assert!(outage.reason.contains("no stream of JetStream takes the subject unanswered"), "{outage:?}");

    send_one(&*sink, order(1)).await.expect("confirmed");
    assert_eq!((monitor.list()[0].outage.clone(), monitor.list()[0].state), (None, SinkState::Working));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_nobody_confirms_holds_up_no_other() {
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    // Somebody reads the subject, so that the server does not say that nobody does; but no stream keeps what it reads.
    let subject = unique("read.by.no.stream.");
    let _reader = stream.client.subscribe(subject.clone()).await.expect("subscribed");
    stream.client.flush().await.expect("the server knows it");
    let mut config = config(&url, &stream);
    config["timeout"] = json!("10m");
    let sink = sink(config);
    let mut unconfirmed = Unconfirmed::default();
    for number in 0..20 {
        unconfirmed.send(&*sink, to(&subject, order(number))).await;
        let others = [order(number), order(100 + number)];
        assert_eq!(in_time("the others are confirmed", sink.send(&others)).await, [Ok(()), Ok(())]);
    }
    unconfirmed.have_no_answer().await;
    assert_eq!(stream.count().await, 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_no_stream_confirms_is_a_failed_attempt_while_the_server_answers() {
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    let subject = unique("read.by.no.stream.");
    let _reader = stream.client.subscribe(subject.clone()).await.expect("subscribed");
    stream.client.flush().await.expect("the server knows it");
    let failed = send_one(&*sink(config(&url, &stream)), to(&subject, order(1))).await;
    assert!(matches!(&failed, Err(SinkError::Failed { reason }) if reason.contains("no stream")), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_subject_that_this_user_may_not_publish_to_wait_uncounted() {
    let server = own(Broker::Nats);
    let stream = Stream::make(&server.url(), json!({"subjects": ["denied.>", "allowed.>"]})).await;
    let sink = sink(config(&server.url_denied(), &stream));

    let answers = sink.send(&[to("denied.a", order(1)), to("allowed.a", order(2)), to("denied.b", order(3))]).await;

    assert_eq!(answers[1], Ok(()));
    for (answer, subject) in [(&answers[0], "denied.a"), (&answers[2], "denied.b")] {
        let Err(SinkError::Closed { reason }) = answer else { panic!("{answer:?}") };
        assert!(reason.contains(&format!("does not let this host publish to the subject {subject};")), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_is_told_as_such_and_after_its_return_everything_arrives() {
    let mut server = own(Broker::Nats);
    let stream = Stream::make(&server.url(), json!({})).await;
    let sink = sink(config(&server.url(), &stream));
    kill(&mut server);
    let down = send_one(&*sink, order(1)).await;
    assert!(matches!(&down, Err(SinkError::Down { reason, .. }) if reason.contains("127.0.0.1")), "{down:?}");
    assert!(!format!("{down:?}").contains("outbox:"), "no user, no password: {down:?}");
    resume(&mut server);
    send_until_confirmed(&*sink, order(1)).await;
    eventually("JetStream is ready again", async || stream.count().await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_servers_one_that_works_is_enough() {
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    let credentials = url.split_once('@').unwrap_or_default().0.trim_start_matches("nats://");
    let servers = format!("nats://{credentials}@127.0.0.1:1,{url},nats://127.0.0.1:2");
    // The order in which they are tried is the client's.
    for number in 0..10 {
        assert_eq!(send_one(&*sink(config(&servers, &stream)), order(number)).await, Ok(()));
    }
    assert_eq!(stream.count().await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_messages_none_is_lost_when_the_server_is_killed_in_the_middle() {
    let mut server = own(Broker::Nats);
    let stream = Stream::make(&server.url(), json!({"sync_interval": 1})).await;
    let sink = sink(config(&server.url(), &stream));
    send_all_while(sink, (0..1_000).map(order).collect(), async {
        kill(&mut server);
        resume(&mut server);
    })
    .await;
    let payloads: BTreeSet<String> = stream.payloads().await.into_iter().collect();
    assert_eq!(payloads, (0..1_000).map(|number| number.to_string()).collect());
}
