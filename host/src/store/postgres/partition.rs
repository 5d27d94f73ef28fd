//! Which host delivers which part of the table.

use std::time::Duration;

use async_trait::async_trait;

use super::{PostgresStore, Run};
use crate::event::OwnerId;
use crate::store::settle::delay_micros;
use crate::store::{HeldPartition, PartitionStore, StoreError};

/// Renews, then takes. A partition whose lease is over is its last owner's still, under the same epoch, until another takes it. One
/// that another node is just taking is stepped over. $1 the owner, $2 the lease in microseconds, $3 how many to hold in all, $4 the number
/// of partitions.
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

/// $1 the owner, $2 partitions.
const RELEASE: &str = "
UPDATE outbox_event_partition SET owner = NULL, lease_end = NULL WHERE owner = $1::text AND partition_id = ANY ($2::smallint[])";

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

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[u16]) -> Result<(), StoreError> {
        let store = &self.keeping();
        let statement = store.statement(RELEASE).bind(owner.as_str()).bind(column(partitions));
        store.execute("give partitions back", statement).await?;
        Ok(())
    }
}

/// Partitions as the column counts them; one that it cannot hold is no partition.
pub(super) fn column(partitions: &[u16]) -> Vec<i16> {
    partitions.iter().filter_map(|partition| i16::try_from(*partition).ok()).collect()
}
