//! Columns into values: the one place where a column of SQLite becomes a time, a text or a number.

use outbox_event::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Row};

use crate::row::{AFTER_CLAIMED, Columns, POSITION, behind};
use crate::{Claimed, ReadEvent, StoreError, row};

impl Columns for SqliteRow {
    fn integer<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<i64>, sqlx::Error> {
        self.try_get(column)
    }

    fn text<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<&str>, sqlx::Error> {
        self.try_get(column)
    }

    /// SQLite stores what it is given: a plain INSERT of text leaves text in the column, and its bytes are the payload.
    fn bytes<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<Vec<u8>>, sqlx::Error> {
        self.try_get_unchecked(column)
    }

    fn time<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<Timestamp>, sqlx::Error> {
        Ok(self.integer(column)?.map(Timestamp::from_micros))
    }
}

/// A row that was read, with the event that it waits behind, if the statement asked.
pub(super) fn read(row: &SqliteRow, now: i64, in_order: bool) -> Result<ReadEvent, StoreError> {
    let behind = if in_order { behind(row, AFTER_CLAIMED + POSITION)? } else { None };
    row::read(row, row::claimed(row, Timestamp::from_micros(now), None, behind)?, AFTER_CLAIMED)
}

/// A claimed row, with the event that it waits behind, if the statement asked.
pub(super) fn claimed(row: &SqliteRow, now: i64, in_order: bool) -> Result<Claimed, StoreError> {
    let behind = if in_order { behind(row, AFTER_CLAIMED)? } else { None };
    row::claimed(row, Timestamp::from_micros(now), None, behind)
}
