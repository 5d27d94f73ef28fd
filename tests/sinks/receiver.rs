//! Receivers of webhooks that are unavailable for a while: their events wait, and no attempt is counted.

use std::time::Duration;

use outbox::listener::Fixed;
use outbox::poller::PollerConfig;
use outbox::sink::Sinks;
use outbox::{Envelope, EventId, Outbox, RelayConfig, SqliteStore, Status};
use serde_json::{Value, json};
use support::{Harness, Sqlite, eventually};
use tokio::net::TcpListener;

use crate::common::sinks;
use crate::endpoint::{Answer, Endpoint, OK};

/// More than the attempts that an event has by default.
const EVENTS: usize = 60;

fn webhooks(url: &str) -> Value {
    json!({"kind": "http", "url": url, "timeout": "1s"})
}

/// A host that relays every event, and would count a failure every 10 ms.
pub(crate) async fn relaying(store: SqliteStore, sinks: Sinks) -> Outbox<SqliteStore> {
    let poller = PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() };
    let builder = Outbox::single_node(store).poller(poller).retry(Fixed(Duration::from_millis(10))).workers(8);
    builder.sinks(sinks).relay(("*", "*"), RelayConfig::to("tested")).start().await.expect("starts")
}

pub(crate) async fn commit(outbox: &Outbox<SqliteStore>, events: usize) -> Vec<EventId> {
    commit_of(outbox, &["Order"], events).await
}

/// So many events of each of these aggregate types, in turn.
pub(crate) async fn commit_of(outbox: &Outbox<SqliteStore>, aggregate_types: &[&str], events: usize) -> Vec<EventId> {
    let envelopes = (0..events).flat_map(|n| {
        let of = move |of: &&str| Envelope::new("OrderPlaced").aggregate(*of, n.to_string()).json(&n).expect("valid");
        aggregate_types.iter().map(of)
    });
    let mut transaction = outbox.begin().await.expect("begins");
    let ids = transaction.write_all(envelopes.collect::<Vec<_>>()).await.expect("writes");
    transaction.commit().await.expect("commits");
    ids
}

