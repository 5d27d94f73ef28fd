//! Which host delivers which part of the table.

use async_trait::async_trait;
use outbox_event::OwnerId;
use serde_json::json;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::patience::patiently;
use super::primary::on_primary;
use super::{MySqlStore, Run};
use crate::number::numbers;
use crate::partition::held_rows;
use crate::run::commit_or_roll_back;
use crate::{HeldPartition, PartitionFaults, PartitionStore, StoreError};

const HELD: &str = "SELECT partition_id, epoch, 0 FROM outbox_event_partition WHERE owner = ? ORDER BY partition_id";

/// The owners of free partitions, and whether each is a host, without a lock: NULL for partitions without an owner. Bound: the number
/// of partitions, the owner.
const FREE_OF: &str = "
SELECT DISTINCT part.owner, node.owner IS NOT NULL
FROM outbox_event_partition AS part LEFT JOIN outbox_event_node AS node ON node.owner = part.owner
WHERE part.partition_id < ? AND (part.owner IS NULL
  OR (part.owner <> ? AND (node.owner IS NULL OR node.alive_until <= UTC_TIMESTAMP(6))))";

/// Of these hosts, those that are not alive. Locks their rows, so that a heartbeat of such a host either comes first, or waits until
/// its partitions have their new owner. Bound: the hosts as a JSON list.
const GONE: &str = "
SELECT owner FROM outbox_event_node
WHERE alive_until <= UTC_TIMESTAMP(6)
  AND owner IN (SELECT host.owner
                FROM JSON_TABLE(?, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS host)
FOR UPDATE SKIP LOCKED";

/// Changes the rows that [`GONE`] has locked: the servers of a cluster do not see each other's locks, and refuse one of two
/// transactions that write the same row. Bound: the hosts as a JSON list.
const TOUCH_GONE: &str = "
UPDATE outbox_event_node SET alive_until = alive_until - INTERVAL 1 MICROSECOND
WHERE owner IN (SELECT host.owner
                FROM JSON_TABLE(?, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS host)";

/// With the epoch that each gets when it is taken. Locks each one's entry in the index, and skips the entries that outcomes
/// have locked: see `settle.rs`. Bound: the number of partitions, the owners whose partitions are free as a JSON list, most to take.
const FREE: &str = "
SELECT partition_id, epoch + 1, owner IS NOT NULL FROM outbox_event_partition FORCE INDEX (outbox_epoch)
WHERE partition_id < ? AND (owner IS NULL
  OR owner IN (SELECT gone.owner
               FROM JSON_TABLE(?, '$[*]' COLUMNS (owner VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) AS gone))
ORDER BY partition_id LIMIT ?
FOR UPDATE SKIP LOCKED";

/// The partitions are locked already. Bound: partitions as a JSON list, the owner.
const TAKE: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (partition_id SMALLINT PATH '$')) AS free
STRAIGHT_JOIN outbox_event_partition FORCE INDEX (PRIMARY) ON outbox_event_partition.partition_id = free.partition_id
SET owner = ?, epoch = epoch + 1";

/// Bound: rows of [number, epoch], the owner.
const RELEASE: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (number SMALLINT PATH '$[0]', epoch INT PATH '$[1]')) AS held
STRAIGHT_JOIN outbox_event_partition AS part FORCE INDEX (PRIMARY) ON part.partition_id = held.number
SET part.owner = NULL WHERE part.owner = ? AND part.epoch = held.epoch";

const FAULTS: &str = concat!(
    "
SELECT CAST(256 - COALESCE(SUM(partition_id BETWEEN 0 AND 255), 0) AS SIGNED) AS missing,
       CAST(COALESCE(SUM(partition_id NOT BETWEEN 0 AND 255), 0) AS SIGNED) AS surplus
FROM outbox_event_partition WHERE ",
    on_primary!()
);

/// The epoch is above that of each row that is there, and of each deleted one: the seconds of a clock grow faster than epochs. But if
/// rows are deleted twice within a second, an epoch can come again. So the row has an owner that is no host: the host that takes the
/// partition treats it as abandoned, and claims its events.
const ADD_MISSING: &str = "
INSERT IGNORE INTO outbox_event_partition (partition_id, owner, epoch)
WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number, 'deleted',
       GREATEST((SELECT COALESCE(MAX(epoch) + 1, 0) FROM outbox_event_partition AS there),
                TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()))
