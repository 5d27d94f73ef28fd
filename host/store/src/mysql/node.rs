//! The hosts that work on the table.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::OwnerId;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::patience::patiently;
use super::primary::on_primary;
use super::{MySqlStore, Run};
use crate::row::Named;
use crate::run::commit_or_roll_back;
use crate::settle::delay_micros;
use crate::{Node, NodeRecord, NodeStore, Peer, StoreError, row};

/// Bound: owner, label, mode, version, the lease in microseconds, its report, the events that are stuck, its listeners,
/// its room, whether it has a session, and the last six again.
const REGISTER: &str = "
INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, report, stuck, listeners, room, session)
VALUES (?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE alive_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, report = ?,
                        stuck = ?, listeners = ?, room = ?, session = ?";

/// Finds no row if the host has left. Bound: the lease in microseconds and the next five as above, the owner.
const RENEW: &str = "
UPDATE outbox_event_node
SET alive_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, report = ?, stuck = ?, listeners = ?, room = ?, session = ?
WHERE owner = ?";

/// How many other hosts share the work. Bound: the mode, the owner.
const OTHERS: &str = "
SELECT CAST(COALESCE(SUM(mode = ? AND room > 0 AND owner <> ? AND alive_until > UTC_TIMESTAMP(6)), 0) AS SIGNED) AS others,
       CAST(COALESCE(SUM(alive_until < UTC_TIMESTAMP(6) - INTERVAL 1 DAY), 0) AS SIGNED) AS gone
FROM outbox_event_node";

/// The hosts to delete. A host that owns partitions stays, since its row says that they are free. Asked apart: a DELETE would lock the
/// rows of partitions that it reads.
const FORGOTTEN: &str = "
SELECT owner FROM outbox_event_node
WHERE alive_until < UTC_TIMESTAMP(6) - INTERVAL 1 DAY
  AND owner NOT IN (SELECT part.owner FROM outbox_event_partition AS part WHERE part.owner IS NOT NULL)";

/// Bound: the owner.
const FORGET: &str = "DELETE FROM outbox_event_node WHERE owner = ? AND alive_until < UTC_TIMESTAMP(6) - INTERVAL 1 DAY";

const LEAVE: &str = "DELETE FROM outbox_event_node WHERE owner = ?";

const FREE_PARTITIONS: &str = "UPDATE outbox_event_partition SET owner = NULL WHERE owner = ?";

/// Leaves out hosts that have been gone for too long, in case no heartbeat has deleted them. A report of more than 1 MiB is
/// not read.
const NODES: &str = concat!(
    "
SELECT owner, label, mode, version,
       CASE WHEN alive_until > UTC_TIMESTAMP(6) AND OCTET_LENGTH(report) <= 1048576 THEN report END AS report,
       CASE WHEN alive_until > UTC_TIMESTAMP(6) THEN stuck END AS stuck,
       CASE WHEN alive_until > UTC_TIMESTAMP(6) THEN listeners END AS listeners,
       room, session,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', started_at) AS started_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', alive_until) AS alive_until, alive_until > UTC_TIMESTAMP(6) AS alive,
       (SELECT COUNT(*) FROM outbox_event_partition AS held WHERE held.owner = node.owner) AS partitions
FROM outbox_event_node AS node WHERE ",
    on_primary!(),
    " AND alive_until >= UTC_TIMESTAMP(6) - INTERVAL 1 DAY ORDER BY node.started_at, owner"
);

/// Bound: the most bytes of a report, the owner, the mode, the most hosts.
const PEERS: &str = concat!(
    "
SELECT label, room, CASE WHEN OCTET_LENGTH(listeners) <= ? THEN listeners END AS listeners FROM outbox_event_node
WHERE ",
    on_primary!(),
    " AND alive_until > UTC_TIMESTAMP(6) AND owner <> ? AND mode = ? ORDER BY owner LIMIT ?"
);

#[async_trait]
impl NodeStore for MySqlStore {
    /// Not one transaction: each host writes its own row and reads all, and in a transaction they would wait for each other. The host's own
    /// row comes last: a host that looked alive although its heartbeat failed would not be taken over.
    async fn heartbeat(&self, node: &Node, lease: Duration) -> Result<u32, StoreError> {
        let (store, action, lease) = (&self.keeping(), "say that this host is alive", delay_micros(lease));
        let count = |row: &MySqlRow| Ok((row.count::<u32>("others")?, row.count::<u64>("gone")?));
        let statement = store.statement(OTHERS).bind(node.mode).bind(node.owner.as_str());
        let (others, gone) = store.read_one(action, statement, count).await?;
        if gone > 0
            && let Err(error) = forget(store).await
        {
            tracing::debug!(
                target: "outbox::store::mysql",
                %error,
                "hosts that are gone for a day could not be deleted; retrying with the next heartbeat"
            );
        }
        let (report, (stuck, listeners, room, session)) = (node.report.as_deref(), node.columns());
        let (stuck, listeners) = (stuck.as_deref(), &*listeners);
        if node.is_registered {
            let statement = store.statement(RENEW).bind(lease).bind(report).bind(stuck).bind(listeners);
            let renewed = store.execute(action, statement.bind(room).bind(session).bind(node.owner.as_str())).await?;
            return Ok(if renewed > 0 { others.saturating_add(1) } else { 0 });
        }
        let statement = store.statement(REGISTER).bind(node.owner.as_str()).bind(&node.label).bind(node.mode);
        let statement = statement.bind(node.version);
        let statement = statement.bind(lease).bind(report).bind(stuck).bind(listeners).bind(room).bind(session);
        let statement = statement.bind(lease).bind(report).bind(stuck).bind(listeners).bind(room).bind(session);
        store.execute(action, statement).await?;
        Ok(others.saturating_add(1))
    }

    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError> {
        patiently(&self.keeping(), || try_leave(self, owner)).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        let node = |row: &MySqlRow| row::node(row, row.count::<u64>("alive")? > 0);
        self.read_all("list hosts", self.statement(NODES), node).await
    }

    async fn peers(&self, node: &Node) -> Result<Vec<Peer>, StoreError> {
        let store = &self.keeping();
        let statement = store.statement(PEERS).bind(Peer::MOST_BYTES).bind(node.owner.as_str()).bind(node.mode);
        store.read_all("look at the other hosts", statement.bind(Peer::MOST), row::peer).await
    }
}

async fn forget(store: &MySqlStore) -> Result<(), StoreError> {
    let action = "delete hosts that are gone";
    for owner in store.read_all(action, store.statement(FORGOTTEN), |row| row.string("owner")).await? {
        store.execute(action, store.statement(FORGET).bind(owner)).await?;
    }
    Ok(())
}

async fn try_leave(store: &MySqlStore, owner: &OwnerId) -> Result<(), StoreError> {
    let store = &store.keeping();
    let mut transaction = store.transaction().await?;
    let left = release_partitions_and_leave(store, &mut transaction, owner).await;
    commit_or_roll_back(store, transaction, left).await
}

async fn release_partitions_and_leave(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
) -> Result<(), StoreError> {
    for sql in [FREE_PARTITIONS, LEAVE] {
        let left = store.statement(sql).bind(owner.as_str()).execute(&mut *connection).await;
        left.map_err(|error| store.failed("forget this host", error))?;
    }
    Ok(())
}
