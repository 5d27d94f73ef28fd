//! Rows of events that are to be delivered.

use std::time::Duration;

use outbox_event::time::Timestamp;
use outbox_event::{Envelope, Event, EventId, Fence, HeaderPairs, Headers, MAX_PAYLOAD_BYTES, Route};
use sqlx::ColumnIndex;

use super::columns::{Columns, filled};
use super::{Claimed, Due, Position, ReadEvent, StoreError};

/// The most bytes of payload and headers together that are read of an event, eight times what a writer may write. A plain INSERT may
/// write more than this host has memory for: such a row is read without them, and dies. The number stands in the statements too.
/// Below 16 MiB, which is the largest row that MariaDB sends by default.
pub(super) const MAX_READ_BYTES: u64 = 8 << 20;

/// The large columns of a row, which MySQL reads apart from the others.
pub(super) struct Apart {
    pub(super) headers: Option<String>,
    pub(super) payload: Vec<u8>,
}

/// Declares where a result has columns with these names. The names are looked up once for all rows of the result.
macro_rules! positions {
    ($(#[$doc:meta])* $type:ident { $($column:ident),+ $(,)? }) => {
        $(#[$doc])*
        pub(super) struct $type {
            $($column: usize),+
        }

        impl $type {
            /// Finds the columns of a row's result.
            ///
            /// # Errors
            /// If the result lacks one of them.
            pub(super) fn of<R: Columns>(row: &R) -> Result<Self, StoreError>
            where
                for<'c> &'c str: ColumnIndex<R>,
            {
                Ok(Self { $($column: position(row, stringify!($column))?),+ })
            }
        }
    };
}

positions! {
    /// The columns that every claim and every read return.
    EventColumns {
        seq, claim_seq, attempts, deferrals, claims, starts, event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers,
        content_type, payload, occurred_at, available_at, expires_at, wait_since, epoch, bytes,
    }
}

positions! {
    /// The further columns of a read: since when the event is due, whether it was claimed, and its partition.
    PositionColumns { due_at, was_claimed, partition_id }
}

fn position<R: Columns>(row: &R, column: &str) -> Result<usize, StoreError>
where
    for<'c> &'c str: ColumnIndex<R>,
{
    column.index(row).map_err(|source| StoreError::Failed { action: "find the columns of an event", source })
}

/// The time of the database when the statement of this row began.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn now<R: Columns>(row: &R) -> Result<Timestamp, StoreError>
where
    for<'c> &'c str: ColumnIndex<R>,
{
    filled("now", row.time("now")).map_err(|source| StoreError::Failed { action: "read the time of a statement", source })
}

/// Claimed events at this time of the database.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn claimed<R: Columns>(
    rows: &[R],
    now: impl FnOnce(&R) -> Result<Timestamp, StoreError>,
) -> Result<Vec<Claimed>, StoreError>
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let (columns, now) = (EventColumns::of(first)?, now(first)?);
    rows.iter().map(|row| columns.claimed(row, now, None, None)).collect()
}

/// Events that were read at this time of the database, each with the event that it waits behind, if the statement asked.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn read<R: Columns>(
    rows: Vec<R>,
    now: impl FnOnce(&R) -> Result<Timestamp, StoreError>,
    in_order: bool,
) -> Result<Vec<ReadEvent>, StoreError>
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let (columns, positions, now) = (EventColumns::of(first)?, PositionColumns::of(first)?, now(first)?);
    let behind = if in_order { Some(position(first, "behind")?) } else { None };
    let read = |row: &R| {
        let behind = behind.map(|column| columns.behind(row, column)).transpose()?.flatten();
        positions.read(row, columns.claimed(row, now, None, behind)?)
    };
    // Row by row, so that no payload is there twice for long.
    rows.into_iter().map(|row| read(&row)).collect()
}

impl EventColumns {
    /// The `seq` of a row.
    pub(super) fn sequence<R: Columns>(&self, row: &R) -> Result<u64, StoreError>
    where
        usize: ColumnIndex<R>,
    {
        let sequence = filled("seq", row.unsigned(self.seq));
        sequence.map_err(|source| StoreError::Failed { action: "read a row's seq", source })
    }

    /// How many bytes the payload and the headers of a row have together.
    #[cfg(feature = "mysql")]
    pub(super) fn size_bytes<R: Columns>(&self, row: &R) -> Result<u64, StoreError>
    where
        usize: ColumnIndex<R>,
    {
        number(row, "bytes", self.bytes).map_err(|why| StoreError::Row { sequence: self.sequence(row).unwrap_or(0), why })
    }

    /// The `seq` in this column, that of the event that a row waits behind.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    fn behind<R: Columns>(&self, row: &R, column: usize) -> Result<Option<u64>, StoreError>
    where
        usize: ColumnIndex<R>,
    {
        let sequence = self.sequence(row)?;
        let behind = row.integer(column).map_err(|error| StoreError::Row { sequence, why: error.to_string() })?;
        Ok(behind.and_then(|seq| seq.try_into().ok()))
    }

