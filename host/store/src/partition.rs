//! The parts of the table that hosts share among them.

use std::fmt;

use async_trait::async_trait;
use outbox_event::OwnerId;
use sqlx::ColumnIndex;

use super::StoreError;
use super::row::{Columns, Named, filled};

/// Which host delivers which part of the table.
#[async_trait]
pub trait PartitionStore: Send + Sync {
    /// Takes free partitions with numbers below `of`, until the owner holds `most`. Returns the partitions that the owner holds, in
    /// order. A partition is free if it has no owner, or if its owner is not alive. A partition that is taken gets a new epoch.
    ///
    /// The caller must have called [`heartbeat`](super::NodeStore::heartbeat) first: partitions of a host that is not alive are free
    /// for other hosts. When its lease has ended, a host still owns each partition that no other host has taken since, and holds it
    /// again under the same epoch after the next heartbeat.
    ///
    /// Gives no partition back, and waits for no lock. Skips a partition that another host is taking, the partitions of a host that
    /// is coming back to life, and on MySQL a partition while an outcome of it is being stored.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn keep_partitions(&self, owner: &OwnerId, most: u16, of: u16) -> Result<Vec<HeldPartition>, StoreError>;

    /// Gives back those of these partitions that the owner holds under these epochs.
    ///
    /// # Errors
    /// The database's own. Then it may happen yet: until a repeat has succeeded, the owner must take no event of them. A repeat is
    /// safe.
    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError>;

    /// Looks for missing and surplus rows of the partition table. Writes nothing.
    ///
    /// # Errors
    /// The database's own. A repeat is safe.
    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError>;

    /// Inserts the rows that are missing in the partition table, and deletes rows with other numbers. An inserted row has no owner,
    /// and an epoch above all earlier ones. Writes nothing if the table has the right rows. Returns the faults that it found.
    ///
    /// # Errors
    /// [`StoreError::Forbidden`] if a row is missing or surplus, and the database user may not insert or delete it; the database's
    /// own. A repeat is safe.
    async fn restore_partitions(&self) -> Result<PartitionFaults, StoreError>;
}

/// How the rows of the partition table differ from what a host can work with: an operator edited the table, or restored a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionFaults {
    /// How many partitions have no row, so that no host reads their events.
    pub missing: u32,
    /// How many rows have a number that no partition has.
    pub surplus: u32,
}

impl PartitionFaults {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn of_row(row: &impl Named) -> Result<Self, sqlx::Error> {
        Ok(Self { missing: row.count("missing")?, surplus: row.count("surplus")? })
    }
}

/// As a part of a sentence: `128 of 256 partitions have no row, so no host reads their events; 2 rows belong to no partition`.
impl fmt::Display for PartitionFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.missing > 0 {
            write!(f, "{} of {PARTITIONS} partitions have no row, so no host reads their events", self.missing)?;
        }
        let separator = if self.missing > 0 { "; " } else { "" };
        if self.surplus > 0 {
            write!(f, "{separator}{} rows belong to no partition", self.surplus)?;
        }
        Ok(())
    }
}

/// A partition that an owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPartition {
    /// Its number, from 0; larger than any partition's for a row that no host has made.
    pub number: u16,
    /// How often it has got another owner, this one included: at least 1.
    pub epoch: u32,
    /// Whether this call took it from an owner that was not alive. That owner did not give it back, so it may have been calling
    /// listeners for events of this partition when it died.
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

/// How many partitions the events are spread over, and so the most hosts that can share the work.
pub const PARTITIONS: u16 = 256;
