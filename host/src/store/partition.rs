//! The parts of the table that hosts share among them.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::event::OwnerId;

/// Which host delivers which part of the table.
#[async_trait]
pub trait PartitionStore: Send + Sync {
    /// Renews for `lease` the partitions that the owner holds, then takes partitions below `of` that nobody holds, or whose
    /// lease is over, until it holds `most`. Never gives any back. Returns those that it holds, in order.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn keep_partitions(&self, owner: &OwnerId, lease: Duration, most: u16, of: u16) -> Result<Vec<u16>, StoreError>;

    /// Gives back those of these partitions that the owner holds.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn release_partitions(&self, owner: &OwnerId, partitions: &[u16]) -> Result<(), StoreError>;
}

/// How many partitions the aggregates are spread over: the most nodes that can share the work of order by aggregate.
pub const PARTITIONS: u16 = 256;
