//! A sink that is down is reported by its host, in its row, its metrics and its readiness.

use std::sync::Arc;

use outbox::node::{HostSink, SinkState, live_sinks, sinks as sinks_of};
use outbox::sink::SinkError;
use outbox::{Outbox, SqliteStore, Store};
use serde_json::json;
use support::{Database, Scrape, Sqlite, eventually};

use crate::common::{order, send_one, sinks};
use crate::endpoint::{Answer, Endpoint, OK};
use crate::receiver::{commit, done, relaying};

const EVENTS: usize = 60;
const UNAVAILABLE: Answer = Answer::Says("HTTP/1.1 503 Down\r\ncontent-length: 0\r\n\r\n");

/// The only sink of the only host, as the tables show it.
async fn reported(db: &Sqlite) -> Option<HostSink> {
    let store: Arc<dyn Store> = Arc::new(db.another().await);
    let (nodes, routes) = (store.nodes().await.expect("lists"), store.count_routes().await.expect("counts"));
    live_sinks(&nodes, &routes, sinks_of).pop()
}

fn available(outbox: &Outbox<SqliteStore>) -> Option<f64> {
    Scrape::of(&outbox.prometheus()).value("outbox_sink_available{sink=\"tested\"}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_down_is_reported_with_its_reason_and_its_waiting_events_until_it_works_again() {
    let (db, store) = Sqlite::on_system_clock().await;
    let endpoint = Endpoint::that(UNAVAILABLE).await;
    let outbox = relaying(store, sinks(json!({"kind": "http", "url": endpoint.url(), "timeout": "1s"}))).await;
    assert_eq!(available(&outbox), Some(1.0));
    eventually("its row lists it", async || reported(&db).await.is_some_and(|one| one.sink.state == SinkState::Unconfirmed))
        .await;

    commit(&outbox, EVENTS).await;

    eventually("its row says that it is down", async || {
        reported(&db).await.is_some_and(|one| one.sink.is_down() && one.waiting == EVENTS as u64)
    })
    .await;
    let sink = reported(&db).await.expect("it is listed").sink;
    let outage = sink.outage.expect("it is down");
    assert!(outage.reason.contains("answered 503") && outage.next_try >= outage.since, "{outage:?}");
    assert_eq!((sink.name.as_str(), sink.kind.as_str(), sink.last_success), ("tested", "http", None));
    assert_eq!(sink.routes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["*/*"]);
    assert_eq!(available(&outbox), Some(0.0));
    let readiness = outbox.monitor().readiness_with_sinks();
    assert!(readiness.is_ready(), "a restart would not help: {readiness:?}");
    assert_eq!(readiness.sinks_down().iter().map(|sink| sink.name.as_str()).collect::<Vec<_>>(), ["tested"]);

    endpoint.answers(OK);

    done(&db, EVENTS).await;
    eventually("its row says that it works", async || {
        reported(&db).await.is_some_and(|one| one.sink.state == SinkState::Working && one.waiting == 0)
    })
    .await;
    assert_eq!(available(&outbox), Some(1.0));
    assert!(outbox.monitor().readiness_with_sinks().sinks_down().is_empty());
    let monitor = outbox.monitor();
    outbox.shutdown().await;
    drop(outbox);
    assert_eq!(monitor.sinks()[0].state, SinkState::Working, "the monitor outlives the host");
}

#[tokio::test]
async fn an_updated_sink_is_reported_with_its_new_address() {
    let with = |port: u16| json!({"kind": "http", "url": format!("http://127.0.0.1:{port}/hooks")});
    let sinks = sinks(with(1));
    let monitor = sinks.monitor();
    assert_eq!(monitor.list()[0].target, "http://127.0.0.1:1");

    let changed = serde_json::from_value(with(2)).expect("a good configuration");
    sinks.update("tested", &changed).await.expect("good settings");

    assert_eq!(monitor.list()[0].target, "http://127.0.0.1:2");
    drop(sinks);
    assert_eq!(monitor.list()[0].target, "http://127.0.0.1:2");
}

#[tokio::test]
async fn a_sink_is_reported_as_down_while_all_its_receivers_answer_503() {
    let endpoint = Endpoint::that(UNAVAILABLE).await;
    let sinks = sinks(json!({"kind": "http", "url": endpoint.url(), "path": "{aggregate_id}", "timeout": "1s"}));
    let (sink, monitor) = (sinks.get("tested").expect("it is there"), sinks.monitor());
    let state = || monitor.list()[0].state;

    for number in 1..=2 {
        send_one(&*sink, order(number)).await.expect_err("503");
    }
    assert_eq!(state(), SinkState::Unconfirmed, "the other receivers may work");
    send_one(&*sink, order(3)).await.expect_err("503");
    assert_eq!(state(), SinkState::Down);
    let outage = monitor.list()[0].outage.clone().expect("it is down");
    assert!(outage.reason.ends_with("answered 503") && outage.next_try > outage.since, "{outage:?}");

    endpoint.answers(OK);
    send_one(&*sink, order(4)).await.expect("confirmed");
    assert_eq!(state(), SinkState::Working);
}

#[tokio::test]
async fn a_sink_with_a_single_receiver_is_reported_as_down_from_its_first_503() {
    let endpoint = Endpoint::that(UNAVAILABLE).await;
    let sinks = sinks(json!({"kind": "http", "url": endpoint.url(), "timeout": "1s"}));
    let (sink, monitor) = (sinks.get("tested").expect("it is there"), sinks.monitor());
    let outage = || monitor.list()[0].outage.clone();

    let refused = send_one(&*sink, order(1)).await;
    assert!(matches!(refused, Err(SinkError::Unavailable { .. })), "its events do not wait for the sink: {refused:?}");
    let first = outage().expect("it is down");
    assert!(first.reason.ends_with("answered 503"), "{first:?}");
    endpoint.answers(Answer::Says("HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n"));
    send_one(&*sink, order(1)).await.expect_err("429");
    let second = outage().expect("it is down");
    assert_eq!(second.since, first.since);
    assert!(second.reason.ends_with("answered 429") && second.next_try > second.since, "{second:?}");

    endpoint.answers(OK);
    send_one(&*sink, order(1)).await.expect("confirmed");
    assert_eq!((outage(), monitor.list()[0].state), (None, SinkState::Working));
}
