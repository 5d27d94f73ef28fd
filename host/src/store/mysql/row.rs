//! Columns into values: the one place where a column of MySQL becomes a time, a text or a number, and back.

use sqlx::mysql::MySqlRow;
use sqlx::{ColumnIndex, Row};

use crate::store::row::{AFTER_CLAIMED, CLAIMED_HEADERS, CLAIMED_PAYLOAD, Columns, claimed_at};
use crate::store::{Claimed, ReadEvent, StoreError, row};
use crate::time::Timestamp;

/// Where a claimed row has the size of its payload, behind the time.
const PAYLOAD_BYTES: usize = AFTER_CLAIMED + 1;

/// Where a row that was read has the time since when it is due.
pub(super) const DUE_AT: usize = PAYLOAD_BYTES + 1;

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

/// How large a claimed event's payload is.
pub(super) fn payload_bytes(row: &MySqlRow) -> Result<usize, StoreError> {
    let bytes: i64 =
        row.try_get(PAYLOAD_BYTES).map_err(|source| StoreError::Failed { action: "read a payload's size", source })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// How large the text of a claimed event's headers is.
pub(super) fn header_bytes(row: &MySqlRow) -> Result<usize, StoreError> {
    let headers =
        row.text(CLAIMED_HEADERS).map_err(|source| StoreError::Failed { action: "read an event's headers", source })?;
    Ok(headers.map_or(0, str::len))
}

/// Whether a claimed event's payload was too large to be read with it.
pub(super) fn left_out(row: &MySqlRow) -> bool {
    row.try_get::<Option<&[u8]>, _>(CLAIMED_PAYLOAD).is_ok_and(|payload| payload.is_none())
}

/// A row that was read, with its payload when that was read apart.
pub(super) fn read(row: &MySqlRow, payload: Option<Vec<u8>>, behind: Option<u64>) -> Result<ReadEvent, StoreError> {
    row::read(row, claimed(row, payload, behind)?, DUE_AT)
}

/// A claimed row, with its payload when that was read apart.
pub(super) fn claimed(row: &MySqlRow, payload: Option<Vec<u8>>, behind: Option<u64>) -> Result<Claimed, StoreError> {
    row::claimed(row, claimed_at(row, AFTER_CLAIMED)?, payload, behind)
}
