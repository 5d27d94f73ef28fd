//! Which host delivers which part of the table.

use async_trait::async_trait;
use outbox_event::OwnerId;

use super::primary::on_primary;
use super::{PostgresStore, Run};
use crate::{HeldPartition, PartitionFaults, PartitionStore, StoreError};

/// Locks the rows of the hosts whose partitions it takes: a heartbeat of such a host either comes first, and is seen by the lock's
/// recheck, or waits until the partitions have their new owner. The owners are compared with an array, because a recheck of a
/// partition's row would not read another table again. $1 the owner, $2 how many to hold in all, $3 the number of partitions.
const KEEP: &str = "
WITH held AS (SELECT partition_id, epoch FROM outbox_event_partition WHERE owner = $1::text),
gone AS (
  SELECT owner FROM outbox_event_node
  WHERE alive_until <= now() AND owner <> $1::text AND (SELECT count(*) FROM held) < $2::bigint
    AND owner IN (SELECT owner FROM outbox_event_partition)
  FOR SHARE SKIP LOCKED),
unknown AS (
  SELECT owner FROM outbox_event_partition AS part
  WHERE owner <> $1::text AND NOT EXISTS (SELECT FROM outbox_event_node AS node WHERE node.owner = part.owner)),
free AS (
  SELECT partition_id, (owner IS NOT NULL)::integer AS abandoned FROM outbox_event_partition
  WHERE partition_id < $3::integer
    AND (owner IS NULL OR owner = ANY (ARRAY (SELECT owner FROM gone UNION ALL SELECT owner FROM unknown)))
  ORDER BY partition_id LIMIT greatest($2::bigint - (SELECT count(*) FROM held), 0) FOR UPDATE SKIP LOCKED),
taken AS (
  UPDATE outbox_event_partition SET owner = $1::text, epoch = outbox_event_partition.epoch + 1
  FROM free WHERE outbox_event_partition.partition_id = free.partition_id
  RETURNING outbox_event_partition.partition_id, outbox_event_partition.epoch, free.abandoned)
SELECT partition_id, epoch, 0 FROM held UNION ALL SELECT partition_id, epoch, abandoned FROM taken ORDER BY partition_id";

/// $1 the owner, $2 partitions, $3 their epochs.
const RELEASE: &str = "
UPDATE outbox_event_partition SET owner = NULL FROM unnest($2::smallint[], $3::integer[]) AS held (number, epoch)
WHERE owner = $1::text AND partition_id = held.number AND outbox_event_partition.epoch = held.epoch";

const FAULTS: &str = concat!(
    "
SELECT 256 - count(*) FILTER (WHERE partition_id BETWEEN 0 AND 255) AS missing,
       count(*) FILTER (WHERE partition_id NOT BETWEEN 0 AND 255) AS surplus
FROM outbox_event_partition WHERE ",
    on_primary!()
);

/// The epoch is above that of each row that is there, and of each deleted one: the seconds of a clock grow faster than epochs. But if
/// rows are deleted twice within a second, an epoch can come again. So the row has an owner that is no host: the host that takes the
/// partition treats it as abandoned, and claims its events.
const ADD_MISSING: &str = "
INSERT INTO outbox_event_partition (partition_id, owner, epoch)
SELECT number, 'deleted', greatest((SELECT max(epoch) + 1 FROM outbox_event_partition),
                        extract(epoch FROM now() - timestamptz '2026-01-01 00:00:00Z')::integer)
FROM generate_series(0, 255) AS number
WHERE NOT EXISTS (SELECT 1 FROM outbox_event_partition AS there WHERE there.partition_id = number)
ON CONFLICT DO NOTHING";

const REMOVE_SURPLUS: &str = "DELETE FROM outbox_event_partition WHERE partition_id NOT BETWEEN 0 AND 255";

#[async_trait]
impl PartitionStore for PostgresStore {
    async fn keep_partitions(&self, owner: &OwnerId, most: u16, of: u16) -> Result<Vec<HeldPartition>, StoreError> {
        let store = &self.keeping();
        let statement = store.statement(KEEP).bind(owner.as_str()).bind(i64::from(most)).bind(i32::from(of));
        store.read_all("keep partitions", statement, HeldPartition::of_row).await
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
        let (store, (numbers, epochs)) = (&self.keeping(), columns(partitions));
        let statement = store.statement(RELEASE).bind(owner.as_str()).bind(numbers).bind(epochs);
        store.execute("give partitions back", statement).await?;
        Ok(())
    }

    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError> {
        self.keeping().read_one("look at the partition table", self.statement(FAULTS), PartitionFaults::of_row).await
    }

    async fn restore_partitions(&self) -> Result<PartitionFaults, StoreError> {
        let (store, action) = (&self.keeping(), "restore the partition table");
        let found = store.partition_faults().await?;
        if found.missing > 0 {
            store.execute(action, store.statement(ADD_MISSING)).await?;
        }
        if found.surplus > 0 {
            store.execute(action, store.statement(REMOVE_SURPLUS)).await?;
        }
        Ok(found)
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
