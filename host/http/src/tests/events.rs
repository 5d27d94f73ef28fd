//! Writing events.

use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_written_and_delivered_and_the_same_id_again_is_a_duplicate() {
    let served = Served::start().await;
    let body = r#"{"event_id":"e-1","event_type":"OrderPlaced","aggregate_type":"Order","aggregate_id":"42","headers":{"k":"v"},"payload":{"b":1.10,  "a":[]}}"#;

    let first = served.post("/v1/events", body).await;
    let second = served.post("/v1/events", body).await;

    assert_eq!((first.status, first.json()), (201, json!({"ids":["e-1"],"event_id":"e-1","duplicate":false,"duplicates":[]})));
    assert_eq!(
        (second.status, second.json()),
        (200, json!({"ids":["e-1"],"event_id":"e-1","duplicate":true,"duplicates":["e-1"]}))
    );
    served.wait_for("e-1", "DONE").await;
    let whole = served.get("/v1/events/e-1").await;
    assert!(whole.text.contains(r#""payload":{"b":1.10,  "a":[]}"#), "the bytes are those that were written: {}", whole.text);
    assert_eq!((&whole.json()["headers"]["k"], &whole.json()["aggregate_id"]), (&json!("v"), &json!("42")));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_written_once_however_often_it_is_sent_and_ids_keep_their_order() {
    let served = Served::start().await;
    let event = |id: &str| json!({"event_id": id, "event_type": "OrderPlaced", "aggregate_type": "Order", "payload": id});
    let batch = json!([event("b"), event("a"), event("b")]).to_string();

    let first = served.post("/v1/events", &batch).await;
    let second = served.post("/v1/events", &batch).await;
    let mixed = served.post("/v1/events", &json!([event("a"), event("c")]).to_string()).await;

    assert_eq!((first.status, first.json()), (201, json!({"ids":["b","a","b"],"duplicate":false,"duplicates":["b"]})));
    assert_eq!((second.status, &second.json()["duplicate"]), (200, &json!(true)));
    assert_eq!((mixed.status, mixed.json()), (201, json!({"ids":["a","c"],"duplicate":false,"duplicates":["a"]})));
    let listed = served.get("/v1/events").await.json();
    let payloads: Vec<&str> =
        listed["events"].as_array().unwrap().iter().map(|row| row["event_id"].as_str().unwrap()).collect();
    assert_eq!(payloads, ["b", "a", "c"]);
    assert_eq!(served.post("/v1/events", "[]").await.status, 200);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloud_events_are_taken_structured_in_batches_and_in_binary_mode() {
    let served = Served::start().await;
    let event = json!({
        "specversion": "1.0", "id": "6f9619ff-8b86-4011-b42d-00cf4fc964f1", "source": "/shop", "type": "OrderPlaced", "subject": "42", "time": "2026-11-21T08:00:00Z",
        "aggregatetype": "Order", "tenantid": "t", "sampled": true, "data": {"total": 7}
    });
    let structured = "Content-Type: application/cloudevents+json; charset=utf-8\r\n";
    let answer = served.send("POST /v1/events", structured, event.to_string().as_bytes()).await;
    assert_eq!(
        (answer.status, &answer.json()["event_id"]),
        (201, &json!("6f9619ff-8b86-4011-b42d-00cf4fc964f1")),
        "{}",
        answer.text
    );
    let row = served.get("/v1/events/6f9619ff-8b86-4011-b42d-00cf4fc964f1").await.json();
    assert_eq!(row["payload"], json!({"total": 7}));
    assert_eq!(row["headers"], json!({"ce-sampled": "true", "ce-source": "/shop"}));
    for (column, value) in
        [("aggregate_type", "Order"), ("aggregate_id", "42"), ("tenant_id", "t"), ("event_type", "OrderPlaced")]
    {
        assert_eq!(row[column], value, "{column}");
    }
    assert_eq!(row["occurred_at"], "2026-11-21T08:00:00.000000Z");

    let text = json!({"specversion":"1.0","id":"6f9619ff-8b86-4011-b42d-00cf4fc964f2","source":"s","type":"X","datacontenttype":"text/plain","data":"a\nb"});
    let bytes = json!({"specversion":"1.0","id":"6f9619ff-8b86-4011-b42d-00cf4fc964f3","source":"s","type":"X","datacontenttype":"application/x-protobuf","data_base64":"AAEC"});
    let batch = "Content-Type: application/cloudevents-batch+json\r\n";
    let answer = served.send("POST /v1/events", batch, json!([text, bytes]).to_string().as_bytes()).await;
    assert_eq!(
        (answer.status, &answer.json()["ids"]),
        (201, &json!(["6f9619ff-8b86-4011-b42d-00cf4fc964f2", "6f9619ff-8b86-4011-b42d-00cf4fc964f3"])),
        "{}",
        answer.text
    );
    assert_eq!(served.get("/v1/events/6f9619ff-8b86-4011-b42d-00cf4fc964f2").await.json()["payload"], "a\nb");
    assert_eq!(served.get("/v1/events/6f9619ff-8b86-4011-b42d-00cf4fc964f3").await.json()["payload_base64"], "AAEC");

    let binary = "ce-specversion: 1.0\r\nce-id: 6f9619ff-8b86-4011-b42d-00cf4fc964f4\r\nce-source: /shop\r\nce-type: X\r\nce-subject: M%C3%BCller\r\nContent-Type: image/png\r\n";
    let answer = served.send("POST /v1/events", binary, &[0xff, 0, 1]).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let row = served.get("/v1/events/6f9619ff-8b86-4011-b42d-00cf4fc964f4").await.json();
    assert_eq!((&row["aggregate_id"], &row["payload_base64"]), (&json!("Müller"), &json!("/wAB")));

    for name in ["id", "source", "type", "subject", "traceparent"] {
        let mut wrong = json!({ "specversion": "1.0", "id": "6f9619ff-8b86-4011-b42d-00cf4fc964f5", "source": "/shop", "type": "X", "data": 1 });
        wrong[name] = json!(false);
        let answer = served.send("POST /v1/events", structured, wrong.to_string().as_bytes()).await;
        assert_eq!((answer.status, &answer.json()["errors"][0]["field"]), (422, &json!(name)), "{}", answer.text);
    }
    served.stop().await;
}

/// Sends a CloudEvent.
async fn cloud_event(served: &Served, event: &serde_json::Value) -> Answer {
    served.send("POST /v1/events", "Content-Type: application/cloudevents+json\r\n", event.to_string().as_bytes()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sources_may_use_one_id_and_a_repeat_of_either_is_a_duplicate() {
    let served = Served::start().await;
    let of =
        |source: &str, data: u32| json!({"specversion": "1.0", "id": "1", "source": source, "type": "X", "data": {"of": data}});
    let mut ids = Vec::new();
    for event in [of("/a", 1), of("/b", 2)] {
        let first = cloud_event(&served, &event).await;
        assert_eq!((first.status, &first.json()["duplicate"]), (201, &json!(false)), "{}", first.text);
        let id = first.json()["event_id"].as_str().expect("an id").to_owned();
        let row = served.get(&format!("/v1/events/{id}")).await.json();
        assert_eq!((&row["payload"], &row["headers"]), (&event["data"], &json!({"ce-id": "1", "ce-source": event["source"]})));
        let again = cloud_event(&served, &event).await;
        assert_eq!((again.status, &again.json()["duplicate"]), (200, &json!(true)), "{}", again.text);
        assert_eq!(again.json()["event_id"], json!(id));
        ids.push(id);
    }

    let batch = json!([of("/c", 3), of("/b", 2), of("/a", 1), of("/c", 3), of("/d", 4)]).to_string();
    let headers = "Content-Type: application/cloudevents-batch+json\r\n";
    let (batched, again) = (
        served.send("POST /v1/events", headers, batch.as_bytes()).await.json(),
        served.send("POST /v1/events", headers, batch.as_bytes()).await,
    );
    assert_eq!(batched["duplicates"].as_array().map(Vec::len), Some(3), "{batched}");
    assert_eq!((&batched["ids"][1], &batched["ids"][2]), (&json!(ids[1]), &json!(ids[0])));
    assert_eq!(batched["ids"][3], batched["ids"][0]);
    assert_eq!((again.status, &again.json()["ids"]), (200, &batched["ids"]), "{}", again.text);
    assert_eq!(served.get("/v1/events").await.json()["events"].as_array().map(Vec::len), Some(4));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_is_unique_by_itself_stays_and_one_of_any_form_is_taken() {
    let served = Served::start().await;
    let long = "orders/2026-11-21/".repeat(10);
    for (id, stays) in
        [("6F9619FF-8b86-4011-b42d-00cf4fc964f1", true), ("01J9ZC4M1T2V3W4X5Y6Z7A8B9C", true), (&long, false), ("A-1 ü", false)]
    {
        let event = json!({"specversion": "1.0", "id": id, "source": "/a", "type": "X", "data": 1});
        let answer = cloud_event(&served, &event).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let kept = answer.json()["event_id"].as_str().expect("an id").to_owned();
        assert_eq!(kept == id, stays, "{kept}");
        let headers = &served.get(&format!("/v1/events/{kept}")).await.json()["headers"];
        assert_eq!(headers.get("ce-id"), (!stays).then_some(&json!(id)), "{headers}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_with_a_parameter_in_its_address_is_refused_and_nothing_is_done() {
    let served = Served::start().await;
    let event = r#"{"event_id": "kept", "event_type": "X", "payload": 1}"#;
    for path in ["/v1/dead/any/discard?dry_run=true", "/v1/purge?older_than=1s", "/v1/events?dry_run=true"] {
        let answer = served.post(path, if path.starts_with("/v1/events") { event } else { "" }).await;
        assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid"), "{path}: {}", answer.text);
        assert!(answer.text.contains("body"), "{}", answer.text);
    }
    assert_eq!(served.get("/v1/events/kept").await.status, 404);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_an_event_is_told_by_element_and_field_and_nothing_is_written() {
    let served = Served::start().await;
    let wrong = [
        (r#"{"event_type":"X","payload":1,"typ":2}"#, "typ"),
        (r#"{"payload":1}"#, "event_type"),
        (r#"{"event_type":7,"payload":1}"#, "event_type"),
        (r#"{"event_type":"X"}"#, "payload"),
        (r#"{"event_type":"X","payload":1,"occurred_at":"tomorrow"}"#, "occurred_at"),
        (r#"{"event_type":"X","payload":1,"deliver_after":"soon"}"#, "deliver_after"),
        (r#"{"event_type":"X","payload":1,"event_id":"a b"}"#, "event_id"),
        (r#"{"event_type":"X","payload":1,"headers":{"x":"a\r\nset-cookie: b"}}"#, "headers"),
        (r#"{"event_type":"X","payload":1,"headers":{"x":1}}"#, "headers.x"),
        (r#"{"event_type":"X","payload":1,"payload_base64":"AAEC"}"#, "payload"),
        (r#""text""#, "body"),
    ];
    for (body, field) in wrong {
        let answer = served.post("/v1/events", body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid"), "{body}: {}", answer.text);
        assert_eq!(answer.json()["errors"][0]["field"], field, "{body}: {}", answer.text);
    }
    let good = r#"{"event_type":"X","payload":1}"#;
    let answer = served.post("/v1/events", &format!("[{good},{},{good},{}]", wrong[0].0, wrong[1].0)).await;
    let errors = answer.json()["errors"].clone();
    assert_eq!((answer.status, &errors[0]["index"], &errors[1]["index"]), (422, &json!(1), &json!(3)), "{errors}");

    let cloud = "Content-Type: application/cloudevents+json\r\n";
    for (body, field) in [
        (r#"{"specversion":"0.3","id":"a","source":"s","type":"X"}"#, "specversion"),
        (r#"{"specversion":"1.0","source":"s","type":"X"}"#, "id"),
        (r#"{"specversion":"1.0","id":"a","type":"X"}"#, "source"),
        (r#"{"specversion":"1.0","id":"a","source":"s","type":"X","data":1,"data_base64":"AA=="}"#, "data"),
        (r#"{"specversion":"1.0","id":"a","source":"s","type":"X","Ext":1}"#, "Ext"),
    ] {
        let answer = served.send("POST /v1/events", cloud, body.as_bytes()).await;
        assert_eq!((answer.status, &answer.json()["errors"][0]["field"]), (422, &json!(field)), "{body}: {}", answer.text);
    }
    assert_eq!(served.get("/v1/stats").await.json()["new"], 0);
    assert_eq!(served.get("/v1/events").await.json(), json!({"events": [], "next": null}));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_no_json_or_of_another_kind_is_refused() {
    let served = Served::start().await;
    for body in ["{", "[{}", "{} {}", "", "nothing"] {
        let answer = served.post("/v1/events", body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed_json"), "{body}: {}", answer.text);
    }
    let answer = served.send("POST /v1/events", "Content-Type: application/json\r\n", b"{\"event_type\":\"\xff\"}").await;
    assert_eq!((answer.status, answer.problem().as_str()), (400, "invalid_utf8"));
    for headers in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: application/json; charset=utf-16\r\n",
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
    ] {
        let answer = served.send("POST /v1/events", headers, br#"{"event_type":"X","payload":1}"#).await;
        assert_eq!((answer.status, answer.problem().as_str()), (415, "unsupported_media_type"), "{headers}");
    }
    assert_eq!(served.get("/v1/stats").await.json()["new"], 0);
    served.stop().await;
}

/// Leaves events of one type out.
struct Censor;

impl outbox::writer::WriterHook for Censor {
    fn before_write(
        &self,
        events: Vec<outbox_event::Envelope>,
    ) -> Result<Vec<outbox_event::Envelope>, outbox::writer::HookError> {
        Ok(events.into_iter().filter(|event| event.event_type().as_str() != "Secret").collect())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_a_hook_leaves_out_is_told_apart_from_one_that_was_written_before() {
    let served = Served::of(HttpConfig::default(), |builder| builder.hook(Censor)).await;
    let secret = r#"{"event_id":"s","event_type":"Secret","payload":1}"#;
    let open = r#"{"event_id":"o","event_type":"OrderPlaced","aggregate_type":"Order","payload":1}"#;

    let one = served.post("/v1/events", secret).await;
    let told = one.json();
    assert_eq!((one.status, &told["suppressed"], &told["duplicate"]), (200, &Value::from(true), &Value::from(false)), "{told}");
    assert_eq!(served.get("/v1/events/s").await.status, 404);

    let both = served.post("/v1/events", &format!("[{secret},{open}]")).await;
    let told = both.json();
    assert_eq!(
        (both.status, &told["suppressed_ids"], &told["duplicates"]),
        (201, &serde_json::json!(["s"]), &serde_json::json!([]))
    );

    let again = served.post("/v1/events", &format!("[{open},{secret}]")).await;
    let told = again.json();
    assert_eq!((again.status, &told["duplicate"], &told["duplicates"]), (200, &Value::from(false), &serde_json::json!(["o"])));
    assert_eq!((&told["suppressed"], &told["suppressed_ids"]), (&Value::from(true), &serde_json::json!(["s"])), "{told}");
    let again = served.post("/v1/events", open).await.json();
    assert_eq!((&again["duplicate"], &again["suppressed"]), (&Value::from(true), &Value::Null), "{again}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_belong_to_the_trace_of_the_request_unless_they_say_so_themselves_or_it_says_nothing_that_can_be_read() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let served = Served::start().await;
    let event =
        |id: &str, headers: serde_json::Value| json!({"event_id": id, "event_type": "X", "headers": headers, "payload": 1});
    let batch = json!([event("a", json!({"k": "v"})), event("b", json!({"traceparent": "its own"}))]).to_string();
    let written = async |traceparent: &str, body: &str| {
        let headers = format!("Content-Type: application/json\r\ntraceparent: {traceparent}\r\n");
        let answer = served.send("POST /v1/events", &headers, body.as_bytes()).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
    };

    written(TRACE, &batch).await;
    written("00-1", &event("c", json!({})).to_string()).await;
    written(&format!("{TRACE}{}", "-x".repeat(1_000)), &event("d", json!({})).to_string()).await;

    let headers = async |id: &str| served.get(&format!("/v1/events/{id}")).await.json()["headers"].clone();
    assert_eq!(headers("a").await, json!({"k": "v", "traceparent": TRACE}));
    assert_eq!(headers("b").await, json!({"traceparent": "its own"}));
    assert_eq!((headers("c").await, headers("d").await), (json!({}), json!({})));
    served.stop().await;
}
