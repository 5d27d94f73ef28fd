//! Purges that are asked for: what they delete, and when they end.

use outbox::OutboxTransaction;
use outbox::purge::PurgeConfig;
use outbox_store::AuditFilter;
use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_deletes_none_but_the_events_that_its_dry_run_counted() {
    let served = Served::start().await;
    served.dead(&["d1", "d2"]).await;
    let dry = served.post("/v1/purge", r#"{"dead":true,"older_than":"0s","dry_run":true}"#).await.json();
    served.dead(&["d3"]).await;
    served.post("/v1/dead/d1/replay", "{}").await;
    served.wait_for("d1", "DEAD").await;
    let mut body = json!({ "dead": true, "finished_before": dry["finished_before"], "expected_count": dry["count"] });
    let fewer = served.post("/v1/purge", &body.to_string()).await;
    assert_eq!((fewer.status, &fewer.json()["count"]), (409, &json!(1)), "others may be dead than those that were counted");
    body["expected_count"] = json!(1);

    let purged = served.post("/v1/purge", &body.to_string()).await.json();

    assert_eq!((&dry["count"], &purged["count"], &purged["left"]), (&json!(2), &json!(1), &json!(0)), "{purged}");
    assert_eq!(purged["finished_before"], dry["finished_before"]);
    let statuses = [served.get("/v1/events/d1").await, served.get("/v1/events/d2").await, served.get("/v1/events/d3").await];
    assert_eq!(statuses.map(|answer| answer.status), [200, 404, 200], "one died again, one was counted, one died later");
    let audit = served.get("/v1/audit?action=purge").await.json();
    assert_eq!(audit[0]["selector"], json!({ "status": "DEAD", "finished_before": dry["finished_before"] }));

    body["older_than"] = json!("0s");
    let both = served.post("/v1/purge", &body.to_string()).await;
    assert_eq!((both.status, &both.json()["errors"][0]["field"]), (422, &json!("finished_before")), "{}", both.text);
    let ahead = r#"{"dead":true,"finished_before":"2100-01-01T00:00:00Z","dry_run":true}"#;
    let ahead = served.post("/v1/purge", ahead).await.json();
    assert!(ahead["finished_before"].as_str() < Some("2100"), "what is not over yet is not meant: {ahead}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_that_would_delete_more_than_expected_deletes_nothing() {
    let served = Served::start().await;
    served.dead(&["d1", "d2", "d3"]).await;
    let purge = async |more: &str| {
        let answer = served.post("/v1/purge", &format!(r#"{{"dead":true,"older_than":"0s",{more}}}"#)).await;
        (answer.status, answer.json()["count"].as_u64(), answer.json()["left"].as_u64())
    };

    assert_eq!(purge(r#""limit":2,"dry_run":true"#).await, (200, Some(2), Some(1)));
    assert_eq!(purge(r#""limit":2,"expected_count":2"#).await, (409, Some(3), None), "a limit does not weaken the check");
    assert_eq!(purge(r#""expected_count":2"#).await, (409, Some(3), None));
    assert_eq!(served.get("/v1/dead/count").await.json(), json!({"count": 3}));
    assert_eq!(purge(r#""limit":2,"expected_count":3"#).await, (200, Some(2), Some(1)));
    assert_eq!(purge(r#""limit":2,"expected_count":3"#).await, (409, Some(1), None), "a part that is asked for twice");
    assert_eq!(purge(r#""expected_count":1"#).await, (200, Some(1), Some(0)));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_the_delivered_events_is_purged_once_however_often_it_is_asked_for() {
    let served =
        Served::of(HttpConfig::default(), |builder| builder.purge(PurgeConfig { enabled: false, ..Default::default() })).await;
    let event = r#"{"event_type":"OrderPlaced","aggregate_type":"Order","payload":1}"#;
    served.post("/v1/events", &format!("[{}]", [event; 15].join(","))).await;
    let store = served.outbox.store().clone();
    eventually("all events are done", async || store.stats().await.expect("counts").done == 15).await;
    let dry = served.post("/v1/purge", r#"{"older_than":"0s","limit":10,"dry_run":true}"#).await.json();
    let body = json!({ "finished_before": dry["finished_before"], "expected_count": 15, "limit": 10 }).to_string();

    let (once, twice) = (served.post("/v1/purge", &body).await, served.post("/v1/purge", &body).await);

    assert_eq!((once.status, &once.json()["count"], &once.json()["left"]), (200, &json!(10), &json!(5)), "{}", once.text);
    assert_eq!((twice.status, &twice.json()["count"]), (409, &json!(5)), "{}", twice.text);
    let rest = json!({ "finished_before": dry["finished_before"], "expected_count": 7 }).to_string();
    assert_eq!(served.post("/v1/purge", &rest).await.json()["count"], 5, "all of them: the host may have deleted some itself");
    served.stop().await;
}

/// On one thread: after a `yield`, every task that was woken before has run.
#[tokio::test]
async fn a_stop_ends_a_purge_after_its_batch_and_the_audit_has_all_that_it_deleted() {
    const EVENTS: u64 = 5;
    let (served, mut alone, mut client) = purge_of(EVENTS).await;
    let store = served.outbox.store().clone();
    let done = async || store.stats().await.expect("counts").done;
    // Whoever waits for the writing connection gets it in turn: the purge deletes one event before it is our turn again.
    let began = std::time::Instant::now();
    while done().await == EVENTS {
        assert!(began.elapsed() < PATIENCE, "the purge begins");
        alone.rollback().await.expect("rolls back");
        alone = served.outbox.begin().await.expect("begins");
    }
    let stopping = tokio::spawn(served.stop());
    // The task above stops the server, and the purge hears of it.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    alone.rollback().await.expect("rolls back");
    let _directory = stopping.await.expect("it stops");

    let answer = Answer::read(&mut client).await;
    assert_eq!((answer.status, answer.problem().as_str()), (503, "stopping"), "{}", answer.text);
    assert_eq!(done().await, EVENTS - 1, "the stop waited for the batch, and not for the whole purge");
    let local = AuditFilter { actor: Some("local".to_owned()), ..AuditFilter::default() };
    let records = store.list_audit(&local, 10).await.expect("reads");
    assert_eq!(records.iter().map(|record| (record.action.as_str(), record.count)).collect::<Vec<_>>(), [("purge", 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_ends_soon_after_its_client_has_left() {
    const EVENTS: u64 = 400;
    let (served, mut alone, client) = purge_of(EVENTS).await;
    let store = served.outbox.store().clone();
    let done = async || store.stats().await.expect("counts").done;
    let mut client = Some(client);
    let (mut last, mut quiet) = (EVENTS, 0);
    // A purge that is at work deletes one event whenever the writing connection is free.
    let began = std::time::Instant::now();
    while quiet < 20 {
        assert!(began.elapsed() < PATIENCE, "the purge begins, and ends after its client has left");
        alone.rollback().await.expect("rolls back");
        tokio::time::sleep(Duration::from_millis(10)).await;
        alone = served.outbox.begin().await.expect("begins");
        let left = done().await;
        if left < EVENTS {
            client.take();
            quiet = if left == last { quiet + 1 } else { 0 };
        }
        last = left;
    }
    alone.rollback().await.expect("rolls back");

    assert!(last > 0 && last < EVENTS, "{last} of {EVENTS} are left");
    served.stop().await;
}

/// A purge of this many events, one by one, that this client asks for. It waits for the writing connection, which a transaction
/// holds.
async fn purge_of(events: u64) -> (Served, OutboxTransaction<SqliteStore>, TcpStream) {
    let by_rows = PurgeConfig { enabled: false, batch_size: 1, ..PurgeConfig::default() };
    let served = Served::of(HttpConfig::default(), |builder| builder.purge(by_rows)).await;
    let event = r#"{"event_type":"OrderPlaced","aggregate_type":"Order","payload":1}"#;
    let batch = format!("[{}]", vec![event; usize::try_from(events).expect("fits")].join(","));
    assert_eq!(served.post("/v1/events", &batch).await.status, 201);
    let store = served.outbox.store().clone();
    eventually("all events are done", async || store.stats().await.expect("counts").done == events).await;

    let alone = served.outbox.begin().await.expect("begins");
    let mut client = served.connect().await;
    let body = format!(r#"{{"older_than":"0s","expected_count":{events},"reason":"a test"}}"#);
    client.write_all(request("/v1/purge", &body).as_bytes()).await.expect("it takes the request");
    (served, alone, client)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_the_database_does_not_delete_are_named() {
    let served = Served::start().await;
    served.dead(&["d1", "d2", "d3"]).await;
    let mut user = served.outbox.begin().await.expect("begins");
    let trigger =
        "CREATE TRIGGER held BEFORE DELETE ON outbox_event WHEN OLD.event_id = 'd2' BEGIN SELECT RAISE(ABORT, 'archived'); END";
    sqlx::query(trigger).execute(&mut **user.inner_mut()).await.expect("creates");
    user.commit().await.expect("commits");

    let purged = served.post("/v1/purge", r#"{"dead":true,"older_than":"0s","expected_count":3}"#).await;

    let answer = purged.json();
    assert_eq!((purged.status, &answer["count"], &answer["left"]), (200, &json!(2), &json!(1)), "{answer}");
    let (undeletable, named) = (&answer["undeletable"], &answer["undeletable"]["first"][0]);
    assert_eq!((&undeletable["count"], &undeletable["gave_up"]), (&json!(1), &json!(false)), "{answer}");
    assert_eq!(named["event_id"], "d2");
    assert!(named["error"].as_str().is_some_and(|error| error.contains("archived")), "{answer}");
    served.stop().await;
}
