//! What watches a host.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_are_served_in_the_format_of_prometheus_and_count_what_was_written_over_http() {
    let served = Served::start().await;
    let event = r#"{"event_id":"01J00000000000000000000001","event_type":"OrderPlaced","aggregate_type":"Order","payload":1}"#;
    assert_eq!(served.post("/v1/events", event).await.status, 201);
    served.wait_for("01J00000000000000000000001", "DONE").await;

    let answer = served.get("/metrics").await;

    assert_eq!((answer.status, answer.header("content-type")), (200, outbox::metrics::CONTENT_TYPE));
    assert!(answer.text.lines().any(|line| line == "outbox_events_written_total 1"), "{}", answer.text);
    assert_eq!(served.get("/metrics?x=1").await.status, 422);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_is_ready_until_it_stops_and_tells_why_it_is_not_to_whoever_may_look() {
    let (served, [viewer, ..]) = Served::with_tokens().await;
    let token = format!("Authorization: Bearer {viewer}\r\n");
    let ready = served.get("/readyz").await;
    assert_eq!((ready.status, ready.json()), (200, serde_json::json!({"ready": true, "reasons": []})));

    served.outbox.clone().shutdown().await;

    let stranger = served.get("/readyz").await;
    assert_eq!(
        (stranger.status, stranger.json()),
        (503, serde_json::json!({"ready": false, "reasons": [{"code": "stopping"}]}))
    );
    let known = served.send("GET /readyz", &token, b"").await;
    assert_eq!((known.status, &known.json()["reasons"][0]["message"]), (503, &Value::from("the host stops")));
    assert_eq!(known.json()["stalled"], serde_json::json!([]));
    assert_eq!(known.json()["sinks_down"], serde_json::json!([]));
    served.server.shutdown().await;
}