FROM numbers WHERE NOT EXISTS (SELECT 1 FROM outbox_event_partition AS there WHERE there.partition_id = number)";

const REMOVE_SURPLUS: &str = "DELETE FROM outbox_event_partition WHERE partition_id NOT BETWEEN 0 AND 255";

#[async_trait]
impl PartitionStore for MySqlStore {
    async fn keep_partitions(&self, owner: &OwnerId, most: u16, of: u16) -> Result<Vec<HeldPartition>, StoreError> {
        patiently(&self.keeping(), || try_keep(self, owner, most, of)).await
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
        patiently(self, || try_release(self, owner, partitions)).await
    }

    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError> {
        self.keeping().read_one("look at the partition table", self.statement(FAULTS), PartitionFaults::of_row).await
    }

    async fn restore_partitions(&self) -> Result<PartitionFaults, StoreError> {
        patiently(self, || try_restore(self)).await
    }
}

async fn try_release(store: &MySqlStore, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
    let store = &store.keeping();
    let statement = store.statement(RELEASE).bind(held_rows(partitions)).bind(owner.as_str());
    store.execute("give partitions back", statement).await.map(drop)
}

async fn try_restore(store: &MySqlStore) -> Result<PartitionFaults, StoreError> {
    let (store, action) = (&store.keeping(), "restore the partition table");
    let found = store.partition_faults().await?;
    if found.missing > 0 {
        store.execute(action, store.statement(ADD_MISSING)).await?;
    }
    if found.surplus > 0 {
        store.execute(action, store.statement(REMOVE_SURPLUS)).await?;
    }
    Ok(found)
}

/// In a transaction also when nothing is free: a proxy may send a statement that only reads to a replica.
async fn try_keep(store: &MySqlStore, owner: &OwnerId, most: u16, of: u16) -> Result<Vec<HeldPartition>, StoreError> {
    let store = &store.keeping();
    let mut transaction = store.transaction().await?;
    let held = hold(store, &mut transaction, owner, most, of).await.map_err(|error| store.failed("keep partitions", error));
    commit_or_roll_back(store, transaction, held).await
}

async fn hold(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
    most: u16,
    of: u16,
) -> Result<Vec<HeldPartition>, sqlx::Error> {
    let held = store.statement(HELD).bind(owner.as_str()).fetch_all(&mut *connection).await?;
    let mut held = partitions(&held)?;
    let wanted = usize::from(most).saturating_sub(held.len());
    if wanted > 0 {
        held.extend(take(store, connection, owner, wanted, of).await?);
        held.sort_unstable_by_key(|partition| partition.number);
    }
    Ok(held)
}

async fn take(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
    wanted: usize,
    of: u16,
) -> Result<Vec<HeldPartition>, sqlx::Error> {
    let owners = store.statement(FREE_OF).bind(of).bind(owner.as_str()).fetch_all(&mut *connection).await?;
    if owners.is_empty() {
        return Ok(Vec::new());
    }
    let (mut hosts, mut gone) = (Vec::new(), Vec::new());
    for row in &owners {
        if let Some(owner) = row.try_get::<Option<String>, _>(0)? {
            let is_host = row.try_get::<i64, _>(1)? != 0;
            if is_host { &mut hosts } else { &mut gone }.push(owner);
        }
    }
    if !hosts.is_empty() {
        let locked = store.statement(GONE).bind(json!(hosts).to_string()).fetch_all(&mut *connection).await?;
        let locked = locked.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        store.statement(TOUCH_GONE).bind(json!(locked).to_string()).execute(&mut *connection).await?;
        gone.extend(locked);
    }
    let free = store.statement(FREE).bind(of).bind(json!(gone).to_string()).bind(i64::try_from(wanted).unwrap_or(i64::MAX));
    let free = partitions(&free.fetch_all(&mut *connection).await?)?;
    let taken: Vec<u16> = free.iter().map(|partition| partition.number).collect();
    store.statement(TAKE).bind(numbers(&taken)).bind(owner.as_str()).execute(connection).await?;
    Ok(free)
}

fn partitions(rows: &[MySqlRow]) -> Result<Vec<HeldPartition>, sqlx::Error> {
    rows.iter().map(HeldPartition::of_row).collect()
}
