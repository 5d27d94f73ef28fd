//! A standby reads few rows, even if many events are due.

use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::{Node, NodeStore, PARTITIONS, PartitionStore, SchemaStore};
use outbox::{MySqlStore, Outbox};
use servers::{Database, Durability, Server};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use support::{Recorder, eventually, rows_read};

use crate::common::{HOUR, ROUTE, eager};

const EVENTS: u64 = 20_000;
const BACKLOG: &str = "
INSERT INTO outbox_event (event_type, aggregate_type, payload)
WITH RECURSIVE n (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM n WHERE number < 199)
SELECT 'OrderPlaced', 'Order', '1' FROM n AS a CROSS JOIN n AS b WHERE b.number < 100";

/// Until when a host is alive, in milliseconds; 0 before its first heartbeat.
async fn alive_until(admin: &mut MySqlConnection, owner: &str) -> i64 {
    let query = format!(
        "SELECT TIMESTAMPDIFF(MICROSECOND, '2026-01-01', alive_until) DIV 1000 FROM outbox_event_node WHERE owner = '{owner}'"
    );
    let row = admin.fetch_optional(AssertSqlSafe(query)).await.expect("reads");
    row.map_or(0, |row| row.try_get_unchecked(0).expect("a number"))
}

/// No other program uses this server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_reads_few_rows_of_a_long_queue_on_mariadb() {
    let server = Server::start(Database::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs it");
    let store = MySqlStore::connect(&server.url()).await.expect("connects");
    store.migrate_up().await.expect("migrates");
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    admin.execute(BACKLOG).await.expect("writes");
    let holder = OwnerId::generate("holder");
    store.heartbeat(&Node::new(holder.clone(), "holder", "ordered", "1"), HOUR).await.expect("writes a heartbeat");
    let held = store.keep_partitions(&holder, PARTITIONS, PARTITIONS).await.expect("keeps them");
    assert_eq!(held.len(), usize::from(PARTITIONS));

    let recorder = Recorder::done();
    let dispatcher =
        DispatcherConfig { lease: Duration::from_secs(1), deadline: Duration::from_millis(900), ..DispatcherConfig::default() };
    let standby = Outbox::ordered(store).poller(eager()).dispatcher(dispatcher).listener(ROUTE, recorder.listener());
    let standby = standby.start().await.expect("starts");
    let owner = standby.owner().as_str().to_owned();
    eventually("it is alive", async || alive_until(&mut admin, &owner).await > 0).await;
    let (began, before) = (alive_until(&mut admin, &owner).await, rows_read(&mut admin).await);
    // It looks every 50 ms meanwhile.
    eventually("it was alive for two seconds", async || alive_until(&mut admin, &owner).await >= began + 2_000).await;
    let read = rows_read(&mut admin).await - before;

    // Two walks over what is due; each look of the fault is one. Measured without it: 10,000 rows, most of them of partitions.
    assert!(read < 2 * EVENTS, "{read} rows were read");
    assert_eq!(recorder.count(), 0, "another host has the table for itself");
    standby.shutdown().await;
}
