//! Columns into values: the one place where a column of MySQL becomes a time, a text or a number, and back.

use std::num::TryFromIntError;

use outbox_event::time::Timestamp;
use sqlx::mysql::MySqlRow;
use sqlx::{Column, ColumnIndex, MySql, Row, Type};

use crate::StoreError;
use crate::event_row::{EventColumns, MAX_READ_BYTES};
use crate::row::Columns;

/// The largest payload and headers, together, that every statement reads with their row. The number stands in the statements too.
const INLINE_BYTES: u64 = 16_384;

/// 1000-01-01 and the last microsecond of 9999: what a DATETIME can hold.
const EARLIEST: i64 = -30_610_224_000_000_000;
const LATEST: i64 = 253_402_300_799_999_999;

impl Columns for MySqlRow {
    /// The driver reads an unsigned column, such as `seq`, as an unsigned number only.
    fn integer<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<i64>, sqlx::Error> {
        let column = column.index(self)?;
        if !<u64 as Type<MySql>>::compatible(self.column(column).type_info()) {
            return self.try_get(column);
        }
        let number: Option<u64> = self.try_get(column)?;
        let too_large = |error: TryFromIntError| sqlx::Error::ColumnDecode { index: column.to_string(), source: error.into() };
        number.map(i64::try_from).transpose().map_err(too_large)
    }

    fn unsigned<I: ColumnIndex<Self>>(&self, column: I) -> Result<Option<u64>, sqlx::Error> {
        let column = column.index(self)?;
        if <u64 as Type<MySql>>::compatible(self.column(column).type_info()) {
            return self.try_get(column);
        }
        let number: Option<i64> = self.try_get(column)?;
        number.map(u64::try_from).transpose().map_err(|error| sqlx::Error::Decode(error.into()))
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
pub(super) fn is_read_apart(columns: &EventColumns, row: &MySqlRow) -> Result<bool, StoreError> {
    Ok((INLINE_BYTES + 1..=MAX_READ_BYTES).contains(&columns.size_bytes(row)?))
}

/// The columns that [`EventColumns`](crate::event_row::EventColumns) finds, except for the epoch and the two numbers that a claim raises.
/// If payload and headers are large, they are NULL, and are read apart. Without them, their size is unknown too: to count the bytes, this
/// engine reads them.
macro_rules! event_columns {
    (with_payload) => {
        event_columns!(
            "CASE WHEN OCTET_LENGTH(outbox_event.payload) + COALESCE(OCTET_LENGTH(outbox_event.headers), 0) <= 16384
            THEN outbox_event.headers END AS headers,
       CASE WHEN OCTET_LENGTH(outbox_event.payload) + COALESCE(OCTET_LENGTH(outbox_event.headers), 0) <= 16384
            THEN outbox_event.payload END AS payload,
       OCTET_LENGTH(outbox_event.payload) + COALESCE(OCTET_LENGTH(outbox_event.headers), 0) AS bytes"
        )
    };
    (without_payload) => {
        event_columns!("NULL AS headers, NULL AS payload, 0 AS bytes")
    };
    ($large:literal) => {
        concat!(
            "outbox_event.seq, outbox_event.attempts, outbox_event.deferrals, outbox_event.starts, outbox_event.event_id,
       outbox_event.event_type, outbox_event.aggregate_type, outbox_event.aggregate_id, outbox_event.tenant_id,
       outbox_event.content_type,
       ",
            $large,
            ",
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', outbox_event.occurred_at) AS occurred_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', outbox_event.available_at) AS available_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', outbox_event.expires_at) AS expires_at,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', outbox_event.wait_since) AS wait_since,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS now"
        )
    };
}

pub(super) use event_columns;
