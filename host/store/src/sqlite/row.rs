//! Columns into values: the one place where a column of SQLite becomes a time, a text or a number.

use outbox_event::time::Timestamp;
use sqlx::sqlite::SqliteRow;
use sqlx::{ColumnIndex, Row};

use crate::row::Columns;

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
