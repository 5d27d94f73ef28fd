//! Columns of a row: what differs is how a driver reads one.

use std::fmt::Debug;

use outbox_event::time::Timestamp;
use sqlx::{ColumnIndex, Row};

use super::number::unsigned;

/// A row of a driver, read column by column: by number on the hot walk, by name for people. `None` is NULL.
pub(super) trait Columns: Row {
    /// A whole number, whatever width its column has.
    fn integer<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<i64>, sqlx::Error>;

    /// A whole number that is never negative, such as a `seq`. On MySQL it may be larger than any [`integer`](Self::integer).
    ///
    /// # Errors
    /// If it is negative.
    fn unsigned<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<u64>, sqlx::Error> {
        let number = self.integer(column)?.map(u64::try_from).transpose();
        number.map_err(|error| sqlx::Error::Decode(error.into()))
    }

    /// A text.
    fn text<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<&str>, sqlx::Error>;

    /// Bytes.
    fn bytes<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<Vec<u8>>, sqlx::Error>;

    /// A point in time.
    fn time<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<Timestamp>, sqlx::Error>;
}

/// A row whose columns have names.
pub(super) trait Named: Columns {
    /// A number that is counted, so never below zero.
    fn count<N: TryFrom<i64> + Default>(&self, name: &str) -> Result<N, sqlx::Error>;

    /// A text that is never NULL.
    fn string(&self, name: &str) -> Result<String, sqlx::Error>;

    /// A text that may be NULL.
    fn optional_string(&self, name: &str) -> Result<Option<String>, sqlx::Error>;

    /// A text that may be NULL. SQLite also stores text that is not UTF-8: U+FFFD replaces what is invalid.
    fn lossy_string(&self, name: &str) -> Result<Option<String>, sqlx::Error>;

    /// A point in time that is never NULL.
    fn moment(&self, name: &str) -> Result<Timestamp, sqlx::Error>;

    /// A number that may be NULL.
    fn optional_number(&self, name: &str) -> Result<Option<i64>, sqlx::Error>;

    /// A point in time that may be NULL.
    fn optional_moment(&self, name: &str) -> Result<Option<Timestamp>, sqlx::Error>;

    /// Bytes that may be NULL.
    fn optional_bytes(&self, name: &str) -> Result<Option<Vec<u8>>, sqlx::Error>;

    /// The number in this column, which is counted, so never below zero.
    fn number(&self, column: usize) -> Result<u64, sqlx::Error>;

    /// The `seq` in this column.
    fn sequence(&self, column: usize) -> Result<u64, sqlx::Error>;

    /// The `seq` in the column with this name. `None` is NULL.
    fn optional_sequence(&self, name: &str) -> Result<Option<u64>, sqlx::Error>;
}

impl<R: Columns> Named for R
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    fn count<N: TryFrom<i64> + Default>(&self, name: &str) -> Result<N, sqlx::Error> {
        Ok(N::try_from(filled(name, self.integer(name))?).unwrap_or_default())
    }

    fn string(&self, name: &str) -> Result<String, sqlx::Error> {
        Ok(filled(name, self.text(name))?.to_owned())
    }

    fn optional_string(&self, name: &str) -> Result<Option<String>, sqlx::Error> {
        Ok(self.text(name)?.map(str::to_owned))
    }

    fn lossy_string(&self, name: &str) -> Result<Option<String>, sqlx::Error> {
        let error = match self.text(name) {
            Ok(text) => return Ok(text.map(str::to_owned)),
            Err(error) => error,
        };
        match self.bytes(name) {
            Ok(Some(bytes)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Ok(None) | Err(_) => Err(error),
        }
    }

    fn moment(&self, name: &str) -> Result<Timestamp, sqlx::Error> {
        filled(name, self.time(name))
    }

    fn optional_number(&self, name: &str) -> Result<Option<i64>, sqlx::Error> {
        self.integer(name)
    }

    fn optional_moment(&self, name: &str) -> Result<Option<Timestamp>, sqlx::Error> {
        self.time(name)
    }

    fn optional_bytes(&self, name: &str) -> Result<Option<Vec<u8>>, sqlx::Error> {
        self.bytes(name)
    }

    fn number(&self, column: usize) -> Result<u64, sqlx::Error> {
        Ok(unsigned(filled(column, self.integer(column))?))
    }

    fn sequence(&self, column: usize) -> Result<u64, sqlx::Error> {
        filled(column, self.unsigned(column))
    }

    fn optional_sequence(&self, name: &str) -> Result<Option<u64>, sqlx::Error> {
        self.unsigned(name)
    }
}

/// What must not be NULL.
pub(super) fn filled<T>(column: impl Debug, value: Result<Option<T>, sqlx::Error>) -> Result<T, sqlx::Error> {
    value?.ok_or_else(|| sqlx::Error::ColumnDecode { index: format!("{column:?}"), source: "it is NULL".into() })
}