pub(crate) async fn done(db: &Sqlite, count: usize) {
    eventually(&format!("{count} events are DONE"), async || {
        db.store().stats().await.expect("counts").done == u64::try_from(count).expect("few")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_receiver_is_unavailable_its_events_wait_uncounted_and_then_all_arrive() {
    for answer in [
        Answer::Says("HTTP/1.1 408 Slow\r\ncontent-length: 0\r\n\r\n"),
        Answer::Says("HTTP/1.1 425 Early\r\ncontent-length: 0\r\n\r\n"),
        Answer::Says("HTTP/1.1 429 Many\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"),
        Answer::Says("HTTP/1.1 502 Bad\r\ncontent-length: 0\r\n\r\n"),
        Answer::Says("HTTP/1.1 503 Down\r\ncontent-length: 0\r\n\r\n"),
        Answer::Says("HTTP/1.1 504 Late\r\ncontent-length: 0\r\n\r\n"),
        Answer::Silent,
        Answer::Closes,
    ] {
        let (db, store) = Sqlite::on_system_clock().await;
        let endpoint = Endpoint::that(answer).await;
        let outbox = relaying(store, sinks(webhooks(&endpoint.url()))).await;
        let first = commit(&outbox, EVENTS).await[0];
        let row = async || db.store().get(first).await.expect("reads").expect("is there");
        eventually("the first has waited twice", async || {
            let row = row().await;
            row.claim_seq >= 4 && row.wait_since.is_some()
        })
        .await;
        let reason = row().await.wait_reason.expect("the reason is in the row");
        assert!(
            reason.starts_with("the receiver of the sink tested is unavailable: ") || reason.contains("is down: "),
            "{reason}"
        );
        let lag = db.store().stats().await.expect("counts").oldest_pending_seconds.given_back.expect("the oldest waits");
        assert!(lag > 0.0, "an outage shows as lag: {lag}");

        endpoint.answers(OK);

        done(&db, EVENTS).await;
        assert_eq!(db.number("SELECT sum(attempts) + sum(deferrals) FROM outbox_event").await, 0, "{reason}");
        outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_refuses_whatever_comes_uses_up_no_backlog() {
    let (db, store) = Sqlite::on_system_clock().await;
    let endpoint = Endpoint::that(Answer::Says("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n")).await;
    let outbox = relaying(store, sinks(webhooks(&endpoint.url()))).await;
    commit(&outbox, EVENTS).await;
    let waiting = "SELECT count(*) FROM outbox_event WHERE wait_reason LIKE 'the sink tested is down: %answered 404%'";
    eventually("all wait", async || db.number(waiting).await == i64::try_from(EVENTS).expect("few")).await;
    let counted = db.number("SELECT sum(attempts) FROM outbox_event").await;
    assert!(counted < 10, "the tenth refusal in a row opened the breaker: {counted}");

    endpoint.answers(OK);

    done(&db, EVENTS).await;
    outbox.shutdown().await;
}

/// A sink with a receiver for each aggregate type.
fn webhooks_by_type(url: &str, timeout: &str) -> Value {
    json!({"kind": "http", "url": url, "path": "{aggregate_type}", "timeout": timeout})
}

/// Events of this aggregate type that are DONE.
async fn done_of(db: &Sqlite, aggregate_type: &str) -> i64 {
    db.number(&format!("SELECT count(*) FROM outbox_event WHERE status = 1 AND aggregate_type = '{aggregate_type}'")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_holds_up_no_other_receiver_of_its_sink() {
    const EACH: usize = 200;
    // One that never answered, and one that stops answering.
    for (has_worked, timeout) in [(false, "10s"), (true, "1s")] {
        let (db, store) = Sqlite::on_system_clock().await;
        let endpoint = Endpoint::that(OK).await;
        let outbox = relaying(store, sinks(webhooks_by_type(&endpoint.url(), timeout))).await;
        let before = if has_worked { EVENTS } else { 0 };
        commit_of(&outbox, &["Hanging"], before).await;
        done(&db, before).await;
        endpoint.answers_at("/hooks/Hanging", Answer::Silent);

        commit_of(&outbox, &["Hanging", "Healthy"], EACH).await;

        eventually("all events of the healthy receiver are DONE", async || {
            done_of(&db, "Healthy").await == i64::try_from(EACH).expect("few")
        })
        .await;
        assert_eq!(done_of(&db, "Hanging").await, i64::try_from(before).expect("few"), "the hanging receiver still hangs");
        endpoint.answers_at("/hooks/Hanging", OK);
        done(&db, before + 2 * EACH).await;
        assert_eq!(db.number("SELECT sum(attempts) + sum(deferrals) FROM outbox_event").await, 0);
        outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_refuses_whatever_comes_uses_up_no_backlog_and_stops_no_other_receiver() {
    let (db, store) = Sqlite::on_system_clock().await;
    let endpoint = Endpoint::that(OK).await;
    let outbox = relaying(store, sinks(webhooks_by_type(&endpoint.url(), "1s"))).await;
    // A receiver that has not answered yet gets one message at a time, which would be refused again and again, every 10 ms.
    commit_of(&outbox, &["Refusing"], 1).await;
    done(&db, 1).await;
    endpoint.answers_at("/hooks/Refusing", Answer::Says("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"));
    commit_of(&outbox, &["Refusing", "Healthy"], EVENTS).await;
    let waiting = "SELECT count(*) FROM outbox_event WHERE wait_reason LIKE \
                   'the receiver of the sink tested is unavailable: %answered 404%'";
    eventually("all of one wait", async || db.number(waiting).await == i64::try_from(EVENTS).expect("few")).await;
    let counted = db.number("SELECT sum(attempts) FROM outbox_event WHERE aggregate_type = 'Refusing'").await;
    assert!(counted < 20, "the tenth refusal in a row began its rest: {counted}");
    let sink = outbox.monitor().sinks().remove(0);
    assert_eq!((sink.unavailable_receivers, sink.first_unavailable), (1, vec!["Refusing".to_owned()]));
    done(&db, 1 + EVENTS).await;
    assert_eq!(db.number("SELECT sum(attempts) FROM outbox_event WHERE aggregate_type = 'Healthy'").await, 0);

    endpoint.answers_at("/hooks/Refusing", OK);

    done(&db, 1 + 2 * EVENTS).await;
    outbox.shutdown().await;
}

/// As with an expired token, or a firewall that denies the address of this host.
#[tokio::test(flavor = "multi_thread")]
async fn sink_whose_receivers_all_refuse_their_sender_is_down_and_uses_up_no_backlog() {
    for answer in [
        Answer::Says("HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n"),
        Answer::Says("HTTP/1.1 503 Down\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"),
    ] {
        let (db, store) = Sqlite::on_system_clock().await;
        let endpoint = Endpoint::that(answer).await;
        let sinks = sinks(json!({"kind": "http", "url": endpoint.url(), "path": "{aggregate_id}", "timeout": "1s"}));
        let outbox = relaying(store, sinks).await;
        commit(&outbox, EVENTS).await;
        let waiting = "SELECT count(*) FROM outbox_event WHERE wait_reason LIKE 'the sink tested is down: %answered %'";
        eventually("all wait", async || db.number(waiting).await == i64::try_from(EVENTS).expect("few")).await;
        let counted = db.number("SELECT sum(attempts) FROM outbox_event").await;
        assert!(counted < 10, "the tenth receiver in a row was an outage of the sink: {counted}");
        eventually("the host reports the stall", async || !outbox.readiness().stalled().is_empty()).await;
        assert_eq!(outbox.monitor().readiness_with_sinks().sinks_down().len(), 1);

        endpoint.answers(OK);

        done(&db, EVENTS).await;
        assert!(outbox.monitor().readiness_with_sinks().sinks_down().is_empty());
        outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_a_receiver_refuses_does_not_stop_those_that_it_takes() {
    let (db, store) = Sqlite::on_system_clock().await;
    let endpoint = Endpoint::that(Answer::Says("HTTP/1.1 422 No\r\ncontent-length: 0\r\n\r\n")).await;
    let outbox = relaying(store, sinks(webhooks(&endpoint.url()))).await;
    commit(&outbox, EVENTS).await;
    eventually("they are given up", async || db.store().stats().await.expect("counts").dead > 0).await;

    endpoint.answers(OK);
    commit(&outbox, EVENTS).await;

    eventually("the others are DONE", async || {
        let stats = db.store().stats().await.expect("counts");
        stats.done >= u64::try_from(EVENTS).expect("few") && stats.done + stats.dead == 2 * u64::try_from(EVENTS).expect("few")
    })
    .await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_receiver_is_away_for_longer_than_max_age_is_dead_with_that_history() {
    let (db, store) = Sqlite::on_system_clock().await;
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = port.local_addr().expect("bound");
    drop(port);
    let mut config = webhooks(&format!("http://{address}/hooks"));
    config["max_age"] = json!("2s");
    let outbox = relaying(store, sinks(config)).await;
    // Most of them are not sent after their time: one at a time tries the receiver.
    let id = commit(&outbox, EVENTS).await[0];
    eventually("all are dead", async || db.store().stats().await.expect("counts").dead == EVENTS as u64).await;
    let row = db.store().get(id).await.expect("reads").expect("is there");
    assert_eq!(row.status, Status::Dead);
    let error = row.last_error.expect("it says why");
    let history = "longer than sinks.tested.max_age: the sink tested is down: ";
    assert!(error.starts_with("sink: the event waited for ") && error.contains(history), "{error}");
    assert_eq!((row.attempts, row.wait_since), (0, None));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_that_passes_its_max_age_during_a_rest_is_sent_once_more_before_it_is_given_up() {
    let (db, store) = Sqlite::on_system_clock().await;
    let endpoint = Endpoint::that(Answer::Says("HTTP/1.1 503 Down\r\nretry-after: 6\r\ncontent-length: 0\r\n\r\n")).await;
    let mut config = webhooks(&endpoint.url());
    config["max_age"] = json!("2s");
    let outbox = relaying(store, sinks(config)).await;
    commit(&outbox, EVENTS).await;
    let waiting = "SELECT count(*) FROM outbox_event WHERE wait_reason IS NOT NULL";
    eventually("all wait", async || db.number(waiting).await == i64::try_from(EVENTS).expect("few")).await;

    endpoint.answers(OK);

    eventually("none waits", async || {
        let stats = db.store().stats().await.expect("counts");
        stats.done + stats.dead == EVENTS as u64
    })
    .await;
    assert_eq!(db.store().stats().await.expect("counts").dead, 0, "the receiver takes them when they are sent again");
    outbox.shutdown().await;
}

/// As behind a proxy of this host that reaches none of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_requests_to_every_path_fail_reports_its_sink() {
    let (db, store) = Sqlite::on_system_clock().await;
    let endpoint = Endpoint::that(Answer::Says("HTTP/1.1 503 Down\r\ncontent-length: 0\r\n\r\n")).await;
    let outbox = relaying(store, sinks(webhooks_by_type(&endpoint.url(), "1s"))).await;

    commit_of(&outbox, &["One", "Two", "Three"], 5).await;

    eventually("it cannot deliver what is relayed", async || !outbox.readiness().stalled().is_empty()).await;
    let reason = outbox.readiness().stalled()[0].reason.clone();
    assert!(reason.contains("the sink tested is down: "), "{reason}");
    endpoint.answers(OK);
    done(&db, 15).await;
    eventually("it can", async || outbox.readiness().stalled().is_empty()).await;
    assert_eq!(db.number("SELECT sum(attempts) + sum(deferrals) FROM outbox_event").await, 0);
    outbox.shutdown().await;
}
