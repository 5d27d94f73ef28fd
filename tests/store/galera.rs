//! A Galera cluster: a node may apply late what another node has committed.

use outbox::MySqlStore;
use outbox::store::{PARTITIONS, ReadOrder, ReadStore, SchemaStore};
use servers::{Database, Durability, Server};
use sqlx::mysql::MySqlRow;
use sqlx::{Connection, Executor, MySqlConnection, Row};
use support::eventually;

use crate::common::{kept, owner};
use crate::read_in_order::request;

const INSERT: &str = "INSERT INTO outbox_event (event_type, payload) VALUES ('OrderPlaced', '1'), ('OrderPaid', '2')";
const FINISH: &str = "UPDATE outbox_event SET status = 1, due_at = NULL, done_at = UTC_TIMESTAMP(6)";
const UNFINISHED: &str = "SELECT COUNT(*) FROM outbox_event WHERE due_at IS NOT NULL";
/// Statements of other sessions on the events, while they run. A prepared statement waits when it is prepared and when it is executed.
const RUNNING: &str = "
SELECT COUNT(*) FROM information_schema.PROCESSLIST
WHERE USER = 'outbox' AND COMMAND IN ('Prepare', 'Execute', 'Query') AND INFO LIKE '%outbox_event%' AND ID <> CONNECTION_ID()";

/// Connects to a node when both nodes have joined.
async fn session(node: &Server) -> MySqlConnection {
    let url = node.url();
    eventually("the cluster has two nodes", async || match MySqlConnection::connect(&url).await {
        Ok(mut session) => cluster_size(&mut session).await.as_deref() == Some("2"),
        Err(_) => false,
    })
    .await;
    MySqlConnection::connect(&url).await.expect("connects")
}

/// The number of nodes; `None` while this node takes no statements.
async fn cluster_size(session: &mut MySqlConnection) -> Option<String> {
    let ready = session.fetch_one("SHOW STATUS LIKE 'wsrep_ready'").await.ok()?;
    let size = session.fetch_one("SHOW STATUS LIKE 'wsrep_cluster_size'").await.ok()?;
    let value = |row: &MySqlRow| row.try_get_unchecked::<String, _>(1).ok();
    (value(&ready)? == "ON").then(|| value(&size)).flatten()
}

async fn count(session: &mut MySqlConnection, sql: &'static str) -> i64 {
    let row = session.fetch_one(sql).await.expect("answers");
    row.try_get_unchecked(0).expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a cluster of two servers; run by `.ci/nightly`"]
async fn a_read_from_a_node_that_applies_late_returns_no_event_that_is_done() {
    let mut first = Server::start(Database::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs it");
    MySqlStore::connect(&first.url()).await.expect("connects").migrate_up().await.expect("migrates");
    let second = first.second_node().expect("Debian's package of the server needs Galera");
    let (mut writer, mut late) = (session(&first).await, session(&second).await);
    let (store, host) = (MySqlStore::connect(&second.url()).await.expect("connects"), owner("host"));
    assert_eq!(kept(&store, &host, PARTITIONS, PARTITIONS).await.len(), usize::from(PARTITIONS));
    let request = request(&host, ReadOrder::OneForAll, &[]);
    writer.execute(INSERT).await.expect("writes");
    assert_eq!(store.read(&request).await.expect("reads").len(), 2, "it waits until they are applied");

    // A node applies nothing while a session has this lock.
    late.execute("FLUSH TABLES WITH READ LOCK").await.expect("locks");
    assert_eq!(writer.execute(FINISH).await.expect("writes").rows_affected(), 2);
    assert_eq!(count(&mut late, UNFINISHED).await, 2, "this session does not wait");
    let reading = tokio::spawn(async move { store.read(&request).await });
    eventually("the read waits for what the other node has committed", async || {
        assert!(!reading.is_finished(), "it reads events that the other node has finished");
        count(&mut late, RUNNING).await > 0
    })
    .await;
    late.execute("UNLOCK TABLES").await.expect("unlocks");

    let read = reading.await.expect("does not panic").expect("reads");
    assert_eq!(read.len(), 0, "both events are done");
}
