//! Columns into values: the one place where a column of MySQL becomes a time, a text or a number, and back.

use outbox_event::time::Timestamp;
use sqlx::mysql::MySqlRow;
use sqlx::{ColumnIndex, Row};

use crate::row::{AFTER_CLAIMED, Apart, Columns, MAX_READ_BYTES, claimed_at, size_bytes};
use crate::{Claimed, ReadEvent, StoreError, row};

/// Where a row that was read has the time since when it is due, behind the time of the claim.
pub(super) const DUE_AT: usize = AFTER_CLAIMED + 1;

/// The largest payload and headers, together, that every statement reads with their row. The number stands in the statements too.
const INLINE_BYTES: u64 = 16_384;

/// 1000-01-01 and the last microsecond of 9999: what a DATETIME can hold.
const EARLIEST: i64 = -30_610_224_000_000_000;
const LATEST: i64 = 253_402_300_799_999_999;

impl Columns for MySqlRow {
    fn integer<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(column)
    }

    fn text<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<&str>, sqlx::Error> {
        self.try_get(column)
    }

    fn bytes<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<Vec<u8>>, sqlx::Error> {
        self.try_get(column)
    }

    /// Every statement reads times as microseconds since 1970.
    fn time<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<Timestamp>, sqlx::Error> {
        Ok(self.integer(column)?.map(Timestamp::from_micros))
    }
}

/// A time as it is bound: microseconds since 1970, cut to what the column can hold.
pub(super) fn bound(time: Timestamp) -> i64 {
    time.as_micros().clamp(EARLIEST, LATEST)
}

/// Whether payload and headers of a claimed event were too large to be read with it, and are read apart.
pub(super) fn is_read_apart(row: &MySqlRow) -> Result<bool, StoreError> {
    Ok((INLINE_BYTES + 1..=MAX_READ_BYTES).contains(&size_bytes(row)?))
}

/// A row that was read, with what was read apart.
pub(super) fn read(row: &MySqlRow, apart: Option<Apart>, behind: Option<u64>) -> Result<ReadEvent, StoreError> {
    row::read(row, claimed(row, apart, behind)?, DUE_AT)
}

/// A claimed row, with what was read apart.
pub(super) fn claimed(row: &MySqlRow, apart: Option<Apart>, behind: Option<u64>) -> Result<Claimed, StoreError> {
    row::claimed(row, claimed_at(row, AFTER_CLAIMED)?, apart, behind)
}
