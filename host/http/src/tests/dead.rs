//! What operators do.

use outbox_store::AuditFilter;
use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_events_are_listed_counted_replayed_and_discarded() {
    let served = Served::start().await;
    served.dead(&["d1", "d2", "d3"]).await;
    let listed = served.get("/v1/dead?type=Broken&limit=2").await.json();
    assert_eq!((listed["events"].as_array().unwrap().len(), listed["next"].is_u64()), (2, true));
    assert_eq!(served.get("/v1/dead/count?error=broken&since=1h").await.json(), json!({"count": 3}));
    assert_eq!(served.get("/v1/dead/count?error=other").await.json(), json!({"count": 0}));
    assert_eq!(served.get("/v1/dead/d1").await.json()["payload"]["secret"], "the payload of d1");

    let done = served.post("/v1/dead/d1/discard", r#"{"reason":"a test"}"#).await;
    assert_eq!((done.status, done.json()), (200, json!({"count": 1, "dry_run": false})));
    let again = served.post("/v1/dead/d1/discard", "").await;
    assert_eq!((again.status, again.problem().as_str()), (404, "not_found"));
    assert_eq!(served.post("/v1/dead/d2/replay", "{}").await.status, 200);
    served.wait_for("d2", "DEAD").await;
    assert_eq!(served.get("/v1/events/d2").await.json()["replays"], 1);
    let audit = served.get("/v1/audit?limit=2").await.json();
    assert_eq!(
        (&audit[0]["action"], &audit[1]["action"], &audit[1]["reason"]),
        (&json!("replay"), &json!("discard"), &json!("a test"))
    );
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_not_dead_is_left_alone() {
    let served = Served::start().await;
    let body = r#"{"event_id":"e","event_type":"OrderPlaced","aggregate_type":"Order","payload":1}"#;
    served.post("/v1/events", body).await;
    served.wait_for("e", "DONE").await;
    for what in ["replay", "skip", "discard"] {
        let answer = served.post(&format!("/v1/dead/e/{what}"), "").await;
        assert_eq!((answer.status, answer.problem().as_str()), (409, "wrong_state"), "{what}");
        assert_eq!(served.post(&format!("/v1/dead/none/{what}"), "").await.status, 404, "{what}");
    }
    assert_eq!(served.get("/v1/dead/e").await.problem(), "wrong_state");
    assert_eq!(served.get("/v1/events/e").await.json()["status"], "DONE");
    assert_eq!(served.get("/v1/audit?actor=local").await.json(), json!([]));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_are_replayed_only_when_they_are_as_many_as_expected() {
    let served = Served::start().await;
    served.dead(&["d1", "d2"]).await;
    let dry = served.post("/v1/dead/replay", r#"{"event_type":"Broken","dry_run":true}"#).await;
    let dry = dry.json();
    let dead_before = &dry["dead_before"];
    assert_eq!(dry, json!({"count": 2, "left": 0, "dead_before": dead_before, "dry_run": true}));
    let uncounted = served.post("/v1/dead/replay", r#"{"event_type":"Broken","expected_count":2}"#).await;
    assert_eq!((uncounted.status, &uncounted.json()["errors"][0]["field"]), (422, &json!("dead_before")), "{}", uncounted.text);
    let unsaid = json!({ "event_type": "Broken", "dead_before": dead_before });
    let unsaid = served.post("/v1/dead/replay", &unsaid.to_string()).await;
    assert_eq!((unsaid.status, &unsaid.json()["count"]), (422, &json!(2)));
    let other = json!({ "event_type": "Broken", "dead_before": dead_before, "expected_count": 3 });
    let other = served.post("/v1/dead/replay", &other.to_string()).await;
    assert_eq!((other.status, other.problem().as_str(), &other.json()["count"]), (409, "count_changed", &json!(2)));
    let unknown = served.post("/v1/dead/replay", r#"{"eventtype":"Broken","expected_count":2}"#).await;
    assert_eq!((unknown.status, &unknown.json()["errors"][0]["field"]), (422, &json!("eventtype")), "never all by a slip");
    assert_eq!(served.get("/v1/events/d1").await.json()["replays"], 0);

    let limited = |expected: u64| json!({ "type": "Broken", "since": "1h", "expected_count": expected, "limit": 1, "dead_before": dead_before, "reason": "mended" });
    let part = served.post("/v1/dead/replay", &limited(1).to_string()).await;
    assert_eq!((part.status, &part.json()["count"]), (409, &json!(2)), "a limit does not weaken the check");
    assert!(
        part.json()["detail"].as_str().is_some_and(|detail| detail.starts_with("2 dead events match, not 1")),
        "{}",
        part.text
    );
    let done = served.post("/v1/dead/replay", &limited(2).to_string()).await;
    let answer = json!({"count": 1, "left": 1, "dead_before": dead_before, "dry_run": false});
    assert_eq!((done.status, done.json()), (200, answer), "the oldest first");
    let again = served.post("/v1/dead/replay", &limited(2).to_string()).await;
    assert_eq!((again.status, &again.json()["count"]), (409, &json!(1)), "a request that is sent twice replays nothing more");
    assert_eq!(served.get("/v1/events/d2").await.json()["replays"], 0);
    assert_eq!(served.get("/v1/audit").await.json()[0]["reason"], "mended");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_the_database_refuses_to_replay_are_named() {
    let served = Served::start().await;
    served.dead(&["d1", "d2", "d3"]).await;
    let mut user = served.outbox.begin().await.expect("begins");
    let trigger =
        "CREATE TRIGGER held BEFORE UPDATE ON outbox_event WHEN OLD.event_id = 'd1' BEGIN SELECT RAISE(ABORT, 'archived'); END";
    sqlx::query(trigger).execute(&mut **user.inner_mut()).await.expect("creates");
    user.commit().await.expect("commits");
    let dry = served.post("/v1/dead/replay", r#"{"dry_run":true}"#).await.json();
    let replay = json!({ "dead_before": dry["dead_before"], "expected_count": 3 });

    let replayed = served.post("/v1/dead/replay", &replay.to_string()).await;

    let answer = replayed.json();
    assert_eq!((replayed.status, &answer["count"], &answer["left"]), (200, &json!(2), &json!(1)), "{answer}");
    let (refused, named) = (&answer["refused"], &answer["refused"]["first"][0]);
    assert_eq!((&refused["count"], &named["event_id"]), (&json!(1), &json!("d1")), "{answer}");
    assert!(named["error"].as_str().is_some_and(|error| error.contains("archived")), "{answer}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_requests_that_are_sent_at_once_only_one_finds_what_it_expects() {
    let served = Served::start().await;
    let ids: Vec<String> = (0..12).map(|number| format!("d{number}")).collect();
    served.dead(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let dry = served.post("/v1/dead/replay", r#"{"dry_run":true}"#).await.json();
    let replay = json!({ "dead_before": dry["dead_before"], "expected_count": 12, "limit": 2 }).to_string();
    let send = async |path: &str, body: &str| served.post(path, body).await.status;
    let at_once = async |path: &str, body: &str| {
        let (a, b, c, d) = tokio::join!(send(path, body), send(path, body), send(path, body), send(path, body));
        let mut answers = [a, b, c, d];
        answers.sort_unstable();
        answers
    };

    assert_eq!(at_once("/v1/dead/replay", &replay).await, [200, 409, 409, 409]);
    // The replayed ones die again: one that did so while the dry run counts would not be in its count.
    for id in &ids {
        served.wait_for(id, "DEAD").await;
    }
    let dry = served.post("/v1/purge", r#"{"dead":true,"older_than":"0s","limit":3,"dry_run":true}"#).await.json();
    let matching = dry["count"].as_u64().zip(dry["left"].as_u64()).map(|(count, left)| count + left);
    let purge = json!({ "dead": true, "finished_before": dry["finished_before"], "expected_count": matching, "limit": 3 });
    assert_eq!(at_once("/v1/purge", &purge.to_string()).await, [200, 409, 409, 409]);
    let local = AuditFilter { actor: Some("local".to_owned()), ..AuditFilter::default() };
    let records = served.outbox.store().list_audit(&local, 10).await.expect("reads");
    assert_eq!(
        records.iter().map(|record| (record.action.as_str(), record.count)).collect::<Vec<_>>(),
        [("purge", 3), ("replay", 2)]
    );
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_a_slow_replay_which_tells_how_far_it_came() {
    let served = Served::start().await;
    served.dead(&["d1", "d2", "d3", "d4", "d5"]).await;
    let dry = served.post("/v1/dead/replay", r#"{"dry_run":true}"#).await.json();
    let mut body = json!({ "dead_before": dry["dead_before"], "expected_count": 5, "batch_size": 1, "per_second": 1 });
    body["reason"] = json!("slowly");
    let mut client = served.connect().await;
    client.write_all(request("/v1/dead/replay", &body.to_string()).as_bytes()).await.expect("it takes the request");
    let store = served.outbox.store().clone();
    let replayed = async || {
        let replays = AuditFilter { action: Some("replay".to_owned()), ..AuditFilter::default() };
        let records = store.list_audit(&replays, 10).await.expect("reads");
        records.iter().map(|record| record.count).sum::<u64>()
    };
    eventually("one is replayed", async || replayed().await > 0).await;

    let _directory = served.stop().await;

    let answer = Answer::read(&mut client).await;
    let count = answer.json()["count"].as_u64().expect("a count");
    assert!(answer.status == 200 && count < 5, "{}", answer.text);
    assert_eq!((answer.json()["left"].as_u64(), replayed().await), (Some(5 - count), count));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_failed_goes_again_and_what_is_old_is_purged() {
    let served = Served::start().await;
    served.dead(&["d1"]).await;
    for nothing in ["", "{}", r#"{"reason":" "}"#] {
        assert_eq!(served.post("/v1/replay", nothing).await.status, 422, "{nothing}");
    }
    let dry = served.post("/v1/replay", r#"{"dry_run":true}"#).await.json();
    let dead_before = &dry["dead_before"];
    assert_eq!(
        dry,
        json!({
            "retried_now": 0, "replayed": 1, "left_dead": 0, "left_waiting": 0, "out_of_time": false, "next": null,
            "dead_before": dead_before, "dry_run": true
        })
    );
    let before_it_died = r#"{"reason":"r","dead_before":"2020-01-01T00:00:00Z"}"#;
    assert_eq!(served.post("/v1/replay", before_it_died).await.json()["replayed"], 0);
    let none = served.post("/v1/replay", r#"{"reason":"r","time_limit":"0s"}"#).await.json();
    assert_eq!((&none["replayed"], &none["out_of_time"]), (&json!(0), &json!(true)), "the same request goes on");
    assert_eq!(none["next"], json!(null), "whether others wait is not known yet");
    assert_eq!(served.post("/v1/routes/Order/Paid/pause", "[]").await.status, 422, "a list is no object");
    for (body, field, detail) in [
        (r#"{"time_limit":"soon"}"#, "time_limit", "`soon` is not a duration; write it like"),
        (r#"{"time_limit":5}"#, "time_limit", "`5` has no unit; write it like"),
        (r#"{"dead_before":"x"}"#, "dead_before", "`x` is not an RFC 3339 time; write it like"),
        (r#"{"dead_before":5}"#, "dead_before", "it is a number, but must be a time like \"2026-11-21T08:30:00Z\""),
        (r#"{"event_limit":-1,"reason":"r"}"#, "event_limit", "it is -1, but must be a whole number of 0 or more"),
        (r#"{"reasn":"r"}"#, "reasn", "there is no such field; did you mean `reason`?"),
        (r#"{"reason":"r","reason":"r"}"#, "reason", "it is written twice"),
        ("5", "body", "it is a number, but must be a group of named values"),
    ] {
        let bad = served.post("/v1/replay", body).await;
        assert_eq!((bad.status, &bad.json()["errors"][0]["field"]), (422, &json!(field)), "{body}: {}", bad.text);
        let told = bad.json()["errors"][0]["detail"].as_str().expect("a text").to_owned();
        assert!(told.starts_with(detail), "{body}: {told}");
    }
    let all = served.post("/v1/replay", r#"{"reason":"r"}"#).await.json();
    assert_eq!((&all["replayed"], &all["out_of_time"]), (&json!(1), &json!(false)));
    let next = all["next"].as_u64().expect("a number");
    assert!(next > 1 << 52, "what was brought back and waits by now is not taken again by a request that goes on: {next}");
    served.wait_for("d1", "DEAD").await;

    let kept = served.post("/v1/purge", r#"{"dead":true}"#).await;
    assert_eq!((kept.status, &kept.json()["errors"][0]["field"]), (422, &json!("older_than")), "dead events are kept for ever");
    let dry = served.post("/v1/purge", r#"{"dead":true,"older_than":"0s","dry_run":true}"#).await.json();
    assert_eq!((&dry["count"], &dry["dry_run"]), (&json!(1), &json!(true)));
    let unsaid = served.post("/v1/purge", r#"{"dead":true,"older_than":"0s"}"#).await;
    assert_eq!((unsaid.status, &unsaid.json()["errors"][0]["field"]), (422, &json!("expected_count")));
    assert_eq!(unsaid.json()["count"], json!(1), "the answer tells how many");
    let fewer = served.post("/v1/purge", r#"{"dead":true,"older_than":"0s","expected_count":0}"#).await;
    assert_eq!((fewer.status, fewer.problem().as_str()), (409, "count_changed"));
    let unit = served.post("/v1/purge", r#"{"dead":true,"older_than":60}"#).await;
    assert_eq!((unit.status, &unit.json()["errors"][0]["field"]), (422, &json!("older_than")));
    assert!(unit.text.contains("`60` has no unit"), "{}", unit.text);
    assert_eq!(served.get("/v1/events/d1").await.status, 200);
    let purged = served.post("/v1/purge", r#"{"dead":true,"older_than":"0s","expected_count":1,"reason":"old"}"#).await.json();
    assert_eq!((&purged["count"], &purged["left"]), (&json!(1), &json!(0)));
    assert_eq!(served.get("/v1/events/d1").await.status, 404);
    let audit = served.get("/v1/audit").await.json();
    assert_eq!((&audit[0]["action"], &audit[0]["count"], &audit[0]["reason"]), (&json!("purge"), &json!(1), &json!("old")));
    let older = served.get(&format!("/v1/audit?actor=local&since=1h&before={}", audit[0]["id"])).await.json();
    assert_eq!((older.as_array().map(Vec::len), &older[0]["action"]), (Some(1), &json!("replay")), "the next page");
    assert_eq!(served.get("/v1/audit?action=skip").await.json(), json!([]));
    assert_eq!(served.get("/v1/audit?actr=local").await.status, 422, "never everything");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_dies_after_a_dry_run_is_not_replayed_in_place_of_what_was_counted() {
    let served = Served::start().await;
    served.dead(&["d1", "d2"]).await;
    let dry = served.post("/v1/dead/replay", r#"{"dry_run":true}"#).await.json();
    served.dead(&["d3"]).await;
    assert_eq!(served.post("/v1/dead/d2/discard", "{}").await.status, 200);

    let mut body = json!({ "dead_before": dry["dead_before"], "expected_count": 2 });
    let fewer = served.post("/v1/dead/replay", &body.to_string()).await;
    body["expected_count"] = json!(1);
    let done = served.post("/v1/dead/replay", &body.to_string()).await.json();

    assert_eq!((dry["count"].as_u64(), fewer.status), (Some(2), 409), "as many are dead as were counted, but others");
    assert_eq!((&done["count"], &done["left"]), (&json!(1), &json!(0)), "{done}");
    served.wait_for("d1", "DEAD").await;
    assert_eq!(served.get("/v1/events/d1").await.json()["replays"], 1);
    assert_eq!(served.get("/v1/events/d3").await.json()["replays"], 0);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_is_paused_and_resumed_and_the_audit_knows_by_whom() {
    let served = Served::start().await;
    let paused = served.post("/v1/routes/Order/OrderPlaced/pause", r#"{"reason":"the mail server moves"}"#).await;
    let answer = paused.json();
    assert_eq!((paused.status, &answer["paused"], &answer["changed"]), (200, &json!(true), &json!(true)), "{answer}");
    let routes = served.get("/v1/routes").await.json();
    let route =
        routes["routes"].as_array().unwrap().iter().find(|route| route["event_type"] == "OrderPlaced").expect("is listed");
    assert_eq!((&route["held_by"], &route["pause_reason"]), (&json!(["Order/OrderPlaced"]), &json!("the mail server moves")));
    let pattern = served.post("/v1/routes/Order/*/pause", "").await.json();
    assert_eq!(pattern["changed"], true, "{pattern}");
    let resumed = served.post("/v1/routes/Order/OrderPlaced/resume", "{}").await.json();
    assert_eq!((&resumed["paused"], &resumed["held_by"]), (&json!(true), &json!(["Order/*"])), "the pattern holds it still");
    assert_eq!(served.post("/v1/routes/Order/*/resume", "{}").await.json()["paused"], false);

    assert_eq!(served.post("/v1/routes/Order/Ord*/pause", "").await.status, 422);
    assert_eq!(served.post("/v1/routes/Order/Never/resume", "").await.status, 404);
    let audit = served.get("/v1/audit?actor=local").await.json();
    let done: Vec<&str> = audit.as_array().unwrap().iter().map(|record| record["action"].as_str().unwrap()).collect();
    assert_eq!((done, &audit[0]["actor"]), (vec!["resume", "resume", "pause", "pause"], &json!("local")));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replay_pushes_no_event_through_more_than_one_attempt() {
    const EVENTS: usize = 250;
    let later = Duration::from_secs(3_600);
    let failing = move |_: Arc<Event>| async move { Err::<DispatchResult, _>(Failure::retryable_after(later, "not yet")) };
    let served = Served::of(HttpConfig::default(), |builder| builder.listener(("Order", "Failing"), failing)).await;
    let event = |number: usize| json!({"event_id": format!("f{number}"), "event_type": "Failing", "aggregate_type": "Order", "payload": 1});
    let batch = Value::Array((0..EVENTS).map(event).collect());
    assert_eq!(served.post("/v1/events", &batch.to_string()).await.status, 201);
    let attempts_are = async |wanted: u64| {
        let looking = async {
            let mut after = String::new();
            loop {
                let page = served.get(&format!("/v1/events?status=retry&limit=200{after}")).await.json();
                let rows = page["events"].as_array().expect("rows");
                assert!(rows.iter().all(|row| row["attempts"].as_u64() <= Some(wanted)), "nothing goes twice: {page}");
                let are_all = rows.iter().all(|row| row["attempts"] == wanted && row["locked_by"].is_null());
                match page["next"].as_u64() {
                    Some(next) if are_all && !rows.is_empty() => after = format!("&after={next}"),
                    None if are_all && !rows.is_empty() && !after.is_empty() => return,
                    _ => {
                        after.clear();
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.unwrap_or_else(|_| panic!("each has {wanted} attempts in the end"));
    };
    attempts_are(1).await;
    let dry = served.post("/v1/replay", r#"{"dry_run":true,"event_limit":100}"#).await.json();
    assert_eq!((&dry["retried_now"], &dry["left_waiting"]), (&json!(100), &json!(EVENTS - 100)), "{dry}");

    let told = served.post("/v1/replay", r#"{"reason":"mended"}"#).await.json();

    assert_eq!(
        (&told["retried_now"], &told["left_waiting"], &told["replayed"]),
        (&json!(EVENTS), &json!(0), &json!(0)),
        "{told}"
    );
    attempts_are(2).await;
    served.stop().await;
}
