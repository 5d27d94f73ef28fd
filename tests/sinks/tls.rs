//! TLS: which servers a sink trusts, and what an operator reads about the others.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use outbox::sink::{Secret, SinkConfig, SinkError, Sinks};
use outbox::telemetry::{CollectorConfig, Telemetry, TelemetryConfig};
use outbox::{Envelope, Outbox};
use serde_json::{Value, json};
use servers::Broker;
use support::{Database, Sqlite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::amqp::Queue;
use crate::broker::{encrypted, shared};
use crate::certificate::certificate;
use crate::common::{order, send_one, sink};
use crate::endpoint::{Answer, Endpoint, OK};
use crate::kafka::{Gate, Tls, Topic};
use crate::nats::Stream;
use crate::{amqp, kafka, nats, redis};

/// The configuration with an authority to trust.
fn trusting(mut config: Value, ca_file: &Path) -> Value {
    config["ca_file"] = json!(ca_file);
    config
}

/// Why a sink is down.
async fn down(config: Value) -> String {
    match send_one(&*sink(config), order(1)).await {
        Err(SinkError::Down { reason, .. }) => reason,
        other => panic!("the sink is down: {other:?}"),
    }
}

/// A server that shows the certificate of these tests is not trusted by a sink without its authority, by one that trusts another
/// authority, nor under another name; each time the operator reads why, and no secret.
async fn nobody_else_is_trusted(url: &str, config: impl Fn(&str) -> Value) {
    let pem = certificate();
    let by_name = url.replace("127.0.0.1", "localhost");
    let of_another = format!("; none of the authorities in ca_file ({}) issued its certificate", pem.stranger.display());
    for (config, told) in [
        (config(url), "UnknownIssuer; this machine does not know the authority of its certificate"),
        (trusting(config(url), &pem.stranger), of_another.as_str()),
        (trusting(config(&by_name), &pem.authority), "; its certificate is for another name"),
    ] {
        let mut config = config;
        config["timeout"] = "30s".into(); // a handshake takes as long as the machine is busy
        let reason = down(config).await;
        assert!(reason.contains("invalid peer certificate") && reason.contains(told), "`{told}` is not in: {reason}");
        let (credentials, _) = url.split_once('@').unwrap_or_default();
        let password = credentials.rsplit_once(':').map_or("no password", |(_, password)| password);
        assert!(!reason.contains(password), "{reason}");
    }
}

/// An address that leads to a server with TLS, and is without it: the tests' client of RabbitMQ has none.
async fn unwrapped(url: &str, port: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let own = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((mut open, _)) = listener.accept().await {
            let tcp = TcpStream::connect(("127.0.0.1", port)).await.expect("it answers");
            let name = ServerName::try_from("127.0.0.1").expect("an address");
            let mut encrypted = certificate().connector().connect(name, tcp).await.expect("it is trusted");
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut open, &mut encrypted).await });
        }
    });
    url.replace("amqps://", "amqp://").replace(&port.to_string(), &own.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq_is_spoken_to_with_tls_where_its_authority_is_trusted_and_its_name_is_right() {
    let server = encrypted(Broker::RabbitMq);
    let queue = Queue::make(&unwrapped(&server.url(), server.port()).await, "orders").await;
    let config = |url: &str| amqp::config(url, "orders");

    let trusted = sink(trusting(config(&server.url()), &certificate().authority));
    assert_eq!(send_one(&*trusted, order(7)).await, Ok(()));
    assert_eq!(queue.take_all().await, ["7"]);

    nobody_else_is_trusted(&server.url(), config).await;
    assert_eq!(queue.take_all().await, <[&str; 0]>::default(), "and nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_is_spoken_to_with_tls_where_its_authority_is_trusted_and_its_name_is_right() {
    let server = encrypted(Broker::Nats);
    let stream = Stream::make(&server.url(), json!({})).await;
    let config = |url: &str| nats::config(url, &stream);

    let trusted = sink(trusting(config(&server.url()), &certificate().authority));
    assert_eq!(send_one(&*trusted, order(7)).await, Ok(()));
    assert_eq!(stream.payloads().await, ["7"]);

    nobody_else_is_trusted(&server.url(), config).await;
    assert_eq!(stream.count().await, 1, "and nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_spoken_to_with_tls_where_its_authority_is_trusted_and_its_name_is_right() {
    let server = encrypted(Broker::Redis);
    let config = |url: &str| redis::config(url, "orders");

    let trusted = sink(trusting(config(&server.url()), &certificate().authority));
    assert_eq!(send_one(&*trusted, order(7)).await, Ok(()));

    nobody_else_is_trusted(&server.url(), config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_is_spoken_to_with_tls_where_its_authority_is_trusted_and_its_name_is_right() {
    let (topic, gate) = (Topic::make().await, Gate::open(Tls::Server, None).await);
    let config = |brokers: &str| kafka::config(brokers, &topic);

    let trusted = sink(trusting(config(&gate.brokers()), &certificate().authority));
    assert_eq!(send_one(&*trusted, order(7)).await, Ok(()));
    assert_eq!(topic.payloads().await, ["7"]);

    nobody_else_is_trusted(&gate.brokers(), config).await;
    assert_eq!(topic.payloads().await, ["7"], "and nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_is_shown_the_client_certificate_that_it_asks_for() {
    let (topic, pem) = (Topic::make().await, certificate());
    let gate = Gate::open(Tls::Mutual, None).await;
    let mut config = trusting(kafka::config(&gate.brokers(), &topic), &pem.authority);

    let missing = down(config.clone()).await;
    config["cert_file"] = json!(pem.stranger);
    config["key_file"] = json!(pem.stranger.with_extension("key"));
    let untrusted = down(config.clone()).await;
    config["cert_file"] = json!(pem.certificate_file);
    config["key_file"] = json!(pem.key_file);

    assert_eq!(send_one(&*sink(config), order(7)).await, Ok(()));
    let advice = "the server asks for a client certificate; name its files in cert_file and key_file";
    assert!(missing.ends_with(advice), "{missing}");
    let advice = format!("the server does not accept the client certificate in cert_file ({})", pem.stranger.display());
    assert!(untrusted.ends_with(&advice), "{untrusted}");
    assert_eq!(topic.payloads().await, ["7"]);
}

fn webhook(url: &str) -> Value {
    json!({"kind": "http", "url": url, "headers": {"authorization": "Bearer t0ken"}, "timeout": "2s"})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_goes_over_tls_where_its_authority_is_trusted_and_its_name_is_right() {
    let endpoint = Endpoint::encrypted(OK).await;

    let trusted = sink(trusting(webhook(&endpoint.url()), &certificate().authority));
    assert_eq!(send_one(&*trusted, order(7)).await, Ok(()));
    assert_eq!((endpoint.requests().len(), endpoint.requests()[0].body.as_slice()), (1, &b"7"[..]));

    nobody_else_is_trusted(&endpoint.url(), webhook).await;
    assert_eq!(endpoint.requests().len(), 1, "and nothing was sent");
}

/// What became of the span of one write that goes to this endpoint: how many were taken, how many dropped.
async fn exported(endpoint: &Endpoint, ca_file: Option<&Path>) -> (u64, u64) {
    let to = CollectorConfig {
        headers: vec![("authorization".to_owned(), Secret::new("Bearer t0ken"))],
        timeout: Duration::from_secs(2),
        ca_file: ca_file.map(Path::to_owned),
        ..CollectorConfig::at(endpoint.url())
    };
    let telemetry = Telemetry::start(&TelemetryConfig { traces: Some(to), ..TelemetryConfig::default() }).expect("good");
    let db = Sqlite::fresh().await;
    let outbox = Outbox::writer_only(db.typed()).telemetry(&telemetry).start().await.expect("starts");
    outbox.writer().emit(vec![Envelope::new("OrderPlaced").json(&1).expect("good")]).await.expect("written");
    outbox.shutdown().await;
    telemetry.shutdown().await;
    let counts = telemetry.spans().expect("spans are exported");
    (counts.exported.get(), counts.dropped.get())
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_goes_over_tls_where_its_authority_is_trusted() {
    let endpoint = Endpoint::encrypted(OK).await;

    assert_eq!(exported(&endpoint, Some(&certificate().authority)).await, (1, 0));
    let request = &endpoint.requests()[0];
    assert_eq!((request.path(), request.header("authorization")), ("/hooks", Some("Bearer t0ken")));

    assert_eq!(exported(&endpoint, Some(&certificate().stranger)).await, (0, 1));
    assert_eq!(exported(&endpoint, None).await, (0, 1));
    assert_eq!(endpoint.requests().len(), 1, "and nothing was sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_out_of_tls_is_not_followed() {
    let open = Endpoint::that(OK).await;
    let location = format!("HTTP/1.1 308 Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", open.url());
    let endpoint = Endpoint::encrypted(Answer::Says(Box::leak(location.into_boxed_str()))).await;

    let moved = send_one(&*sink(trusting(webhook(&endpoint.url()), &certificate().authority)), order(1)).await;

    assert!(matches!(&moved, Err(SinkError::Denied { reason }) if reason.contains(&open.url())), "{moved:?}");
    assert_eq!((endpoint.requests().len(), open.requests().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_told_as_such_to_whoever_asks_for_it() {
    let stream = Stream::make(&shared(Broker::Nats), json!({})).await;
    for config in [
        amqp::config(&shared(Broker::RabbitMq).replace("amqp://", "amqps://"), "orders"),
        nats::config(&shared(Broker::Nats).replace("nats://", "tls://"), &stream),
    ] {
        let reason = down(config).await;
        assert!(reason.ends_with("; the server does not speak TLS at this address"), "{reason}");
    }
    assert_eq!(stream.count().await, 0);
}

#[test]
fn a_setting_of_tls_that_would_not_be_heeded_is_refused_and_says_what_to_write() {
    let authority = certificate().authority.to_str().expect("text");
    let faults = |config: Value| -> String {
        let config: SinkConfig = serde_json::from_value(config).expect("readable");
        Sinks::faults(&BTreeMap::from([("orders".to_owned(), config)])).join("\n")
    };
    for (kind, open, tls) in [
        ("amqp", "amqp://a", "amqps"),
        ("http", "http://a", "https"),
        ("nats", "nats://a", "tls"),
        ("nats", "tls://a, nats://b", "tls"),
        ("redis", "redis://a", "rediss"),
    ] {
        let told = format!("sinks.orders.ca_file is set, but sinks.orders.url is without TLS; write it like {tls}://host:port");
        let refused = faults(json!({"kind": kind, "url": open, "ca_file": authority}));
        assert!(refused.starts_with(&told), "{kind}: {refused}");
        assert_eq!(faults(json!({"kind": kind, "url": format!("{tls}://a"), "ca_file": authority})), "", "{kind}");
        assert_eq!(faults(json!({"kind": kind, "url": open})), "", "{kind}");
    }
    let refused = faults(json!({"kind": "kafka", "brokers": "a:9092", "ca_file": authority}));
    let told = "sinks.orders.ca_file is set, but sinks.orders.brokers is without TLS; write it like tls://host:port";
    assert!(refused.starts_with(told), "{refused}");
    assert_eq!(faults(json!({"kind": "kafka", "brokers": "tls://a:9093,b:9093", "ca_file": authority})), "");
    let unchecked = faults(json!({"kind": "redis", "url": "rediss://a/#insecure"}));
    assert!(unchecked.contains("a certificate is always checked"), "{unchecked}");
}
