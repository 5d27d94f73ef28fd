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

/// The stored columns that [`EventColumns`](crate::event_row::EventColumns) finds and that do not depend on the size of the event.
macro_rules! event_columns {
    () => {
        "seq, claim_seq, attempts, deferrals, claims, starts, event_id, event_type, aggregate_type, aggregate_id, tenant_id,
       content_type, occurred_at, available_at, expires_at, wait_since"
    };
}

/// All columns of a read, from rows named `chosen` whose size is in `bytes`, with or without payload and headers.
macro_rules! read_columns {
    (with_payload) => {
        read_columns!("CASE WHEN bytes <= 8388608 THEN headers END AS headers, CASE WHEN bytes <= 8388608 THEN payload END AS payload")
    };
    (without_payload) => {
        read_columns!("NULL::text AS headers, NULL::bytea AS payload")
    };
    ($large:literal) => {
        concat!(
            event_columns!(),
            ",
       ",
            $large,
            ", bytes,
       (SELECT epoch FROM outbox_event_partition AS part WHERE part.partition_id = chosen.partition_id) AS epoch, now() AS now,
       due_at, (lease_end IS NOT NULL)::integer AS was_claimed, partition_id::integer"
        )
    };
}

pub(super) use {event_columns, read_columns};
