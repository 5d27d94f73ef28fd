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

/// The stored columns that [`EventColumns`](crate::event_row::EventColumns) finds and that do not depend on the size of the event.
/// `seq` is left out: a join must qualify it.
macro_rules! event_columns {
    () => {
        "claim_seq, attempts, deferrals, claims, starts, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
       content_type, occurred_at, available_at, expires_at, wait_since"
    };
}

/// All columns of a read, from the table `event` joined with rows named `chosen` that have its size in `bytes`, with or without payload
/// and headers.
macro_rules! read_columns {
    (with_payload) => {
        read_columns!(
            "CASE WHEN chosen.bytes <= 8388608 THEN headers END AS headers,
       CASE WHEN chosen.bytes <= 8388608 THEN payload END AS payload"
        )
    };
    (without_payload) => {
        read_columns!("NULL AS headers, NULL AS payload")
    };
    ($large:literal) => {
        concat!(
            "event.seq, ",
            event_columns!(),
            ",
       ",
            $large,
            ", chosen.bytes,
       (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = event.partition_id) AS epoch,
       CAST(event.due_at AS INTEGER) AS due_at, lease_end IS NOT NULL AS was_claimed, partition_id"
        )
    };
}

pub(super) use {event_columns, read_columns};
