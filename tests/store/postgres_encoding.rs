//! A database that does not store UTF-8.

use std::str::FromStr;

use outbox::PostgresStore;
use outbox::store::postgres::PostgresOptions;
use outbox::store::{
    Filter, InspectStore, ListenerReport, Node, NodeStore, SchemaStore, StalledRoute, Store, StuckEvent, StuckEvents,
    StuckReason,
};
use outbox::time::Timestamp;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection, Executor};
use support::{Harness, Postgres};

use crate::common::{LEASE, owner};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeat_with_characters_that_the_database_lacks_is_written() {
    const TEXT: &str = "refused… \"ü\" 🦀";
    let db = Postgres::empty().await;
    let other = Other::create(&db, "LATIN1").await;
    let store = other.store().await;
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
    other.drop(&db).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_hosts_cannot_read_is_refused() {
    const OF_WRITERS: [&str; 6] = ["event_type", "aggregate_type", "aggregate_id", "tenant_id", "headers", "content_type"];
    const OF_HOSTS: [&str; 4] = ["parked", "last_error", "wait_reason", "last_cost"];
    let db = Postgres::empty().await;
    for (encoding, reason) in
        [("SQL_ASCII", "invalid byte sequence for encoding \"UTF8\""), ("WIN1252", "has no equivalent in encoding \"UTF8\"")]
    {
        let other = Other::create(&db, encoding).await;
        let store = other.store().await;
        let mut connection = PgConnection::connect_with(&other.options).await.expect("connects");
        let insert = |column: &str, value: &str| {
            let rest: Vec<&str> = ["event_type", "payload"].into_iter().filter(|required| *required != column).collect();
            let (columns, values) = (rest.join(", "), vec!["'a'"; rest.len()].join(", "));
            AssertSqlSafe(format!("INSERT INTO outbox_event ({column}, {columns}) VALUES ({value}, {values})"))
        };

        for column in OF_WRITERS.into_iter().chain(OF_HOSTS) {
            let refused = connection.execute(insert(column, "chr(129)")).await.expect_err("hosts cannot read it").to_string();
            assert!(refused.contains(reason), "{encoding}, {column}: {refused}");
        }
        for column in OF_WRITERS {
            let text = if encoding == "SQL_ASCII" { "chr(195) || chr(188)" } else { "chr(252)" };
            connection.execute(insert(column, text)).await.unwrap_or_else(|error| panic!("{encoding}, {column}: {error}"));
        }

        let read = store.list(&Filter::default(), 100).await.expect("reads every row");
        assert_eq!(read.len(), OF_WRITERS.len());
        connection.close().await.expect("closes");
        store.close().await;
        other.drop(&db).await;
    }
}

/// A database with an encoding of its own.
struct Other {
    name: String,
    options: PgConnectOptions,
}

impl Other {
    async fn create(db: &Postgres, encoding: &str) -> Self {
        let name = format!("{}_{}", db.schema(), encoding.to_lowercase());
        db.execute(&format!("CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")).await;
        let (server, _) = db.url().split_once("options=").expect("the harness sets the schema by options");
        let options = PgConnectOptions::from_str(server).expect("good").database(&name);
        Self { name, options }
    }

    /// Its store, with the tables of the outbox.
    async fn store(&self) -> PostgresStore {
        let store = PostgresStore::connect_with(PostgresOptions::from_options(self.options.clone())).await.expect("connects");
        store.migrate_up().await.expect("migrates");
        store
    }

    async fn drop(self, db: &Postgres) {
        db.execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}
