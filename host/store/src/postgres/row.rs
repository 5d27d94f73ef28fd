//! Columns into values: with `time.rs` the one place where a column of PostgreSQL becomes a time, a text or a number.

use outbox_event::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{ColumnIndex, Row};

use super::time::Moment;
use crate::row::Columns;

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