    /// The event of a row. `now` is the time of the database, `apart` has the columns that were read apart, and the event waits behind
    /// `behind`. If a column that only this event needs is unreadable, the other events of the batch are still returned.
    pub(super) fn claimed<R: Columns>(
        &self,
        row: &R,
        now: Timestamp,
        apart: Option<Apart>,
        behind: Option<u64>,
    ) -> Result<Claimed, StoreError>
    where
        usize: ColumnIndex<R>,
    {
        let sequence = self.sequence(row)?;
        let claim_seq = number(row, "claim_seq", self.claim_seq);
        // NULL if the row of the partition was deleted.
        let epoch = number(row, "epoch", self.epoch).unwrap_or(0);
        let fence = Fence::new(sequence, epoch, claim_seq.clone().unwrap_or(0));
        let attempts = number(row, "attempts", self.attempts);
        let available_at = row.time(self.available_at).ok().flatten().unwrap_or(now);
        let expires_at = row.time(self.expires_at).ok().flatten();
        Ok(Claimed {
            fence,
            attempts: attempts.clone().unwrap_or(0),
            event: claim_seq.and(attempts).and_then(|attempts| self.event(row, now, apart, fence, attempts)),
            deferrals: number(row, "deferrals", self.deferrals).unwrap_or(0),
            claims: number(row, "claims", self.claims).unwrap_or(1),
            starts: number(row, "starts", self.starts).unwrap_or(0),
            due: Due::at(now, available_at, expires_at),
            expires_in: expires_at.map(|expires_at| expires_at.since(now)),
            behind,
        })
    }

    fn event<R: Columns>(
        &self,
        row: &R,
        now: Timestamp,
        apart: Option<Apart>,
        fence: Fence,
        attempts: u32,
    ) -> Result<Event, String>
    where
        usize: ColumnIndex<R>,
    {
        let bytes = number::<_, u64>(row, "bytes", self.bytes)?;
        if bytes > MAX_READ_BYTES {
            return Err(too_large(bytes));
        }
        let named = |name: &'static str| move |error: sqlx::Error| format!("{name}: {error}");
        let text = |name, column| filled(name, row.text(column)).map_err(named(name));
        let time = |name, column| filled(name, row.time(column)).map_err(named(name));
        let route = Route::of_event(text("aggregate_type", self.aggregate_type)?, text("event_type", self.event_type)?)
            .map_err(|error| error.to_string())?;
        // Object mappers write JSON's null, or nothing, for no headers.
        let headers = |text: Option<&str>| match text.map(str::trim_ascii) {
            None | Some("" | "null") => Ok(Headers::default()),
            Some(text) => {
                let pairs: HeaderPairs = serde_json::from_str(text).map_err(|error| not_headers(&error))?;
                pairs.checked().map_err(|error| format!("headers: {error}"))
            }
        };
        let (headers, payload) = match apart {
            Some(apart) => (headers(apart.headers.as_deref())?, apart.payload),
            None => (
                headers(row.text(self.headers).map_err(named("headers"))?)?,
                filled("payload", row.bytes(self.payload)).map_err(named("payload"))?,
            ),
        };
        let envelope = Envelope::stored(
            text("event_id", self.event_id)?.parse::<EventId>().map_err(|error| error.to_string())?,
            route,
            row.text(self.aggregate_id).map_err(named("aggregate_id"))?,
            row.text(self.tenant_id).map_err(named("tenant_id"))?,
            time("occurred_at", self.occurred_at)?,
            time("available_at", self.available_at)?,
            row.time(self.expires_at).map_err(named("expires_at"))?,
            headers,
            text("content_type", self.content_type)?,
            payload.into(),
        );
        let waited = row.time(self.wait_since).ok().flatten().map_or(Duration::ZERO, |since| now.since(since));
        let event = Event::of(envelope).sequence(fence.sequence).fence(fence.claim).attempt(attempts.saturating_add(1));
        Ok(event.waited(waited).build())
    }
}

impl PositionColumns {
    /// An event that was read.
    pub(super) fn read<R: Columns>(&self, row: &R, event: Claimed) -> Result<ReadEvent, StoreError>
    where
        usize: ColumnIndex<R>,
    {
        let failed = |source| StoreError::Failed { action: "read an event's position", source };
        let due_at = filled("due_at", row.time(self.due_at)).map_err(|error| format!("due_at: {error}"));
        let was_claimed = filled("was_claimed", row.integer(self.was_claimed)).map_err(failed)? != 0;
        let partition = filled("partition_id", row.integer(self.partition_id)).map_err(failed)?;
        // If the number is too large for any partition, no host owns the row, and no host reads it.
        let partition = u16::try_from(partition).unwrap_or(u16::MAX);
        let position = Position { due_at: due_at.clone().unwrap_or(Timestamp::from_micros(0)), sequence: event.fence.sequence };
        let event = Claimed { event: due_at.and(event.event), ..event };
        Ok(ReadEvent { event, partition, position, was_claimed })
    }
}

/// Says why a text does not hold headers, without the parser's message: the message repeats the text, and not all users who may see why
/// an event is dead may see its headers.
fn not_headers(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let what = if error.is_data() { "an object of strings" } else { "JSON" };
    format!("headers: not {what}; look at line {line}, column {column}")
}

/// Says why an event of this size is not read.
fn too_large(bytes: u64) -> String {
    format!(
        "its payload and headers have {bytes} bytes, and no host reads more than {MAX_READ_BYTES}; keep the data elsewhere, and write \
         an event that says where (at most {MAX_PAYLOAD_BYTES} bytes, as the library's writer allows), then discard this one"
    )
}

fn number<R: Columns, N: TryFrom<i64>>(row: &R, name: &'static str, column: usize) -> Result<N, String>
where
    usize: ColumnIndex<R>,
{
    let value = filled(name, row.integer(column)).map_err(|error| format!("{name}: {error}"))?;
    N::try_from(value).map_err(|_| format!("{name}: {value} is out of range"))
}
