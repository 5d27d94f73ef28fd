//! The hosts that work on the table.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::OwnerId;
use outbox_event::time::micros;

use super::error::failed;
use super::{Run, SqliteStore, TransactionalStore};
use crate::row::Named;
use crate::{Node, NodeRecord, NodeStore, Peer, StoreError, row};

/// ?1 to ?4 owner, label, mode, version, ?5 now, ?6 until when it is taken to be alive, ?7 its report, ?8 the events
/// that are stuck, ?9 its listeners, ?10 and ?11 its room and whether it has a session.
const REGISTER: &str = "
INSERT INTO outbox_event_node (owner, label, mode, version, started_at, alive_until, report, stuck, listeners, room, session)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
ON CONFLICT (owner) DO UPDATE
SET alive_until = excluded.alive_until, report = excluded.report,
    stuck = excluded.stuck, listeners = excluded.listeners, room = excluded.room, session = excluded.session";

/// Finds no row if the host has left. ?1 to ?11 as above.
const RENEW: &str = "
UPDATE outbox_event_node
SET alive_until = ?6, report = ?7, stuck = ?8, listeners = ?9, room = ?10, session = ?11
WHERE owner = ?1";

/// A host that owns partitions is not deleted, since its row says that they are free. ?1 the oldest time that is kept.
const FORGET: &str = "
DELETE FROM outbox_event_node
WHERE alive_until < ?1 AND owner NOT IN (SELECT owner FROM outbox_event_partition WHERE owner IS NOT NULL)";

/// ?1 the mode, ?2 the owner, ?3 now.
const LIVE: &str = "
SELECT count(*) AS live FROM outbox_event_node WHERE alive_until > ?3 AND mode = ?1 AND (room > 0 OR owner = ?2)";

const LEAVE: &str = "DELETE FROM outbox_event_node WHERE owner = ?1";

const FREE_PARTITIONS: &str = "UPDATE outbox_event_partition SET owner = NULL WHERE owner = ?1";

/// Leaves out hosts that have been gone for too long, in case no heartbeat has deleted them. A report of more than 1 MiB is
/// not read. ?1 now, ?2 the oldest time that is kept.
const NODES: &str = "
SELECT owner, label, mode, version, started_at, alive_until,
       CASE WHEN alive_until > ?1 AND octet_length(report) <= 1048576 THEN report END AS report,
       CASE WHEN alive_until > ?1 THEN stuck END AS stuck,
       CASE WHEN alive_until > ?1 THEN listeners END AS listeners,
       room, session,
       (SELECT count(*) FROM outbox_event_partition AS held WHERE held.owner = node.owner) AS partitions
FROM outbox_event_node AS node WHERE alive_until >= ?2 ORDER BY started_at, owner";

/// ?1 now, ?2 the owner, ?3 the mode, ?4 the most bytes of a report, ?5 the most hosts.
const PEERS: &str = "
SELECT label, room, CASE WHEN octet_length(listeners) <= ?4 THEN listeners END AS listeners FROM outbox_event_node
WHERE alive_until > ?1 AND owner <> ?2 AND mode = ?3 ORDER BY owner LIMIT ?5";

pub(super) const DAY: i64 = 24 * 3_600 * 1_000_000;

#[async_trait]
impl NodeStore for SqliteStore {
    async fn heartbeat(&self, node: &Node, lease: Duration) -> Result<u32, StoreError> {
        let failed = |error| failed("say that this host is alive", error);
        let mut transaction = self.begin().await?;
        // Only now: while others had the writer, time went by.
        let now = self.now_micros();
        let sql = if node.is_registered { RENEW } else { REGISTER };
        let statement = self.statement(sql).bind(node.owner.as_str()).bind(&node.label).bind(node.mode).bind(node.version);
        let statement = statement.bind(now).bind(now.saturating_add(micros(lease))).bind(node.report.as_deref());
        let (stuck, listeners, room, session) = node.columns();
        let statement = statement.bind(stuck).bind(listeners).bind(room).bind(session);
        let is_written = statement.execute(&mut *transaction).await.map_err(failed)?.rows_affected() > 0;
        self.statement(FORGET).bind(now.saturating_sub(DAY)).execute(&mut *transaction).await.map_err(failed)?;
        let statement = self.statement(LIVE).bind(node.mode).bind(node.owner.as_str()).bind(now);
        let row = statement.fetch_one(&mut *transaction).await.map_err(failed)?;
        self.finish(transaction).await?;
        if is_written { row.count("live").map_err(failed) } else { Ok(0) }
    }

    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        for sql in [FREE_PARTITIONS, LEAVE] {
            let left = self.statement(sql).bind(owner.as_str()).execute(&mut *transaction).await;
            left.map_err(|error| failed("forget this host", error))?;
        }
        self.finish(transaction).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        let now = self.clock.now();
        let statement = self.statement(NODES).bind(now.as_micros()).bind(now.as_micros().saturating_sub(DAY));
        self.read_all("list hosts", statement, |row| row::node(row, row.moment("alive_until")? > now)).await
    }

    async fn peers(&self, node: &Node) -> Result<Vec<Peer>, StoreError> {
        let statement = self.statement(PEERS).bind(self.clock.now().as_micros()).bind(node.owner.as_str()).bind(node.mode);
        let statement = statement.bind(Peer::MOST_BYTES).bind(Peer::MOST);
        self.read_all("look at the other hosts", statement, row::peer).await
    }
}
