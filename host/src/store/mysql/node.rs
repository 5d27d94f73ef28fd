//! The hosts that work on the table.

use std::time::Duration;

use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::MySqlStore;
use super::row::column;
use super::transaction::{self, Patience};
use crate::event::OwnerId;
use crate::store::settlement::delay_micros;
use crate::store::{Node, NodeRecord, StoreError};
use crate::time::Timestamp;

/// Bound: owner, label, mode, version, the lease in microseconds, plugins, and both again.
const HEARTBEAT: &str = "
INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, plugins)
VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?)
ON DUPLICATE KEY UPDATE alive_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, plugins = COALESCE(?, plugins)";

/// Bound: the mode.
const LIVE: &str = "
SELECT CAST(COALESCE(SUM(mode = ? AND alive_until > UTC_TIMESTAMP(6)), 0) AS SIGNED) AS live,
       CAST(COALESCE(SUM(alive_until < UTC_TIMESTAMP(6) - INTERVAL 1 DAY), 0) AS SIGNED) AS gone
FROM outbox_event_node";

const FORGET: &str = "DELETE FROM outbox_event_node WHERE alive_until < UTC_TIMESTAMP(6) - INTERVAL 1 DAY";

const LEAVE: &str = "DELETE FROM outbox_event_node WHERE owner = ?";

const FREE_PARTITIONS: &str = "UPDATE outbox_event_partition SET owner = NULL, lease_end = NULL WHERE owner = ?";

/// Nobody may have beaten since a node was gone for too long.
const NODES: &str = "
SELECT owner, label, mode, version, CASE WHEN alive_until > UTC_TIMESTAMP(6) THEN plugins END AS plugins,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', started_at) AS started_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', alive_until) AS alive_until, alive_until > UTC_TIMESTAMP(6) AS alive,
       (SELECT COUNT(*) FROM outbox_event_partition AS held
        WHERE held.owner = node.owner AND held.lease_end > UTC_TIMESTAMP(6)) AS partitions
FROM outbox_event_node AS node WHERE alive_until >= UTC_TIMESTAMP(6) - INTERVAL 1 DAY ORDER BY node.started_at, owner";

/// Not one transaction: each node writes its own row and reads all, and in a transaction they would wait for each other.
pub(super) async fn heartbeat(store: &MySqlStore, node: &Node, lease: Duration) -> Result<u32, StoreError> {
    let failed = |error| store.failed("say that this node is alive", error);
    sqlx::query(store.table.sql(HEARTBEAT))
        .bind(node.owner.as_str())
        .bind(&node.label)
        .bind(node.mode)
        .bind(node.version)
        .bind(delay_micros(lease))
        .bind(node.plugins.as_deref())
        .bind(delay_micros(lease))
        .bind(node.plugins.as_deref())
        .execute(&store.keeper)
        .await
        .map_err(failed)?;
    let row = sqlx::query(store.table.sql(LIVE)).bind(node.mode).fetch_one(&store.keeper).await.map_err(failed)?;
    if column::<u64>(&row, "gone").map_err(failed)? > 0 {
        sqlx::query(store.table.sql(FORGET)).execute(&store.keeper).await.map_err(failed)?;
    }
    column(&row, "live").map_err(failed)
}

pub(super) async fn leave(store: &MySqlStore, owner: &OwnerId) -> Result<(), StoreError> {
    let mut patience = Patience::new();
    loop {
        match try_leave(store, owner).await {
            Err(error) if patience.allows(&error).await => {}
            result => return result,
        }
    }
}

async fn try_leave(store: &MySqlStore, owner: &OwnerId) -> Result<(), StoreError> {
    let mut transaction = transaction::begin_on(store, &store.keeper).await?;
    for statement in [FREE_PARTITIONS, LEAVE] {
        sqlx::query(store.table.sql(statement))
            .bind(owner.as_str())
            .execute(&mut *transaction)
            .await
            .map_err(|error| store.failed("forget this node", error))?;
    }
    transaction::commit(transaction).await
}

pub(super) async fn nodes(store: &MySqlStore) -> Result<Vec<NodeRecord>, StoreError> {
    let failed = |error| store.failed("list nodes", error);
    let rows = sqlx::query(store.table.sql(NODES)).fetch_all(&store.pool).await.map_err(failed)?;
    rows.iter().map(node).collect::<Result<_, sqlx::Error>>().map_err(failed)
}

fn node(row: &MySqlRow) -> Result<NodeRecord, sqlx::Error> {
    Ok(NodeRecord {
        owner: row.try_get("owner")?,
        label: row.try_get("label")?,
        mode: row.try_get("mode")?,
        version: row.try_get("version")?,
        started_at: Timestamp::from_micros(row.try_get("started_at")?),
        alive_until: Timestamp::from_micros(row.try_get("alive_until")?),
        alive: row.try_get::<i64, _>("alive")? != 0,
        partitions: column(row, "partitions")?,
        plugins: row.try_get("plugins")?,
    }
    .bounded())
}
