//! Which host delivers which part of the table.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::patience::patiently;
use super::{MySqlStore, Run};
use crate::event::OwnerId;
use crate::store::number::numbers;
use crate::store::partition::{HELD_BY_NOBODY, held_rows};
use crate::store::run::commit_or_roll_back;
use crate::store::settle::delay_micros;
use crate::store::{HeldPartition, PartitionFaults, PartitionStore, StoreError};

/// A partition whose lease is over is its last owner's still, under the same epoch, until another takes it. Writes no index, so it
/// waits for no outcome. Bound: the lease in microseconds, the owner.
const RENEW: &str = "
UPDATE outbox_event_partition SET lease_end = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE owner = ?";

const HELD: &str = "SELECT partition_id, epoch, 0 FROM outbox_event_partition WHERE owner = ? ORDER BY partition_id";

/// With the epoch that each gets when it is taken. Locks each one's entry in the index, and passes by the entries that outcomes
/// have locked: see `settle.rs`. Bound: the number of partitions, the owner, most to take.
const FREE: &str = "
SELECT partition_id, epoch + 1, owner IS NOT NULL FROM outbox_event_partition FORCE INDEX (outbox_epoch)
WHERE partition_id < ? AND (owner IS NULL OR (owner <> ? AND lease_end <= UTC_TIMESTAMP(6))) ORDER BY partition_id LIMIT ?
FOR UPDATE SKIP LOCKED";

/// The partitions are locked already. Bound: partitions as a JSON list, the owner, the lease in microseconds.
const TAKE: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (partition_id SMALLINT PATH '$')) AS free
STRAIGHT_JOIN outbox_event_partition FORCE INDEX (PRIMARY) ON outbox_event_partition.partition_id = free.partition_id
SET owner = ?, lease_end = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, epoch = epoch + 1";

/// Bound: rows of [number, epoch], the owner.
const RELEASE: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (number SMALLINT PATH '$[0]', epoch INT PATH '$[1]')) AS held
STRAIGHT_JOIN outbox_event_partition AS part FORCE INDEX (PRIMARY) ON part.partition_id = held.number
SET part.owner = NULL, part.lease_end = NULL WHERE part.owner = ? AND part.epoch = held.epoch";

/// Bound: for how long a host that is not alive may hold one, in microseconds.
const FAULTS: &str = "
SELECT CAST(256 - COALESCE(SUM(partition_id BETWEEN 0 AND 255), 0) AS SIGNED) AS missing,
       CAST(COALESCE(SUM(partition_id NOT BETWEEN 0 AND 255), 0) AS SIGNED) AS strange,
       CAST(COALESCE(SUM(owner IS NOT NULL AND (lease_end IS NULL
         OR (lease_end > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND AND NOT is_alive))), 0) AS SIGNED) AS held,
       CAST(COALESCE(SUM(epoch NOT BETWEEN 0 AND 2147000000), 0) AS SIGNED) AS epochs
FROM (SELECT partition_id, owner, lease_end, epoch,
             EXISTS (SELECT 1 FROM outbox_event_node AS node
                     WHERE node.owner = part.owner AND alive_until > UTC_TIMESTAMP(6)) AS is_alive
      FROM outbox_event_partition AS part) AS looked_at";

/// Bound as in [`FAULTS`].
const END_LEASES: &str = "
UPDATE outbox_event_partition SET lease_end = UTC_TIMESTAMP(6)
WHERE owner IS NOT NULL AND (lease_end IS NULL
  OR (lease_end > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND
      AND NOT EXISTS (SELECT 1 FROM outbox_event_node AS node
                      WHERE node.owner = outbox_event_partition.owner AND alive_until > UTC_TIMESTAMP(6))))";

/// The seconds of a running clock grow faster than epochs. Bound: the partitions whose epochs were set back, as a JSON list.
const RAISE_EPOCHS: &str = "
UPDATE outbox_event_partition
SET epoch = GREATEST((SELECT COALESCE(MAX(epoch) + 1, 0)
                      FROM (SELECT epoch FROM outbox_event_partition WHERE epoch BETWEEN 0 AND 2147000000) AS good),
                     TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()))
WHERE epoch NOT BETWEEN 0 AND 2147000000 OR JSON_CONTAINS(?, CAST(partition_id AS CHAR))";

