//! The mode `ordered`: a takeover and the reads of the host that takes over, on a table with many events.

use outbox::MySqlStore;
use outbox::store::{NodeStore, PARTITIONS, PartitionStore, ReadOrder, ReadStore, SchemaStore};
use servers::{Database, Durability, Server};
use sqlx::{Connection, Executor, MySqlConnection};
use support::rows_read;

use crate::common::{beat, keep, kept, owner};
use crate::read_in_order::request;

/// Half of them are done.
const EVENTS: u64 = 40_000;
const INSERT: &str = "
INSERT INTO outbox_event (event_type, aggregate_type, payload, status, due_at, done_at)
WITH RECURSIVE n (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM n WHERE number < 199)
SELECT 'OrderPlaced', 'Order', '1', is_done, IF(is_done, NULL, UTC_TIMESTAMP(6)), IF(is_done, UTC_TIMESTAMP(6), NULL)
FROM n AS a CROSS JOIN n AS b CROSS JOIN (SELECT 1 AS is_done UNION ALL SELECT 0) AS halves WHERE b.number < 100";

/// No other program uses this server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_of_a_long_queue_reads_few_rows_on_mariadb() {
    let server = Server::start(Database::MariaDb, Durability::Volatile).expect("`cargo xtask test` installs it");
    let store = MySqlStore::connect(&server.url()).await.expect("connects");
    store.migrate_up().await.expect("migrates");
    let mut admin = MySqlConnection::connect(&server.url()).await.expect("connects");
    assert_eq!(admin.execute(INSERT).await.expect("writes").rows_affected(), EVENTS);
    let (first, second) = (owner("first"), owner("second"));
    assert_eq!(kept(&store, &first, PARTITIONS, PARTITIONS).await.len(), usize::from(PARTITIONS));
    beat(&store, &second).await;

    let before = rows_read(&mut admin).await;
    assert!(keep(&store, &second, PARTITIONS, PARTITIONS).await.is_empty(), "the first host lives");
    let by_standby = rows_read(&mut admin).await - before;
    store.leave(&first).await.expect("leaves");
    let before = rows_read(&mut admin).await;
    let taken = store.keep_partitions(&second, PARTITIONS, PARTITIONS).await.expect("takes over");
    let front = store.read(&request(&second, ReadOrder::OneForAll, &[])).await.expect("reads");
    let by_takeover = rows_read(&mut admin).await - before;

    assert_eq!((taken.len(), front.len()), (usize::from(PARTITIONS), 100));
    assert!(by_standby < EVENTS / 8, "{by_standby} rows are read by a look of a standby");
    assert!(by_takeover < EVENTS / 4, "{by_takeover} rows are read by a takeover, and for {} events", front.len());
}
