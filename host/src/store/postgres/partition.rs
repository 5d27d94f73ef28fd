//! Which host delivers which part of the table.

use std::time::Duration;

use async_trait::async_trait;

use super::{PostgresStore, Run};
use crate::event::OwnerId;
use crate::store::partition::HELD_BY_NOBODY;
use crate::store::settle::delay_micros;
use crate::store::{HeldPartition, PartitionFaults, PartitionStore, StoreError};

/// Renews, then takes. A partition whose lease is over is its last owner's still, under the same epoch, until another takes it.
/// One that another host is just taking is stepped over. $1 the owner, $2 the lease in microseconds, $3 how many to hold in
/// all, $4 the number of partitions.
const KEEP: &str = "
WITH kept AS (
  UPDATE outbox_event_partition SET lease_end = now() + $2::bigint * interval '1 microsecond'
  WHERE owner = $1::text RETURNING partition_id, epoch),
free AS (
  SELECT partition_id, (owner IS NOT NULL)::integer AS abandoned FROM outbox_event_partition
  WHERE partition_id < $4::integer AND (owner IS NULL OR (owner <> $1::text AND lease_end <= now())) ORDER BY partition_id
  LIMIT greatest($3::bigint - (SELECT count(*) FROM kept), 0) FOR UPDATE SKIP LOCKED),
taken AS (
  UPDATE outbox_event_partition
  SET owner = $1::text, lease_end = now() + $2::bigint * interval '1 microsecond', epoch = epoch + 1
  FROM free WHERE outbox_event_partition.partition_id = free.partition_id
  RETURNING outbox_event_partition.partition_id, epoch, abandoned)
SELECT partition_id, epoch, 0 FROM kept UNION ALL SELECT partition_id, epoch, abandoned FROM taken ORDER BY partition_id";

/// $1 the owner, $2 partitions, $3 their epochs.
const RELEASE: &str = "
UPDATE outbox_event_partition SET owner = NULL, lease_end = NULL FROM unnest($2::smallint[], $3::integer[]) AS held (number, epoch)
WHERE owner = $1::text AND partition_id = held.number AND outbox_event_partition.epoch = held.epoch";

/// $1 for how long a host that is not alive may hold one, in microseconds.
const FAULTS: &str = "
SELECT 256 - count(*) FILTER (WHERE partition_id BETWEEN 0 AND 255) AS missing,
       count(*) FILTER (WHERE partition_id NOT BETWEEN 0 AND 255) AS strange,
       count(*) FILTER (WHERE owner IS NOT NULL AND (lease_end IS NULL
         OR (lease_end > now() + $1::bigint * interval '1 microsecond' AND NOT is_alive))) AS held,
       count(*) FILTER (WHERE epoch NOT BETWEEN 0 AND 2147000000) AS epochs
FROM (SELECT partition_id, owner, lease_end, epoch,
             EXISTS (SELECT 1 FROM outbox_event_node AS node WHERE node.owner = part.owner AND alive_until > now()) AS is_alive
      FROM outbox_event_partition AS part) AS looked_at";

/// As in [`FAULTS`].
const END_LEASES: &str = "
UPDATE outbox_event_partition AS part SET lease_end = now()
WHERE owner IS NOT NULL AND (lease_end IS NULL
  OR (lease_end > now() + $1::bigint * interval '1 microsecond'
      AND NOT EXISTS (SELECT 1 FROM outbox_event_node AS node WHERE node.owner = part.owner AND alive_until > now())))";

/// The seconds of a running clock grow faster than epochs. $1 the partitions whose epochs were set back.
const RAISE_EPOCHS: &str = "
UPDATE outbox_event_partition
SET epoch = greatest((SELECT max(epoch) + 1 FROM outbox_event_partition WHERE epoch BETWEEN 0 AND 2147000000),
                     extract(epoch FROM now() - timestamptz '2026-01-01 00:00:00Z')::integer)
WHERE epoch NOT BETWEEN 0 AND 2147000000 OR partition_id = ANY ($1::smallint[])";

/// $1 the lease in microseconds.
const ADD_MISSING: &str = "
INSERT INTO outbox_event_partition (partition_id, owner, lease_end, epoch)
SELECT number, '(unknown)', now() + $1::bigint * interval '1 microsecond',
       greatest((SELECT max(epoch) + 1 FROM outbox_event_partition WHERE epoch BETWEEN 0 AND 2147000000),
                extract(epoch FROM now() - timestamptz '2026-01-01 00:00:00Z')::integer)
FROM generate_series(0, 255) AS number
WHERE NOT EXISTS (SELECT 1 FROM outbox_event_partition AS there WHERE there.partition_id = number)
ON CONFLICT DO NOTHING";

const REMOVE_STRANGE: &str = "DELETE FROM outbox_event_partition WHERE partition_id NOT BETWEEN 0 AND 255";

#[async_trait]
impl PartitionStore for PostgresStore {
    async fn keep_partitions(
        &self,
        owner: &OwnerId,
        lease: Duration,
        most: u16,
        of: u16,
    ) -> Result<Vec<HeldPartition>, StoreError> {
        let store = &self.keeping();
        let statement =
            store.statement(KEEP).bind(owner.as_str()).bind(delay_micros(lease)).bind(i64::from(most)).bind(i32::from(of));
        store.read_all("keep partitions", statement, HeldPartition::of_row).await
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
        let (store, (numbers, epochs)) = (&self.keeping(), columns(partitions));
        let statement = store.statement(RELEASE).bind(owner.as_str()).bind(numbers).bind(epochs);
        store.execute("give partitions back", statement).await?;
        Ok(())
    }

    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError> {
        let statement = self.statement(FAULTS).bind(HELD_BY_NOBODY);
        self.keeping().read_one("look at the partitions", statement, PartitionFaults::of_row).await
    }

    /// Each statement may be repeated, and does what can be done by a user who may do no more.
    async fn mend_partitions(&self, set_back: &[u16], lease: Duration) -> Result<(), StoreError> {
        let (store, action) = (&self.keeping(), "repair the partitions");
        store.execute(action, store.statement(END_LEASES).bind(HELD_BY_NOBODY)).await?;
        store.execute(action, store.statement(RAISE_EPOCHS).bind(column(set_back))).await?;
        let faults = store.partition_faults().await?;
        if faults.missing > 0 {
            store.execute(action, store.statement(ADD_MISSING).bind(delay_micros(lease))).await?;
        }
        if faults.strange > 0 {
            store.execute(action, store.statement(REMOVE_STRANGE)).await?;
        }
        Ok(())
    }
}

/// Partitions as the column counts them; one that it cannot hold is no partition.
pub(super) fn column(partitions: &[u16]) -> Vec<i16> {
    partitions.iter().filter_map(|partition| i16::try_from(*partition).ok()).collect()
}

/// The numbers of partitions and their epochs, as two columns; what these cannot hold is no partition.
fn columns(partitions: &[HeldPartition]) -> (Vec<i16>, Vec<i32>) {
    partitions.iter().filter_map(|held| Some((i16::try_from(held.number).ok()?, i32::try_from(held.epoch).ok()?))).unzip()
}
