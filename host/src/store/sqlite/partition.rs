//! Which host delivers which part of the table.

use std::time::Duration;

use async_trait::async_trait;

use super::error::failed;
use super::{Run, SqliteStore, TransactionalStore};
use crate::event::OwnerId;
use crate::store::number::numbers;
use crate::store::row::sequence;
use crate::store::{PartitionStore, StoreError};
use crate::time::micros;

/// ?1 the owner, ?2 now, ?3 the new end of the lease. One that is over may have been somebody else's meanwhile: it is taken
/// anew.
const RENEW: &str = "UPDATE outbox_event_partition SET lease_end = ?3 WHERE owner = ?1 AND lease_end > ?2";

/// ?1 the owner, ?2 now, ?3 the end of the lease, ?4 the number of partitions, ?5 how many to hold in all.
const TAKE: &str = "
UPDATE outbox_event_partition SET owner = ?1, lease_end = ?3
WHERE partition_id IN (
  SELECT partition_id FROM outbox_event_partition WHERE partition_id < ?4 AND (owner IS NULL OR lease_end <= ?2) ORDER BY partition_id
  LIMIT max(?5 - (SELECT count(*) FROM outbox_event_partition WHERE owner = ?1 AND lease_end > ?2), 0))";

const HELD: &str = "SELECT partition_id FROM outbox_event_partition WHERE owner = ?1 AND lease_end > ?2 ORDER BY partition_id";

/// ?1 the owner, ?2 partitions as a JSON list.
const RELEASE: &str = "
UPDATE outbox_event_partition SET owner = NULL, lease_end = NULL WHERE owner = ?1 AND partition_id IN (SELECT value FROM json_each(?2))";

#[async_trait]
impl PartitionStore for SqliteStore {
    async fn keep_partitions(&self, owner: &OwnerId, lease: Duration, most: u16, of: u16) -> Result<Vec<u16>, StoreError> {
        let lease = micros(lease);
        let action = "keep partitions";
        let mut transaction = self.begin().await?;
        // Only now: while others had the writer, time went by.
        let now = self.now_micros();
        for (statement, bounds) in [(RENEW, None), (TAKE, Some((of, most)))] {
            let mut query =
                sqlx::query(self.table.sql(statement)).bind(owner.as_str()).bind(now).bind(now.saturating_add(lease));
            if let Some((of, most)) = bounds {
                query = query.bind(i64::from(of)).bind(i64::from(most));
            }
            query.execute(&mut *transaction).await.map_err(|error| failed(action, error))?;
        }
        let rows = sqlx::query(self.table.sql(HELD))
            .bind(owner.as_str())
            .bind(now)
            .fetch_all(&mut *transaction)
            .await
            .map_err(|error| failed(action, error))?;
        Self::commit(transaction).await?;
        rows.iter().map(|row| sequence(row).map(|partition| u16::try_from(partition).unwrap_or(0))).collect()
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[u16]) -> Result<(), StoreError> {
        let statement = self.statement(RELEASE).bind(owner.as_str()).bind(numbers(partitions));
        self.execute("give partitions back", statement).await?;
        Ok(())
    }
}
