//! `GET /v1/events/{id}/why`.

use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_event_says_why_and_what_can_be_done_and_shows_no_payload() {
    let (served, [viewer, ..]) = Served::with_tokens().await;
    let envelope = outbox_event::Envelope::new("Broken").aggregate("Order", "42").id("one".parse().expect("an id"));
    let envelope = envelope.json(&"the secret").expect("valid");
    served.outbox.writer().emit(vec![envelope]).await.expect("written");
    let bearer = format!("Authorization: Bearer {viewer}\r\n");
    let looking = async {
        while served.send("GET /v1/events/one", &bearer, b"").await.json()["status"] != "DEAD" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("it dies");

    let why = served.send("GET /v1/events/one/why", &bearer, b"").await;

    assert_eq!(why.status, 200, "{}", why.text);
    assert!(!why.text.contains("the secret"), "{}", why.text);
    let page = why.json();
    assert_eq!((&page["status"], &page["state"], &page["reason"]), (&json!("DEAD"), &json!("dead"), &json!("given_up")));
    assert!(page["sentence"].as_str().is_some_and(|said| said.contains("it is broken")), "{page}");
    assert_eq!(page["next_at"], Value::Null);
    let actions: Vec<_> = page["actions"].as_array().unwrap().iter().map(|action| &action["request"]).collect();
    assert_eq!(actions, [&json!("POST /v1/dead/one/replay"), &json!("POST /v1/dead/one/discard")]);
    assert_eq!(page["actions"][0]["command"], "outbox dead replay one");
    assert_eq!(served.send("GET /v1/events/nobody/why", &bearer, b"").await.problem(), "not_found");
    assert_eq!(served.send("GET /v1/events/one/why?x=1", &bearer, b"").await.status, 422);
    assert_eq!(served.get("/v1/events/one/why").await.status, 401, "not without a token");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_under_a_paused_pattern_names_the_pattern_and_the_request_that_ends_the_pause() {
    let served = Served::start().await;
    assert_eq!(served.post("/v1/routes/Order/*/pause", r#"{"reason":"the bank moves"}"#).await.status, 200);
    let body = r#"{"event_id":"one","event_type":"OrderPlaced","aggregate_type":"Order","payload":1,"deliver_after":"1h"}"#;
    assert_eq!(served.post("/v1/events", body).await.status, 201);

    let page = served.get("/v1/events/one/why").await.json();

    assert_eq!((&page["state"], &page["reason"]), (&json!("paused"), &json!("pattern_paused")));
    assert!(
        page["sentence"].as_str().is_some_and(|said| said.contains("the pattern Order/*") && said.contains("the bank moves"))
    );
    let resume = page["actions"][0]["request"].as_str().expect("a request").to_owned();
    assert_eq!(served.post(resume.strip_prefix("POST ").expect("a POST"), "{}").await.status, 200);
    let page = served.get("/v1/events/one/why").await.json();
    assert_eq!((&page["state"], &page["reason"]), (&json!("delayed"), &json!("delayed_by_writer")));
    assert!(page["next_at"].is_string(), "{page}");
    served.stop().await;
}
