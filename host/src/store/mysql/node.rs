//! The hosts that work on the table.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;

use super::MySqlStore;
use super::transaction::{self, Patience};
use crate::event::OwnerId;
use crate::store::row::Named;
use crate::store::settle::delay_micros;
use crate::store::{Node, NodeRecord, NodeStore, StoreError, row};

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

#[async_trait]
impl NodeStore for MySqlStore {
    /// Not one transaction: each node writes its own row and reads all, and in a transaction they would wait for each other.
    async fn heartbeat(&self, node: &Node, lease: Duration) -> Result<u32, StoreError> {
        let failed = |error| self.failed("say that this node is alive", error);
        sqlx::query(self.table.sql(HEARTBEAT))
            .bind(node.owner.as_str())
            .bind(&node.label)
            .bind(node.mode)
            .bind(node.version)
            .bind(delay_micros(lease))
            .bind(node.plugins.as_deref())
            .bind(delay_micros(lease))
            .bind(node.plugins.as_deref())
            .execute(&self.keeper)
            .await
            .map_err(failed)?;
        let row = sqlx::query(self.table.sql(LIVE)).bind(node.mode).fetch_one(&self.keeper).await.map_err(failed)?;
        if row.count::<u64>("gone").map_err(failed)? > 0 {
            sqlx::query(self.table.sql(FORGET)).execute(&self.keeper).await.map_err(failed)?;
        }
        row.count("live").map_err(failed)
    }

    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError> {
        let mut patience = Patience::new();
        loop {
            match try_leave(self, owner).await {
                Err(error) if patience.allows(&error).await => {}
                result => return result,
            }
        }
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        let failed = |error| self.failed("list nodes", error);
        let rows = sqlx::query(self.table.sql(NODES)).fetch_all(&self.pool).await.map_err(failed)?;
        rows.iter()
            .map(|row| row::node(row, row.try_get::<i64, _>("alive")? != 0))
            .collect::<Result<_, sqlx::Error>>()
            .map_err(failed)
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
