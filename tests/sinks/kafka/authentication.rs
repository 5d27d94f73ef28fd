//! Authentication by SASL, and the reasons that an operator reads if it fails.

use data_encoding::BASE64URL_NOPAD;
use outbox::sink::SinkError;
use serde_json::{Value, json};

use super::gate::{PASSWORD, USER};
use super::{Gate, Tls, Topic, config};
use crate::certificate::certificate;
use crate::common::{order, send_one, send_until_confirmed, sink};
use crate::endpoint::{Answer, Endpoint};

/// The first second of the year 2100, in Unix time.
const IN_2100: u64 = 4_102_444_800;

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

/// A JSON web token of the user. A gate admits the algorithm `none` alone, since it knows no keys.
fn token(algorithm: &str) -> String {
    let parts = [json!({"alg": algorithm}), json!({"sub": USER, "exp": IN_2100})];
    let [header, claims] = parts.map(|part| BASE64URL_NOPAD.encode(part.to_string().as_bytes()));
    format!("{header}.{claims}.")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_admitted_only_with_the_right_password() {
    for (mechanism, refusal) in [
        ("PLAIN", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-256", "invalid credentials with SASL mechanism SCRAM-SHA-256"),
        ("SCRAM-SHA-512", "invalid credentials with SASL mechanism SCRAM-SHA-512"),
    ] {
        let (topic, gate) = (Topic::make().await, Gate::open(Tls::Server, Some(mechanism)).await);
        let config = |user: &str, password: &str| {
            let more = json!({
                "mechanism": mechanism, "user": user, "password": password, "ca_file": certificate().authority,
            });
            with(config(&gate.brokers(), &topic), more)
        };

        assert_eq!(send_one(&*sink(config(USER, PASSWORD)), order(7)).await, Ok(()), "{mechanism}");
        for (user, password) in [(USER, "wr0ng"), ("another", PASSWORD)] {
            let reason = down(config(user, password)).await;
            assert!(reason.contains(refusal) && !reason.contains(password), "{reason}");
            assert!(reason.starts_with(&format!("Kafka at {} cannot be connected to: ", gate.brokers())), "{reason}");
        }
        assert_eq!(topic.payloads().await, ["7"], "{mechanism}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_mechanism_is_scram_with_sha_512() {
    let (topic, gate) = (Topic::make().await, Gate::open(Tls::None, Some("SCRAM-SHA-512")).await);
    let config = with(config(&gate.brokers(), &topic), json!({"user": USER, "password": PASSWORD}));
    assert_eq!(send_one(&*sink(config), order(7)).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unsupported_mechanism_is_reported_with_the_supported_ones() {
    let (topic, gate) = (Topic::make().await, Gate::open(Tls::None, Some("PLAIN")).await);
    let reason = down(with(config(&gate.brokers(), &topic), json!({"user": USER, "password": PASSWORD}))).await;
    assert!(reason.contains(r#"UnsupportedSaslMechanism. Broker supports: ["PLAIN"]"#), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_read_as_soon_as_its_file_exists() {
    let (topic, directory) = (Topic::make().await, tempfile::tempdir().expect("made"));
    let file = directory.path().join("token");
    let gate = Gate::open(Tls::None, Some("OAUTHBEARER")).await;
    let config = with(config(&gate.brokers(), &topic), json!({"mechanism": "OAUTHBEARER", "token_file": file}));
    let sink = sink(config);

    let missing = send_one(&*sink, order(7)).await;
    std::fs::write(&file, token("none") + "\n").expect("written");
    send_until_confirmed(&*sink, order(7)).await;

    let expected = format!("token_file {} cannot be read: No such file", file.display());
    assert!(matches!(&missing, Err(SinkError::Down { reason, .. }) if reason.contains(&expected)), "{missing:?}");
    assert_eq!(topic.payloads().await, ["7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_reported_without_repeating_it() {
    let (topic, directory) = (Topic::make().await, tempfile::tempdir().expect("made"));
    let file = directory.path().join("token");
    let signed = token("RS256") + "c2lnbmF0dXJl";
    std::fs::write(&file, &signed).expect("written");
    let gate = Gate::open(Tls::None, Some("OAUTHBEARER")).await;
    let more = json!({"mechanism": "OAUTHBEARER", "token_file": file});
    let reason = down(with(config(&gate.brokers(), &topic), more)).await;
    assert!(reason.ends_with(r#"authentication failed: {"status":"invalid_token"}"#) && !reason.contains(&signed), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_fetched_from_the_token_endpoint_with_the_client_secret() {
    let body = json!({"access_token": token("none"), "token_type": "Bearer", "expires_in": 3_600}).to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let endpoint = Endpoint::encrypted(Answer::Says(Box::leak(answer.into_boxed_str()))).await;
    let topic = Topic::make().await;
    let gate = Gate::open(Tls::Server, Some("OAUTHBEARER")).await;
    let more = json!({
        "mechanism": "OAUTHBEARER", "token_url": endpoint.url(), "token_scope": "kafka", "user": USER, "password": PASSWORD,
        "ca_file": certificate().authority,
    });

    assert_eq!(send_one(&*sink(with(config(&gate.brokers(), &topic), more)), order(7)).await, Ok(()));

    let request = &endpoint.requests()[0];
    assert_eq!(request.header("authorization"), Some("Basic YXBwOnMzY3JldA=="));
    let form = String::from_utf8_lossy(&request.body).into_owned();
    assert!(form.contains("grant_type=client_credentials") && form.contains("scope=kafka"), "{form}");
    assert_eq!(topic.payloads().await, ["7"]);
}
