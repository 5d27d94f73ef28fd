//! Redis Cluster: each stream is on a node of its own, which may change.

use std::collections::{BTreeMap, BTreeSet};

use outbox::sink::SinkError;
use serde_json::{Value, json};
use servers::{Broker, RedisCluster};
use support::{Harness, Sqlite, eventually};

use crate::broker::shared;
use crate::common::{order, send_one, sink, sinks, to, unique};
use crate::receiver::{commit, done, relaying};
use crate::redis::{ask, entries, text};

/// A cluster whose nodes have all heard that it works.
async fn cluster() -> RedisCluster {
    let cluster = tokio::task::block_in_place(|| RedisCluster::start().expect("it starts"));
    for url in cluster.urls() {
        eventually("the cluster works", async || ask::<String>(&url, &["CLUSTER", "INFO"]).await.contains("cluster_state:ok"))
            .await;
    }
    cluster
}

fn config(urls: &[String], stream: &str) -> Value {
    json!({"kind": "redis", "url": urls.join(", "), "stream": stream, "timeout": "2s"})
}

/// A value that a server shows in the section `replication` of its `INFO`.
async fn replication(url: &str, name: &str) -> String {
    let info: String = ask(url, &["INFO", "replication"]).await;
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default().trim().to_owned()
}

/// The nodes that are masters.
async fn masters(urls: &[String]) -> Vec<String> {
    let mut masters = Vec::new();
    for url in urls {
        if replication(url, "role").await == "master" {
            masters.push(url.clone());
        }
    }
    masters
}

/// Waits until the replica of a master has all that the master has.
pub(crate) async fn replicated(master: &str) {
    eventually("the replica has what its master has", async || {
        let replica = replication(master, "slave0").await;
        let offset = replication(master, "master_repl_offset").await;
        replica.contains("state=online") && replica.contains(&format!("offset={offset},"))
    })
    .await;
}

