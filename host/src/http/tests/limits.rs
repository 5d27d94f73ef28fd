//! What is too large, too many or too slow.

use axum::body::Body;
use axum::http::Request;
use tower_service::Service as _;

use super::super::host::Host;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_a_payload_or_an_array_that_is_too_large_is_refused_whole() {
    let served = Served::start().await;
    let large = format!(r#"{{"event_type":"X","payload":"{}"}}"#, "a".repeat(3 << 20));
    let answer = served.post("/v1/events", &large).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, "too_large"));

    let payload = format!(r#"{{"event_type":"X","payload":"{}"}}"#, "a".repeat(1 << 20));
    let answer = served.post("/v1/events", &payload).await;
    assert_eq!((answer.status, &answer.json()["errors"][0]["field"]), (413, &Value::from("payload")));

    let many = format!("[{}]", vec!["{}"; 100_000].join(","));
    let answer = served.post("/v1/events", &many).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, "too_large"));
    assert!(answer.text.contains("100000 events; at most 1000"), "{}", answer.text);
    assert_eq!(served.get("/v1/events").await.json()["events"], Value::Array(Vec::new()));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_or_headers_that_do_not_come_end_the_request() {
    let short = Duration::from_millis(200);
    let served = Served::with(HttpConfig { body_timeout: short, header_timeout: short, ..HttpConfig::default() }).await;

    let mut slow = served.connect().await;
    let head = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let answer = Answer::read(&mut slow).await;
    assert_eq!((answer.status, answer.problem().as_str()), (408, "body_timeout"));

    let mut form = served.connect().await;
    form.write_all(b"POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\nt")
        .await
        .unwrap();
    assert_eq!(Answer::read(&mut form).await.status, 408, "a form of the pages likewise");

    let mut loris = served.connect().await;
    loris.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-A").await.unwrap();
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, loris.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "a connection whose headers never end is closed");
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_wait_until_one_closes() {
    let served = Served::with(HttpConfig { max_connections: 1, ..HttpConfig::default() }).await;
    let mut held = served.connect().await;
    held.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 15];
    held.read_exact(&mut first).await.expect("the first is served");

    let mut waits = served.connect().await;
    waits.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut byte = [0; 1];
    assert!(tokio::time::timeout(Duration::from_millis(200), waits.peek(&mut byte)).await.is_err(), "the second waits");

    drop(held);
    assert_eq!(Answer::read(&mut waits).await.status, 200);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_tells_the_counts_has_a_limit_and_ends_with_the_server() {
    let served = Served::with(HttpConfig { max_streams: 1, ..HttpConfig::default() }).await;
    let mut follower = served.connect().await;
    follower.write_all(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut told = String::new();
    while !told.contains("\n\n") {
        let mut bytes = [0; 4_096];
        let length = tokio::time::timeout(PATIENCE, follower.read(&mut bytes)).await.expect("an event comes").unwrap();
        assert!(length > 0, "the stream goes on: {told}");
        told.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    assert!(told.contains("text/event-stream") && told.contains("event: stats"), "{told}");
    assert!(told.contains("\"in_flight_here\":0") && told.contains("\"mode\":\"single_node\""), "{told}");

    let second = served.get("/v1/stream").await;
    assert_eq!((second.status, second.problem().as_str(), second.header("retry-after")), (503, "busy", "1"));
    served.server.shutdown().await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, follower.read_to_end(&mut rest)).await.expect("the stream ends");
    served.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_looks_into_the_database_beside_others_waits_and_probes_do_not() {
    let served = Served::start().await;
    let host = Host::new(&served.outbox, HttpConfig { open: true, ..HttpConfig::default() });
    let status = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        super::super::of(host.clone()).call(request).await.expect("a router never fails").status().as_u16()
    };
    let held = (host.look_place().await.expect("free"), host.look_place().await.expect("free"));

    assert_eq!(status("/v1/events").await, 503, "statements of clients that went away count as well");
    assert_eq!(status("/events").await, 503);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(status(path).await, 200, "{path}");
    }

    drop(held);
    assert_eq!(status("/v1/events").await, 200);
    served.stop().await;
}
