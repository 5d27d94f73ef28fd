//! Which host delivers which part of the table.

use std::time::Duration;

use async_trait::async_trait;

use super::error::failed;
use super::{Run, SqliteStore, TransactionalStore};
use crate::event::OwnerId;
use crate::store::number::numbers;
use crate::store::partition::{HELD_BY_NOBODY, held_rows};
use crate::store::{HeldPartition, PartitionFaults, PartitionStore, StoreError};
use crate::time::micros;

/// A partition whose lease is over is its last owner's still, under the same epoch, until another takes it. ?1 the owner, ?2
/// the end of the lease.
const RENEW: &str = "UPDATE outbox_event_partition SET lease_end = ?2 WHERE owner = ?1";

/// The partitions that are held and those that [`TAKE`] takes next, each with the epoch that it has then. ?1 the owner, ?2 now, ?3
/// the number of partitions, ?4 how many to hold in all.
const HELD_THEN: &str = "
SELECT partition_id, epoch, 0 FROM outbox_event_partition WHERE owner = ?1
UNION ALL
SELECT * FROM (
  SELECT partition_id, epoch + 1, owner IS NOT NULL FROM outbox_event_partition
  WHERE partition_id < ?3 AND (owner IS NULL OR (owner <> ?1 AND lease_end <= ?2)) ORDER BY partition_id
  LIMIT max(?4 - (SELECT count(*) FROM outbox_event_partition WHERE owner = ?1), 0))
ORDER BY 1";

/// ?1 the owner, ?2 now, ?3 the end of the lease, ?4 the partitions as a JSON list.
const TAKE: &str = "
UPDATE outbox_event_partition SET owner = ?1, lease_end = ?3, epoch = epoch + 1
WHERE partition_id IN (SELECT value FROM json_each(?4)) AND (owner IS NULL OR (owner <> ?1 AND lease_end <= ?2))";

/// ?1 the owner, ?2 rows of [number, epoch].
const RELEASE: &str = "
UPDATE outbox_event_partition SET owner = NULL, lease_end = NULL
WHERE owner = ?1 AND (partition_id, epoch) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?2))";

/// ?1 now, ?2 for how long a host that is not alive may hold one, in microseconds.
const FAULTS: &str = "
SELECT 256 - count(*) FILTER (WHERE partition_id BETWEEN 0 AND 255) AS missing,
       count(*) FILTER (WHERE partition_id NOT BETWEEN 0 AND 255) AS strange,
       count(*) FILTER (WHERE owner IS NOT NULL AND (lease_end IS NULL OR (lease_end > ?1 + ?2 AND NOT is_alive))) AS held,
       count(*) FILTER (WHERE epoch NOT BETWEEN 0 AND 2147000000) AS epochs
FROM (SELECT partition_id, owner, lease_end, epoch,
             EXISTS (SELECT 1 FROM outbox_event_node AS node WHERE node.owner = part.owner AND alive_until > ?1) AS is_alive
      FROM outbox_event_partition AS part) AS looked_at";

/// As in [`FAULTS`].
const END_LEASES: &str = "
UPDATE outbox_event_partition SET lease_end = ?1
WHERE owner IS NOT NULL AND (lease_end IS NULL
  OR (lease_end > ?1 + ?2
      AND NOT EXISTS (SELECT 1 FROM outbox_event_node AS node
                      WHERE node.owner = outbox_event_partition.owner AND alive_until > ?1)))";

/// The seconds of a running clock grow faster than epochs. ?1 now, ?2 the partitions whose epochs were set back, as a JSON
/// list.
const RAISE_EPOCHS: &str = "
UPDATE outbox_event_partition
SET epoch = max(coalesce((SELECT max(epoch) + 1 FROM outbox_event_partition WHERE epoch BETWEEN 0 AND 2147000000), 0),
                ?1 / 1000000 - unixepoch('2026-01-01'))
WHERE epoch NOT BETWEEN 0 AND 2147000000 OR partition_id IN (SELECT value FROM json_each(?2))";

/// ?1 now, ?2 the end of the lease.
const ADD_MISSING: &str = "
INSERT OR IGNORE INTO outbox_event_partition (partition_id, owner, lease_end, epoch)
WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 255)
SELECT number, '(unknown)', ?2,
       max(coalesce((SELECT max(epoch) + 1 FROM outbox_event_partition WHERE epoch BETWEEN 0 AND 2147000000), 0),
           ?1 / 1000000 - unixepoch('2026-01-01'))
FROM numbers WHERE number NOT IN (SELECT partition_id FROM outbox_event_partition)";

const REMOVE_STRANGE: &str = "DELETE FROM outbox_event_partition WHERE partition_id NOT BETWEEN 0 AND 255";

#[async_trait]
impl PartitionStore for SqliteStore {
    async fn keep_partitions(
        &self,
        owner: &OwnerId,
        lease: Duration,
        most: u16,
        of: u16,
    ) -> Result<Vec<HeldPartition>, StoreError> {
        let failed = |error| failed("keep partitions", error);
        let mut transaction = self.begin().await?;
        // Only now: while others had the writer, time went by.
        let now = self.now_micros();
        let end = now.saturating_add(micros(lease));
        let query = self.statement(RENEW).bind(owner.as_str()).bind(end);
        query.execute(&mut *transaction).await.map_err(failed)?;
        let query = self.statement(HELD_THEN).bind(owner.as_str()).bind(now);
        let rows = query.bind(i64::from(of)).bind(i64::from(most)).fetch_all(&mut *transaction).await.map_err(failed)?;
        let held = rows.iter().map(HeldPartition::of_row).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let all: Vec<u16> = held.iter().map(|partition| partition.number).collect();
        let query = self.statement(TAKE).bind(owner.as_str()).bind(now).bind(end).bind(numbers(&all));
        query.execute(&mut *transaction).await.map_err(failed)?;
        self.finish(transaction).await?;
        Ok(held)
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
        let statement = self.statement(RELEASE).bind(owner.as_str()).bind(held_rows(partitions));
        self.execute("give partitions back", statement).await?;
        Ok(())
    }

    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError> {
        let statement = self.statement(FAULTS).bind(self.now_micros()).bind(HELD_BY_NOBODY);
        self.read_one("look at the partitions", statement, PartitionFaults::of_row).await
    }

    async fn mend_partitions(&self, set_back: &[u16], lease: Duration) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        // Only now: while others had the writer, time went by.
        let now = self.now_micros();
        for statement in [
            self.statement(END_LEASES).bind(now).bind(HELD_BY_NOBODY),
            self.statement(RAISE_EPOCHS).bind(now).bind(numbers(set_back)),
            self.statement(ADD_MISSING).bind(now).bind(now.saturating_add(micros(lease))),
            self.statement(REMOVE_STRANGE),
        ] {
            statement.execute(&mut *transaction).await.map_err(|error| failed("repair the partitions", error))?;
        }
        self.finish(transaction).await
    }
}
