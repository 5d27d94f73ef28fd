//! Webhooks, against an endpoint that answers as it is told.

use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use outbox::sink::SinkError;
use serde_json::{Value, json};
use support::eventually;
use tokio::net::TcpListener;

use crate::common::{order, send_one, send_until_confirmed, sink, sinks};
use crate::endpoint::{Answer, Endpoint, OK, Request};

fn config(url: &str) -> Value {
    json!({"kind": "http", "url": url, "timeout": "2s"})
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLDER: &str = "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo=";

/// The signature of a request, computed here from what arrived.
fn signature(secret: &str, request: &Request) -> String {
    let key = data_encoding::BASE64.decode(secret.trim_start_matches("whsec_").as_bytes()).expect("base64");
    let mut code = Hmac::<sha2::Sha256>::new_from_slice(&key).expect("any length");
    let (id, time) = (request.header("webhook-id").expect("an id"), request.header("webhook-timestamp").expect("a time"));
    code.update(format!("{id}.{time}.").as_bytes());
    code.update(&request.body);
    format!("v1,{}", data_encoding::BASE64.encode(&code.finalize().into_bytes()))
}

#[tokio::test]
async fn a_webhook_is_signed_by_every_key_over_what_arrived() {
    let endpoint = Endpoint::that(OK).await;
    let mut config = config(&endpoint.url());
    config["secrets"] = json!([SECRET, OLDER]);
    let message = order(7);
    assert_eq!(send_one(&*sink(config), message.clone()).await, Ok(()));
    let request = endpoint.requests().remove(0);
    assert_eq!((request.body.as_slice(), request.path()), (&b"7"[..], "/hooks"));
    let both = format!("{} {}", signature(SECRET, &request), signature(OLDER, &request));
    assert_eq!(request.header("webhook-signature"), Some(both.as_str()));
    assert_eq!(request.header("webhook-id"), Some(message.id.as_str()));
    assert_eq!(request.header("idempotency-key"), Some(message.id.as_str()));
    assert_eq!(request.header("event-id"), Some(message.event_id.to_string().as_str()));
    let sent: i64 = request.header("webhook-timestamp").expect("a time").parse().expect("seconds");
    assert!(sent > 1_700_000_000, "{sent}");
}

#[test]
fn the_signature_of_this_test_is_that_of_the_published_vector() {
    let head =
        "POST / HTTP/1.1\r\nwebhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek\r\nwebhook-timestamp: 1614265330\r\n\r\n".to_owned();
    let request = Request { head, body: br#"{"test": 2432232314}"#.to_vec(), connection: 0 };
    assert_eq!(signature(SECRET, &request), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[tokio::test]
async fn a_structured_cloud_event_holds_the_body() {
    let endpoint = Endpoint::that(OK).await;
    let mut config = config(&endpoint.url());
    config["format"] = json!("cloudevents-structured");
    assert_eq!(send_one(&*sink(config), order(7)).await, Ok(()));
    let request = endpoint.requests().remove(0);
    let event: Value = serde_json::from_slice(&request.body).expect("JSON");
    assert_eq!((&event["data"], &event["type"], &event["subject"]), (&json!(7), &json!("OrderPlaced"), &json!("7")));
    assert_eq!(request.header("content-type"), Some("application/cloudevents+json; charset=utf-8"));
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let endpoint = Endpoint::that(Answer::Says("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")).await;
    let sink = sink(config(&endpoint.url()));
    for number in 0..20 {
        assert_eq!(send_one(&*sink, order(number)).await, Ok(()));
    }
    assert!(endpoint.requests().iter().all(|request| request.connection == 0));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Endpoint::that(OK).await;
    let location = format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", target.url());
    let endpoint = Endpoint::that(Answer::Says(Box::leak(location.into_boxed_str()))).await;
    let moved = send_one(&*sink(config(&endpoint.url())), order(1)).await;
    assert!(matches!(&moved, Err(SinkError::Denied { reason }) if reason.contains(&target.url())), "{moved:?}");
    assert_eq!(target.requests().len(), 0);
}

#[tokio::test]
async fn an_endpoint_that_asks_for_later_is_heeded_and_one_that_refuses_is_quoted() {
    let busy = Endpoint::that(Answer::Says("HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n")).await;
    let later = send_one(&*sink(config(&busy.url())), order(1)).await;
    let seven = Some(Duration::from_secs(7));
    assert!(matches!(later, Err(SinkError::Unavailable { retry_after, .. }) if retry_after == seven), "{later:?}");
    let text = "HTTP/1.1 422 No\r\ncontent-length: 13\r\n\r\nno \x1b[2Jbalance";
    let refusing = Endpoint::that(Answer::Says(text)).await;
    let refused = send_one(&*sink(config(&refusing.url())), order(1)).await;
    let is_quoted = |reason: &str| reason.contains("answered 422: no \\u{1b}[2Jbala");
    assert!(matches!(&refused, Err(SinkError::Rejected { reason }) if is_quoted(reason)), "{refused:?}");
}

#[tokio::test]
async fn an_updated_sink_tries_one_message_of_a_receiver_that_rests() {
    let endpoint = Endpoint::that(Answer::Says("HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n")).await;
    let with = |token: &str| {
        let mut config = config(&endpoint.url());
        config["headers"] = json!({"authorization": token});
        config
    };
    let sinks = sinks(with("first"));
    let sink = sinks.get("tested").expect("it is there");
    for number in 0..9 {
        let refused = send_one(&*sink, order(number)).await;
        assert!(matches!(refused, Err(SinkError::Denied { .. })), "it does not rest yet: {refused:?}");
    }
    let refused = send_one(&*sink, order(9)).await;
    assert!(matches!(refused, Err(SinkError::Down { .. })), "it rests: {refused:?}");

    let changed = serde_json::from_value(with("second")).expect("a good configuration");
    sinks.update("tested", &changed).await.expect("good settings");

    eventually("a message is tried", async || {
        let refused = send_one(&*sink, order(10)).await;
        assert!(matches!(refused, Err(SinkError::Down { .. })), "no attempt is counted: {refused:?}");
        endpoint.requests().len() > 10
    })
    .await;
    let requests = endpoint.requests();
    assert_eq!((requests.len(), requests[10].header("authorization")), (11, Some("second")));
}

#[tokio::test]
async fn no_error_repeats_a_secret_of_the_address_whoever_says_it() {
    let echo = "HTTP/1.1 404 No\r\ncontent-length: 48\r\n\r\nCannot POST /hooks/services/T000/B000/s3cr3t-t0k";
    let echoing = Endpoint::that(Answer::Says(echo)).await;
    let address = format!("{}/services/T000/B000/s3cr3t-t0k", echoing.url().trim_end_matches('/'));
    let refused = send_one(&*sink(config(&address)), order(1)).await.expect_err("it is refused");
    assert!(refused.to_string().ends_with("answered 404: Cannot POST ***"), "{refused}");
    assert!(!refused.to_string().contains("s3cr3t"), "{refused}");
}

#[tokio::test]
async fn a_body_without_end_holds_nobody_up() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let endless = Endpoint::that(Answer::Endless(head)).await;
    assert_eq!(send_one(&*sink(config(&endless.url())), order(1)).await, Ok(()), "its status says that it was taken");
    let head = "HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n";
    let failing = Endpoint::that(Answer::Endless(head)).await;
    let failed = send_one(&*sink(config(&failing.url())), order(1)).await;
    assert!(matches!(failed, Err(SinkError::Failed { .. })), "{failed:?}");
}

#[tokio::test]
async fn a_body_that_outlasts_the_timeout_takes_no_confirmation_back() {
    let endless = Endpoint::that(Answer::Endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")).await;
    let mut config = config(&endless.url());
    // Shorter than the time that a body may take.
    config["timeout"] = json!("100ms");
    send_until_confirmed(&*sink(config), order(1)).await;
}

#[tokio::test]
async fn an_endpoint_that_says_nothing_fails_its_own_message_within_the_timeout() {
    let silent = Endpoint::that(Answer::Silent).await;
    let started = Instant::now();
    let late = send_one(&*sink(config(&silent.url())), order(1)).await;
    assert!(matches!(&late, Err(SinkError::Unavailable { reason, .. }) if reason.contains("within 2s")), "{late:?}");
    assert!(started.elapsed() < support::PATIENCE);
    let closing = Endpoint::that(Answer::Closes).await;
    let cut = send_one(&*sink(config(&closing.url())), order(1)).await;
    assert!(matches!(cut, Err(SinkError::Unavailable { .. })), "{cut:?}");
}

#[tokio::test]
async fn an_endpoint_where_nobody_listens_is_down_and_works_again_when_somebody_does() {
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = port.local_addr().expect("bound");
    drop(port);
    let sink = sink(config(&format!("http://{address}/hooks")));
    let down = send_one(&*sink, order(1)).await;
    assert!(matches!(down, Err(SinkError::Down { .. })), "{down:?}");
    let endpoint = Endpoint::on(TcpListener::bind(address).await.expect("still free"), OK);
    eventually("it is confirmed", async || send_one(&*sink, order(1)).await.is_ok()).await;
    assert_eq!(endpoint.requests().len(), 1);
}

#[tokio::test]
async fn no_more_requests_are_on_their_way_than_allowed() {
    let silent = Endpoint::that(Answer::Silent).await;
    let mut config = config(&silent.url());
    config["max_in_flight"] = json!(3);
    let messages: Vec<_> = (0..20).map(order).collect();
    let answers = sink(config).send(&messages).await;
    assert!(answers.iter().all(Result::is_err));
    let waited = |answer: &&Result<(), SinkError>| matches!(answer, Err(SinkError::Crowded { .. }));
    assert!(answers.iter().filter(waited).count() >= 14, "what had no turn comes again, and costs no attempt: {answers:?}");
    assert!(silent.requests().len() <= 6, "three, and three more when those were given up: {}", silent.requests().len());
}
