//! Authentication by SASL, and the reasons that an operator reads if it fails.

use std::net::Ipv4Addr;

use outbox::sink::SinkError;
use serde_json::{Value, json};
use servers::{Access, Kafka};

use super::{Login, Relay, Topic, broker, config};
use crate::certificate::certificate;
use crate::common::{order, send_one, send_until_confirmed, sink};
use crate::endpoint::{Answer, Endpoint};

/// The configuration with these settings besides.
fn with(mut config: Value, more: Value) -> Value {
    config.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    config
}

/// Why a sink is down.
async fn down(config: Value) -> String {
    match send_one(&*sink(config), order(1)).await {
        Err(SinkError::Down { reason, .. }) => reason,
        other => panic!("the sink is down: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_admitted_only_with_the_right_password() {
    let (user, password) = ("app", "s3cret");
    for login in [Login::Plain { user, password }, Login::Scram256 { user, password }, Login::Scram512 { user, password }] {
        let (topic, mechanism) = (Topic::make().await, login.mechanism());
        let relay = Relay::guarded(broker(), login).await;
        let config = |password: &str| {
            let more = json!({"mechanism": mechanism, "user": user, "password": password});
            with(config(&relay.brokers(), &topic), more)
        };

        assert_eq!(send_one(&*sink(config(password)), order(7)).await, Ok(()), "{mechanism}");
        let reason = down(config("wr0ng")).await;

        assert!(
            reason.contains("SaslAuthenticationFailed - unknown user or password") && !reason.contains("wr0ng"),
            "{reason}"
        );
        assert!(reason.starts_with(&format!("Kafka at {} cannot be connected to: ", relay.brokers())), "{reason}");
        assert_eq!(topic.payloads().await, ["7"], "{mechanism}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_mechanism_is_scram_with_sha_512() {
    let (user, password) = ("app", "s3cret");
    let (topic, relay) = (Topic::make().await, Relay::guarded(broker(), Login::Scram512 { user, password }).await);
    let config = with(config(&relay.brokers(), &topic), json!({"user": user, "password": password}));
    assert_eq!(send_one(&*sink(config), order(7)).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsupported_mechanism_is_reported_with_the_supported_ones() {
    let (topic, relay) = (Topic::make().await, Relay::guarded(broker(), Login::Plain { user: "a", password: "b" }).await);
    let reason = down(with(config(&relay.brokers(), &topic), json!({"user": "a", "password": "b"}))).await;
    assert!(reason.contains(r#"UnsupportedSaslMechanism. Broker supports: ["PLAIN"]"#), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tansu_itself_refuses_an_unknown_user() {
    let topic = Topic::make().await;
    let guarded = tokio::task::block_in_place(|| Kafka::start(Access::Authenticated).expect("it starts"));
    let brokers = format!("{}:{}", Ipv4Addr::LOCALHOST, guarded.port());
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let more = json!({"mechanism": mechanism, "user": "app", "password": "s3cret"});
        let reason = down(with(config(&brokers, &topic), more)).await;
        assert!(reason.ends_with("SCRAM server error: unknown-user") && !reason.contains("s3cret"), "{reason}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_read_as_soon_as_its_file_exists() {
    let (topic, directory) = (Topic::make().await, tempfile::tempdir().expect("made"));
    let file = directory.path().join("token");
    let relay = Relay::guarded(broker(), Login::Bearer { token: "t0ken".to_owned() }).await;
    let config = with(config(&relay.brokers(), &topic), json!({"mechanism": "OAUTHBEARER", "token_file": file}));
    let sink = sink(config);

    let missing = send_one(&*sink, order(7)).await;
    std::fs::write(&file, "t0ken\n").expect("written");
    send_until_confirmed(&*sink, order(7)).await;

    let expected = format!("token_file {} cannot be read: No such file", file.display());
    assert!(matches!(&missing, Err(SinkError::Down { reason, .. }) if reason.contains(&expected)), "{missing:?}");
    assert_eq!(topic.payloads().await, ["7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_reported_without_repeating_it() {
    let (topic, directory) = (Topic::make().await, tempfile::tempdir().expect("made"));
    let file = directory.path().join("token");
    std::fs::write(&file, "0ld").expect("written");
    let relay = Relay::guarded(broker(), Login::Bearer { token: "t0ken".to_owned() }).await;
    let more = json!({"mechanism": "OAUTHBEARER", "token_file": file});
    let reason = down(with(config(&relay.brokers(), &topic), more)).await;
    assert!(reason.contains("unknown user or password") && !reason.contains("0ld"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_fetched_from_the_token_endpoint_with_the_client_secret() {
    let body = r#"{"access_token":"t0ken","token_type":"Bearer","expires_in":3600}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let endpoint = Endpoint::encrypted(Answer::Says(Box::leak(answer.into_boxed_str()))).await;
    let topic = Topic::make().await;
    let relay = Relay::guarded_and_encrypted(broker(), Login::Bearer { token: "t0ken".to_owned() }).await;
    let more = json!({
        "mechanism": "OAUTHBEARER", "token_url": endpoint.url(), "token_scope": "kafka", "user": "app", "password": "s3cret",
        "ca_file": certificate().authority,
    });

    assert_eq!(send_one(&*sink(with(config(&relay.brokers(), &topic), more)), order(7)).await, Ok(()));

    let request = &endpoint.requests()[0];
    assert_eq!(request.header("authorization"), Some("Basic YXBwOnMzY3JldA=="));
    let form = String::from_utf8_lossy(&request.body).into_owned();
    assert!(form.contains("grant_type=client_credentials") && form.contains("scope=kafka"), "{form}");
    assert_eq!(topic.payloads().await, ["7"]);
}