/// Bound: the lease in microseconds.
const ADD_MISSING: &str = "
INSERT IGNORE INTO outbox_event_partition (partition_id, owner, lease_end, epoch)
WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number, '(unknown)', UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND,
       GREATEST((SELECT COALESCE(MAX(epoch) + 1, 0) FROM outbox_event_partition AS good WHERE epoch BETWEEN 0 AND 2147000000),
                TIMESTAMPDIFF(SECOND, '2026-01-01', UTC_TIMESTAMP()))
FROM numbers WHERE NOT EXISTS (SELECT 1 FROM outbox_event_partition AS there WHERE there.partition_id = number)";

const REMOVE_STRANGE: &str = "DELETE FROM outbox_event_partition WHERE partition_id NOT BETWEEN 0 AND 255";

#[async_trait]
impl PartitionStore for MySqlStore {
    async fn keep_partitions(
        &self,
        owner: &OwnerId,
        lease: Duration,
        most: u16,
        of: u16,
    ) -> Result<Vec<HeldPartition>, StoreError> {
        patiently(&self.keeping(), || try_keep(self, owner, lease, most, of)).await
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
        patiently(self, || try_release(self, owner, partitions)).await
    }

    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError> {
        let statement = self.statement(FAULTS).bind(HELD_BY_NOBODY);
        self.keeping().read_one("look at the partitions", statement, PartitionFaults::of_row).await
    }

    async fn mend_partitions(&self, set_back: &[u16], lease: Duration) -> Result<(), StoreError> {
        patiently(self, || try_mend(self, set_back, lease)).await
    }
}

async fn try_release(store: &MySqlStore, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
    let store = &store.keeping();
    let statement = store.statement(RELEASE).bind(held_rows(partitions)).bind(owner.as_str());
    store.execute("give partitions back", statement).await.map(drop)
}

/// Each statement may be repeated, and does what can be done by a user who may do no more.
async fn try_mend(store: &MySqlStore, set_back: &[u16], lease: Duration) -> Result<(), StoreError> {
    let (store, action) = (&store.keeping(), "repair the partitions");
    store.execute(action, store.statement(END_LEASES).bind(HELD_BY_NOBODY)).await?;
    store.execute(action, store.statement(RAISE_EPOCHS).bind(numbers(set_back))).await?;
    let faults = store.partition_faults().await?;
    if faults.missing > 0 {
        store.execute(action, store.statement(ADD_MISSING).bind(delay_micros(lease))).await?;
    }
    if faults.strange > 0 {
        store.execute(action, store.statement(REMOVE_STRANGE)).await?;
    }
    Ok(())
}

async fn try_keep(
    store: &MySqlStore,
    owner: &OwnerId,
    lease: Duration,
    most: u16,
    of: u16,
) -> Result<Vec<HeldPartition>, StoreError> {
    let store = &store.keeping();
    let mut transaction = store.transaction().await?;
    let held = renew_and_take(store, &mut transaction, owner, lease, most, of).await;
    commit_or_roll_back(store, transaction, held).await
}

async fn renew_and_take(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
    lease: Duration,
    most: u16,
    of: u16,
) -> Result<Vec<HeldPartition>, StoreError> {
    let failed = |error| store.failed("keep partitions", error);
    store.statement(RENEW).bind(delay_micros(lease)).bind(owner.as_str()).execute(&mut *connection).await.map_err(failed)?;
    let held = store.statement(HELD).bind(owner.as_str()).fetch_all(&mut *connection).await.map_err(failed)?;
    let mut held = partitions(&held).map_err(failed)?;
    let wanted = usize::from(most).saturating_sub(held.len());
    if wanted > 0 {
        let free = store
            .statement(FREE)
            .bind(i64::from(of))
            .bind(owner.as_str())
            .bind(i64::try_from(wanted).unwrap_or(i64::MAX))
            .fetch_all(&mut *connection)
            .await
            .map_err(failed)?;
        let free = partitions(&free).map_err(failed)?;
        let taken: Vec<u16> = free.iter().map(|partition| partition.number).collect();
        store
            .statement(TAKE)
            .bind(numbers(&taken))
            .bind(owner.as_str())
            .bind(delay_micros(lease))
            .execute(&mut *connection)
            .await
            .map_err(failed)?;
        held.extend(free);
    }
    held.sort_unstable_by_key(|partition| partition.number);
    Ok(held)
}

fn partitions(rows: &[MySqlRow]) -> Result<Vec<HeldPartition>, sqlx::Error> {
    rows.iter().map(HeldPartition::of_row).collect()
}
