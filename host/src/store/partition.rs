//! The parts of the table that hosts share among them.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::ColumnIndex;

use super::StoreError;
use super::row::{Columns, Named, filled};
use crate::event::OwnerId;

/// Which host delivers which part of the table.
#[async_trait]
pub trait PartitionStore: Send + Sync {
    /// Renews for `lease` the partitions that the owner holds, those too whose lease is over and that nobody else has taken
    /// since; then takes partitions below `of` that nobody holds, or whose lease is over, until it holds `most`; each that it
    /// takes gets a new epoch. Never gives any back, and waits for nobody: a partition that another host is just taking, or on
    /// MySQL one of which an outcome is just being stored, is left for the next time. Returns those that it holds, in order.
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

    /// Gives back those of these partitions that the owner holds under these epochs.
    ///
    /// # Errors
    /// The database's own. Then it may happen yet: until a repeat has succeeded, the owner must take no event of them. A repeat is
    /// safe.
    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError>;

    /// Looks for rows of the partition table that no host can have written. Writes nothing.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError>;

    /// Makes the partition table right again: rows that are missing are there, and belong to nobody for another `lease`, since
    /// a host may still have events of them in hand; rows of other numbers are gone; leases that nobody renews have ended; and
    /// epochs that were damaged, or are named here as set back, are larger than any before. What is right stays as it is.
    ///
    /// # Errors
    /// [`StoreError::Forbidden`] where rows are missing or too many, and this user may neither insert nor delete there; the
    /// database's own. A repeat is safe.
    async fn mend_partitions(&self, set_back: &[u16], lease: Duration) -> Result<(), StoreError>;
}

/// Rows of the partition table that no host can have written: somebody changed it by hand, or restored a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionFaults {
    /// How many of the partitions have no row: nobody reads their events.
    pub missing: u32,
    /// How many rows have a number that is not a partition's.
    pub strange: u32,
    /// How many are held without an end, or for long by a host that is not alive.
    pub held: u32,
    /// How many have an epoch below zero, or one that cannot grow any more.
    pub epochs: u32,
}

impl PartitionFaults {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// As the statements that count them name them.
    pub(super) fn of_row(row: &impl Named) -> Result<Self, sqlx::Error> {
        Ok(Self {
            missing: row.count("missing")?,
            strange: row.count("strange")?,
            held: row.count("held")?,
            epochs: row.count("epochs")?,
        })
    }
}

/// As a part of a sentence: `128 of 256 partitions have no row; 3 have an epoch that is no epoch`.
impl fmt::Display for PartitionFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.missing, format!("{} of {PARTITIONS} partitions have no row, so nobody reads their events", self.missing)),
            (self.strange, format!("{} rows have a number that is not a partition's", self.strange)),
            (self.held, format!("{} are held without an end by nobody who is alive", self.held)),
            (self.epochs, format!("{} have an epoch that cannot be one", self.epochs)),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        f.write_str(&parts.join("; "))
    }
}

/// The largest epoch that a partition can have come to by changes of its owner, as the statements have it too: a larger one was
/// written by hand, and could not grow much longer.
pub(crate) const LARGEST_EPOCH: u32 = 2_147_000_000;

/// How long a partition may be held by a host that is not alive until it counts as a fault: a heartbeat and a lease are not
/// renewed in one statement. As the statements have it, in microseconds.
pub(super) const HELD_BY_NOBODY: i64 = 300_000_000;

/// A partition that an owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPartition {
    /// Its number, from 0; larger than any partition's for a row that no host has made.
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
            number: u16::try_from(number?).unwrap_or(u16::MAX),
            epoch: u32::try_from(epoch?).unwrap_or(0),
            abandoned: abandoned? != 0,
        })
    }
}

/// Partitions as JSON: `[[number,epoch],…]`.
#[cfg(any(feature = "sqlite", feature = "mysql"))]
pub(super) fn held_rows(partitions: &[HeldPartition]) -> String {
    let rows: Vec<String> = partitions.iter().map(|held| format!("[{},{}]", held.number, held.epoch)).collect();
    format!("[{}]", rows.join(","))
}

/// How many partitions the aggregates are spread over: the most hosts that can share the work of order by aggregate.
pub const PARTITIONS: u16 = 256;
