//! Columns into values: with `time.rs` the one place where a column of PostgreSQL becomes a time, a text or a number.

use outbox_event::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{ColumnIndex, Row};

use super::time::Moment;
use crate::row::{AFTER_CLAIMED, Columns, POSITION, behind, claimed_at};
use crate::{Claimed, ReadEvent, StoreError, row};

impl Columns for PgRow {
    /// Unchecked: the driver reads an integer of any width as the widest, if it is not asked whether that is its type.
    fn integer<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<i64>, sqlx::Error> {
        self.try_get_unchecked(column)
    }

    fn text<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<&str>, sqlx::Error> {
        self.try_get(column)
    }

    fn bytes<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<Vec<u8>>, sqlx::Error> {
        self.try_get(column)
    }

    fn time<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<Timestamp>, sqlx::Error> {
        Ok(self.try_get::<Option<Moment>, _>(column)?.map(|moment| moment.0))
    }
}

/// A row that was read, with the event that it waits behind, if the statement asked.
pub(super) fn read(row: &PgRow, in_order: bool) -> Result<ReadEvent, StoreError> {
    let behind = if in_order { behind(row, AFTER_CLAIMED + 1 + POSITION)? } else { None };
    row::read(row, row::claimed(row, claimed_at(row, AFTER_CLAIMED)?, None, behind)?, AFTER_CLAIMED + 1)
}

/// A claimed row, with the event that it waits behind, if the statement asked.
pub(super) fn claimed(row: &PgRow, in_order: bool) -> Result<Claimed, StoreError> {
    let behind = if in_order { behind(row, AFTER_CLAIMED + 1)? } else { None };
    row::claimed(row, claimed_at(row, AFTER_CLAIMED)?, None, behind)
}
