//! The parts of the table that hosts share among them.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::ColumnIndex;

use super::StoreError;
use super::row::{Columns, filled};
use crate::event::OwnerId;

/// Which host delivers which part of the table.
#[async_trait]
pub trait PartitionStore: Send + Sync {
    /// Renews for `lease` the partitions that the owner holds, those too whose lease is over and that nobody else has taken since;
    /// then takes partitions below `of` that nobody holds, or whose lease is over, until it holds `most`; each that it takes gets a
    /// new epoch. Never gives any back, and waits for nobody: a partition that another host is just taking, or on MySQL one of which
    /// an outcome is just being stored, is left for the next time. Returns those that it holds, in order.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn keep_partitions(
        &self,
        owner: &OwnerId,
        lease: Duration,
        most: u16,
        of: u16,
    ) -> Result<Vec<HeldPartition>, StoreError>;

    /// Gives back those of these partitions that the owner holds.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn release_partitions(&self, owner: &OwnerId, partitions: &[u16]) -> Result<(), StoreError>;

    /// Gives those of these partitions that the owner holds to another host for `lease`, under a new epoch: to the live host of its mode
    /// that says that it is idle, and of several to the one with the fewest partitions. Returns whether there is one.
    ///
    /// # Errors
    /// The database's own. A repeat gives to another host what is left.
    async fn hand_over(&self, owner: &OwnerId, lease: Duration, partitions: &[u16]) -> Result<bool, StoreError>;
}

/// A partition that an owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPartition {
    /// Its number, from 0.
    pub number: u16,
    /// How often it has got another owner, this one included: at least 1.
    pub epoch: u32,
    /// Whether it was taken just now from another owner, whose lease had ended: nobody gave it back, so events of it may have
    /// been with a listener when that owner went.
    pub abandoned: bool,
}

impl HeldPartition {
    /// As the statements that keep partitions return it: number, epoch, whether it was abandoned.
    pub(super) fn of_row<R: Columns>(row: &R) -> Result<Self, sqlx::Error>
    where
        usize: ColumnIndex<R>,
    {
        let [number, epoch, abandoned] = [0, 1, 2].map(|column| filled(column, row.integer(column)));
        Ok(Self {
            number: u16::try_from(number?).unwrap_or(0),
            epoch: u32::try_from(epoch?).unwrap_or(0),
            abandoned: abandoned? != 0,
        })
    }
}

/// How many partitions the aggregates are spread over: the most nodes that can share the work of order by aggregate.
pub const PARTITIONS: u16 = 256;
