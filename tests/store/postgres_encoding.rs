//! A database that does not store UTF-8.

use std::str::FromStr;

use outbox::PostgresStore;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{ListenerReport, Node, NodeStore, SchemaStore, StalledRoute, Store, StuckEvent, StuckEvents, StuckReason};
use outbox::time::Timestamp;
use sqlx::postgres::PgConnectOptions;
use support::{Harness, Postgres};

use crate::common::{LEASE, owner};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeat_with_characters_that_the_database_lacks_is_written() {
    const TEXT: &str = "refused… \"ü\" 🦀";
    let db = Postgres::empty().await;
    let name = format!("{}_latin1", db.schema());
    db.execute(&format!("CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")).await;
    let (server, _) = db.url().split_once("options=").expect("the harness sets the schema by options");
    let connect = PgConnectOptions::from_str(server).expect("good").database(&name);
    let store = PostgresStore::connect_with(PostgresOptions::from_options(connect)).await.expect("connects");
    store.migrate_up().await.expect("migrates");
    let since = Timestamp::from_micros(1_800_000_000_000_000);
    let stalled = StalledRoute::new("Order/*".to_owned(), "the sink orders".to_owned(), TEXT.to_owned(), since);
    let node = Node {
        report: Some(format!("[{}]", serde_json::json!(TEXT))),
        stuck: vec![StuckEvents::new(StuckReason::OutcomeRefused, 1, [StuckEvent::new(1, None, TEXT, since)])],
        listeners: ListenerReport::new("digest".to_owned(), [stalled]),
        ..Node::new(owner("host"), "here 1", "multi_node", "1.2.3")
    };

    store.heartbeat(&node, LEASE).await.expect("inserts the row");
    let renewed = store.heartbeat(&Node { is_registered: true, ..node.clone() }, LEASE).await.expect("renews the row");

    assert_eq!(renewed, 1);
    let read = store.nodes().await.expect("lists").remove(0);
    assert_eq!((read.stuck, read.listeners), (node.stuck, node.listeners));
    assert_eq!(serde_json::from_str::<Vec<String>>(&read.report.expect("it is written")).expect("JSON"), [TEXT]);
    store.close().await;
    db.execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
}