/// The bodies of all entries of all streams, and their node.
async fn bodies(urls: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut bodies: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for url in masters(urls).await {
        let streams: Vec<String> = ask(&url, &["KEYS", "*"]).await;
        for stream in streams {
            let entries = entries(&url, &stream).await;
            bodies.entry(url.clone()).or_default().extend(entries.iter().map(|entry| text(entry.get("body"))));
        }
    }
    bodies
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_failure_of_a_master_all_events_arrive_and_none_has_lost_an_attempt() {
    const EVENTS: usize = 120;
    let mut cluster = cluster().await;
    let mut urls = cluster.urls();
    let (db, store) = Sqlite::on_system_clock().await;
    // Not all nodes are named: the others are found.
    let outbox = relaying(store, sinks(config(&urls[..2], "orders:{aggregate_id}"))).await;
    commit(&outbox, EVENTS).await;
    done(&db, EVENTS).await;
    let before = bodies(&urls).await;
    assert_eq!(before.len(), 3, "each master has some");
    assert_eq!(before.values().flatten().collect::<BTreeSet<_>>().len(), EVENTS);

    let killed = masters(&urls).await.remove(0);
    replicated(&killed).await;
    cluster.crash(&killed);
    urls.retain(|url| *url != killed);
    commit(&outbox, EVENTS).await;

    done(&db, 2 * EVENTS).await;
    assert_eq!(db.number("SELECT sum(attempts) + sum(deferrals) FROM outbox_event").await, 0);
    let mut count = 0;
    for url in masters(&urls).await {
        let streams: Vec<String> = ask(&url, &["KEYS", "*"]).await;
        for stream in streams {
            let ids: BTreeSet<String> = entries(&url, &stream).await.iter().map(|entry| text(entry.get("id"))).collect();
            count += ids.len();
        }
    }
    assert_eq!(count, 2 * EVENTS);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_updated_sink_still_rests_for_a_node_that_is_away() {
    let mut cluster = cluster().await;
    let urls = cluster.urls();
    let sinks = sinks(config(&urls, "orders"));
    let (sink, monitor) = (sinks.get("tested").expect("it is there"), sinks.monitor());
    // Each master has some of these streams.
    let messages: Vec<_> = (0..60).map(|number| to(&format!("orders-{number}"), order(number))).collect();
    assert!(sink.send(&messages).await.iter().all(Result::is_ok));
    cluster.crash(&masters(&urls).await.pop().expect("there are three"));
    eventually("a node is away", async || {
        sink.send(&messages).await;
        monitor.list()[0].unavailable_receivers == 1
    })
    .await;

    let mut changed = config(&urls, "orders");
    changed["maxlen"] = json!(1_000);
    let changed = serde_json::from_value(changed).expect("a good configuration");
    sinks.update("tested", &changed).await.expect("good settings");

    assert_eq!(monitor.list()[0].unavailable_receivers, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_slots_have_moved_is_not_unavailable_any_more() {
    let mut cluster = cluster().await;
    let urls = cluster.urls();
    let sinks = sinks(config(&urls, "orders"));
    let (sink, monitor) = (sinks.get("tested").expect("it is there"), sinks.monitor());
    // Each master has some of these streams.
    let messages: Vec<_> = (0..60).map(|number| to(&format!("orders-{number}"), order(number))).collect();
    assert!(sink.send(&messages).await.iter().all(Result::is_ok));
    let killed = masters(&urls).await.pop().expect("there are three");
    replicated(&killed).await;
    cluster.crash(&killed);
    eventually("a node is away", async || {
        sink.send(&messages).await;
        monitor.list()[0].unavailable_receivers == 1
    })
    .await;

    eventually("its replica has its slots", async || sink.send(&messages).await.iter().all(Result::is_ok)).await;

    assert_eq!(monitor.list()[0].unavailable_receivers, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_follows_its_stream_to_the_node_that_it_is_moved_to() {
    let cluster = cluster().await;
    let urls = cluster.urls();
    let masters = masters(&urls).await;
    let sink = sink(config(&urls, "orders"));
    let slot: u64 = ask(&masters[0], &["CLUSTER", "KEYSLOT", "moving"]).await;
    let slot = slot.to_string();
    // The owner is the master that has the key after a first message.
    assert_eq!(send_one(&*sink, to("moving", order(1))).await, Ok(()));
    let mut owner = None;
    for master in &masters {
        let keys: Vec<String> = ask(master, &["KEYS", "moving"]).await;
        if !keys.is_empty() {
            owner = Some(master);
        }
    }
    let from = owner.expect("it is on a master");
    let into = masters.iter().find(|master| *master != from).expect("there are three");
    let (from_id, into_id): (String, String) = (ask(from, &["CLUSTER", "MYID"]).await, ask(into, &["CLUSTER", "MYID"]).await);
    let _: String = ask(into, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
    let _: String = ask(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &into_id]).await;
    let _: u64 = ask(from, &["DEL", "moving"]).await;

    let messages: Vec<_> = (2..5).map(|number| to("moving", order(number))).collect();
    assert_eq!(sink.send(&messages).await, [Ok(()), Ok(()), Ok(())], "the slot is on its way");
    for node in [into, from] {
        let _: String = ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &into_id]).await;
    }
    assert_eq!(send_one(&*sink, to("moving", order(5))).await, Ok(()), "the slot has arrived");

    let mut bodies: Vec<_> = entries(into, "moving").await.iter().map(|entry| text(entry.get("body"))).collect();
    // The messages of one batch are sent again in any order: where order is kept, a batch has one message of each queue.
    bodies[..3].sort();
    assert_eq!(bodies, ["2", "3", "4", "5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_servers_that_are_no_cluster_are_refused_by_name() {
    let url = shared(Broker::Redis);
    let refused = send_one(&*sink(config(&[url.clone(), url], &unique("orders:"))), order(1)).await;
    let says_so = |reason: &str| reason.contains("belongs to no cluster; several addresses are");
    assert!(matches!(&refused, Err(SinkError::Down { reason, .. }) if says_so(reason)), "{refused:?}");
}
