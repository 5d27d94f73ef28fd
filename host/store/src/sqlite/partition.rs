//! Which host delivers which part of the table.

use async_trait::async_trait;
use outbox_event::OwnerId;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::error::failed;
use super::run::Statement;
use super::{Run, SqliteStore, TransactionalStore};
use crate::number::numbers;
use crate::partition::held_rows;
use crate::{HeldPartition, PartitionFaults, PartitionStore, StoreError};

/// The partitions that are held and those that [`TAKE`] takes next, each with the epoch that it has then. ?1 the owner, ?2 now, ?3
/// the number of partitions, ?4 how many to hold in all.
const HELD_THEN: &str = "
SELECT partition_id, epoch, 0 AS abandoned, 0 AS is_taken FROM outbox_event_partition WHERE owner = ?1
UNION ALL
SELECT * FROM (
  SELECT partition_id, epoch + 1, owner IS NOT NULL, 1 FROM outbox_event_partition AS part
  WHERE partition_id < ?3 AND (owner IS NULL
    OR (owner <> ?1 AND NOT EXISTS (SELECT 1 FROM outbox_event_node AS node WHERE node.owner = part.owner AND alive_until > ?2)))
  ORDER BY partition_id LIMIT max(?4 - (SELECT count(*) FROM outbox_event_partition WHERE owner = ?1), 0))
ORDER BY 1";

/// ?1 the owner, ?2 the partitions as a JSON list.
const TAKE: &str = "
UPDATE outbox_event_partition SET owner = ?1, epoch = epoch + 1 WHERE partition_id IN (SELECT value FROM json_each(?2))";

/// ?1 the owner, ?2 rows of [number, epoch].
const RELEASE: &str = "
UPDATE outbox_event_partition SET owner = NULL
WHERE owner = ?1 AND (partition_id, epoch) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?2))";

const FAULTS: &str = "
SELECT 256 - count(*) FILTER (WHERE partition_id BETWEEN 0 AND 255) AS missing,
       count(*) FILTER (WHERE partition_id NOT BETWEEN 0 AND 255) AS surplus
FROM outbox_event_partition";

/// The epoch is above that of each row that is there, and of each deleted one: the seconds of a clock grow faster than epochs. But if
/// rows are deleted twice within a second, an epoch can come again. So the row has an owner that is no host: the host that takes the
/// partition treats it as abandoned, and claims its events. ?1 now.
const ADD_MISSING: &str = "
INSERT OR IGNORE INTO outbox_event_partition (partition_id, owner, epoch)
WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number, 'deleted',
       max(coalesce((SELECT max(epoch) + 1 FROM outbox_event_partition), 0), ?1 / 1000000 - unixepoch('2026-01-01'))
FROM numbers WHERE number NOT IN (SELECT partition_id FROM outbox_event_partition)";

const REMOVE_SURPLUS: &str = "DELETE FROM outbox_event_partition WHERE partition_id NOT BETWEEN 0 AND 255";

#[async_trait]
impl PartitionStore for SqliteStore {
    async fn keep_partitions(&self, owner: &OwnerId, most: u16, of: u16) -> Result<Vec<HeldPartition>, StoreError> {
        // Most often nothing is free, and the writer is left to others.
        let held = self.all(KEEP, held_then(self, owner, most, of)).await?;
        let (held, taken) = held_and_taken(&held).map_err(|error| failed(KEEP, error))?;
        if taken.is_empty() {
            return Ok(held);
        }
        let mut transaction = self.begin().await?;
        let held = held_then(self, owner, most, of).fetch_all(&mut *transaction).await;
        let (held, taken) = held.and_then(|held| held_and_taken(&held)).map_err(|error| failed(KEEP, error))?;
        let query = self.statement(TAKE).bind(owner.as_str()).bind(numbers(&taken));
        query.execute(&mut *transaction).await.map_err(|error| failed(KEEP, error))?;
        self.finish(transaction).await?;
        Ok(held)
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
        let statement = self.statement(RELEASE).bind(owner.as_str()).bind(held_rows(partitions));
        self.execute("give partitions back", statement).await?;
        Ok(())
    }

    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError> {
        self.read_one("look at the partition table", self.statement(FAULTS), PartitionFaults::of_row).await
    }

    async fn restore_partitions(&self) -> Result<PartitionFaults, StoreError> {
        let action = "restore the partition table";
        let found = self.partition_faults().await?;
        if found.missing > 0 {
            self.execute(action, self.statement(ADD_MISSING).bind(self.now_micros())).await?;
        }
        if found.surplus > 0 {
            self.execute(action, self.statement(REMOVE_SURPLUS)).await?;
        }
        Ok(found)
    }
}

const KEEP: &str = "keep partitions";

/// The time is that of the call: while other connections had the writer, time went by.
fn held_then<'q>(store: &SqliteStore, owner: &'q OwnerId, most: u16, of: u16) -> Statement<'q> {
    store.statement(HELD_THEN).bind(owner.as_str()).bind(store.now_micros()).bind(i64::from(of)).bind(i64::from(most))
}

/// The partitions that are held once the taken ones are, and the numbers of those.
fn held_and_taken(rows: &[SqliteRow]) -> Result<(Vec<HeldPartition>, Vec<u16>), sqlx::Error> {
    let held = rows.iter().map(HeldPartition::of_row).collect::<Result<Vec<_>, _>>()?;
    let is_taken = rows.iter().map(|row| row.try_get::<bool, _>("is_taken")).collect::<Result<Vec<_>, _>>()?;
    let taken = held.iter().zip(is_taken).filter(|(_, is_taken)| *is_taken).map(|(held, _)| held.number).collect();
    Ok((held, taken))
}
