//! Redis with Sentinel: the sink asks for the master's address, again whenever the master fails.

use std::collections::{BTreeSet, HashMap};

use outbox::sink::SinkError;
use serde_json::{Value, json};
use servers::RedisSentinel;
use support::{Harness, Sqlite, eventually};
use tokio::io::{AsyncWriteExt, BufReader};

use crate::common::{order, send_one, sink, sinks};
use crate::hostile::{redis_command, server};
use crate::receiver::{commit, done, relaying};
use crate::redis::{ask, entries, text};
use crate::redis_cluster::replicated;

fn sentinel() -> RedisSentinel {
    tokio::task::block_in_place(|| RedisSentinel::start().expect("it starts"))
}

/// A Sentinel at the first address is away.
fn config(sentinel: &RedisSentinel, master: &str) -> Value {
    let url = format!("redis://127.0.0.1:1, {}", sentinel.url());
    json!({"kind": "redis", "url": url, "sentinel": master, "password": sentinel.password(), "stream": "orders", "timeout": "2s"})
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_failure_of_the_master_all_events_arrive_and_none_has_lost_an_attempt() {
    const EVENTS: usize = 100;
    let mut sentinel = sentinel();
    let [master, replica] = sentinel.urls();
    replicated(&master).await;
    // It asks the master for its replicas every ten seconds.
    eventually("the Sentinel knows the replica", async || {
        let replicas: Vec<HashMap<String, String>> =
            ask(&sentinel.url(), &["SENTINEL", "REPLICAS", RedisSentinel::MASTER]).await;
        replicas.first().is_some_and(|replica| replica["master-link-status"] == "ok")
    })
    .await;
    let (db, store) = Sqlite::on_system_clock().await;
    let outbox = relaying(store, sinks(config(&sentinel, RedisSentinel::MASTER))).await;
    commit(&outbox, EVENTS).await;
    done(&db, EVENTS).await;
    assert_eq!(entries(&master, "orders").await.len(), EVENTS);

    replicated(&master).await;
    sentinel.crash_master();
    commit(&outbox, EVENTS).await;

    done(&db, 2 * EVENTS).await;
    assert_eq!(db.number("SELECT sum(attempts) + sum(deferrals) FROM outbox_event").await, 0);
    let ids: BTreeSet<String> = entries(&replica, "orders").await.iter().map(|entry| text(entry.get("id"))).collect();
    assert_eq!(ids.len(), 2 * EVENTS);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_no_sentinel_knows_and_sentinels_that_are_away_are_told_by_name() {
    let mut sentinel = sentinel();
    let reason = async |config| match send_one(&*sink(config), order(1)).await {
        Err(SinkError::Down { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let unknown = reason(config(&sentinel, "invoices")).await;
    assert!(unknown.contains("knows no master `invoices`; correct the setting sentinel"), "{unknown}");

    let mut server = config(&sentinel, RedisSentinel::MASTER);
    server["url"] = json!(sentinel.urls()[0]);
    let no_sentinel = reason(server).await;
    assert!(no_sentinel.contains("does not answer as a Sentinel"), "{no_sentinel}");

    sentinel.crash_sentinel();
    let away = reason(config(&sentinel, RedisSentinel::MASTER)).await;
    assert!(away.contains("the Sentinel at 127.0.0.1:") && away.contains("refused"), "{away}");
}

/// A Sentinel that names this port for every master. Returns its address.
async fn stale_sentinel(port: String) -> String {
    let named = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
    let serve = move |_, stream| {
        let named = named.clone();
        async move {
            let mut stream = BufReader::new(stream);
            loop {
                let answer = match redis_command(&mut stream).await?.as_slice() {
                    [command, ..] if command == "SENTINEL" => named.as_str(),
                    _ => "+OK\r\n",
                };
                stream.write_all(answer.as_bytes()).await?;
            }
        }
    };
    server(serve).await.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_names_a_replica_is_passed_over() {
    let sentinel = sentinel();
    let [master, replica] = sentinel.urls();
    replicated(&master).await;
    let (_, port) = replica.rsplit_once(':').expect("an address with a port");
    let stale = stale_sentinel(port.to_owned()).await;
    let mut config = config(&sentinel, RedisSentinel::MASTER);

    config["url"] = json!(format!("redis://{stale}"));
    match send_one(&*sink(config.clone()), order(1)).await {
        Err(SinkError::Down { reason, .. }) => assert!(reason.contains("its role is `slave`"), "{reason}"),
        other => panic!("{other:?}"),
    }

    config["url"] = json!(format!("redis://{stale}, {}", sentinel.url()));
    assert_eq!(send_one(&*sink(config), order(2)).await, Ok(()));
    assert_eq!(entries(&master, "orders").await.len(), 1);
}
