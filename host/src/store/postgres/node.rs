//! The hosts that work on the table.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::row::{count, time};
use crate::event::OwnerId;
use crate::store::settlement::delay_micros;
use crate::store::{Node, NodeRecord, StoreError};

/// A statement does not see what it writes: this node is counted by itself. Nodes that another one is just forgetting are
/// stepped over. $1 to $4 owner, label, mode, version, $5 the lease in microseconds, $6 its plugins.
const HEARTBEAT: &str = "
WITH alive AS (
  INSERT INTO outbox_event_node AS node (owner, label, mode, version, started_at, alive_until, plugins)
  VALUES ($1::text, $2::text, $3::text, $4::text, now(), now() + $5::bigint * interval '1 microsecond', $6::text)
  ON CONFLICT (owner) DO UPDATE SET alive_until = excluded.alive_until, plugins = coalesce(excluded.plugins, node.plugins)),
forgotten AS (
  DELETE FROM outbox_event_node
  WHERE owner = ANY (ARRAY (SELECT owner FROM outbox_event_node
                            WHERE alive_until < now() - interval '1 day' AND owner <> $1::text FOR UPDATE SKIP LOCKED)))
SELECT 1 + count(*) AS live FROM outbox_event_node WHERE mode = $3::text AND alive_until > now() AND owner <> $1::text";

/// $1 the owner.
const LEAVE: &str = "
WITH freed AS (UPDATE outbox_event_partition SET owner = NULL, lease_end = NULL WHERE owner = $1::text)
DELETE FROM outbox_event_node WHERE owner = $1::text";

const NODES: &str = "
SELECT owner, label, mode, version, started_at, alive_until, alive_until > now() AS alive,
       CASE WHEN alive_until > now() THEN plugins END AS plugins,
       (SELECT count(*) FROM outbox_event_partition AS held WHERE held.owner = node.owner AND held.lease_end > now()) AS partitions
FROM outbox_event_node AS node WHERE alive_until >= now() - interval '1 day' ORDER BY started_at, owner";

pub(super) async fn heartbeat(store: &PostgresStore, node: &Node, lease: Duration) -> Result<u32, StoreError> {
    let action = "say that this node is alive";
    let statement = store
        .statement(HEARTBEAT)
        .bind(node.owner.as_str())
        .bind(&node.label)
        .bind(node.mode)
        .bind(node.version)
        .bind(delay_micros(lease))
        .bind(node.plugins.as_deref());
    let row = store.one(action, statement).await?;
    let live = count(&row, "live").map_err(|error| store.failed(action, error))?;
    Ok(u32::try_from(live).unwrap_or(u32::MAX))
}

pub(super) async fn leave(store: &PostgresStore, owner: &OwnerId) -> Result<(), StoreError> {
    store.execute("forget this node", store.statement(LEAVE).bind(owner.as_str())).await?;
    Ok(())
}

pub(super) async fn nodes(store: &PostgresStore) -> Result<Vec<NodeRecord>, StoreError> {
    let action = "list nodes";
    let rows = store.all(action, store.statement(NODES)).await?;
    rows.iter().map(node).collect::<Result<_, _>>().map_err(|error| store.failed(action, error))
}

fn node(row: &PgRow) -> Result<NodeRecord, sqlx::Error> {
    Ok(NodeRecord {
        owner: row.try_get("owner")?,
        label: row.try_get("label")?,
        mode: row.try_get("mode")?,
        version: row.try_get("version")?,
        started_at: time(row, "started_at")?,
        alive_until: time(row, "alive_until")?,
        alive: row.try_get("alive")?,
        partitions: u16::try_from(count(row, "partitions")?).unwrap_or(u16::MAX),
        plugins: row.try_get("plugins")?,
    }
    .bounded())
}
