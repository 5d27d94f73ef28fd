//! Columns into values: the one place where a column of SQLite becomes a time, a name or a number.

use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, Type};

use crate::event::{Envelope, Event, Fence, Headers, Route, Status};
use crate::store::{AttemptCost, Claimed, Due, Record, StoreError};
use crate::time::Timestamp;

/// What `RETURNING` gives of a claimed row, after its `seq`.
pub(super) mod column {
    pub(in crate::store::sqlite) const CLAIM_SEQ: usize = 1;
    pub(in crate::store::sqlite) const ATTEMPTS: usize = 2;
    pub(in crate::store::sqlite) const DEFERRALS: usize = 3;
    pub(in crate::store::sqlite) const CLAIMS: usize = 4;
    pub(in crate::store::sqlite) const STARTS: usize = 5;
    pub(in crate::store::sqlite) const EVENT_ID: usize = 6;
    pub(in crate::store::sqlite) const EVENT_TYPE: usize = 7;
    pub(in crate::store::sqlite) const AGGREGATE_TYPE: usize = 8;
    pub(in crate::store::sqlite) const AGGREGATE_ID: usize = 9;
    pub(in crate::store::sqlite) const TENANT_ID: usize = 10;
    pub(in crate::store::sqlite) const HEADERS: usize = 11;
    pub(in crate::store::sqlite) const CONTENT_TYPE: usize = 12;
    pub(in crate::store::sqlite) const PAYLOAD: usize = 13;
    pub(in crate::store::sqlite) const OCCURRED_AT: usize = 14;
    pub(in crate::store::sqlite) const AVAILABLE_AT: usize = 15;
    pub(in crate::store::sqlite) const EXPIRES_AT: usize = 16;
    pub(in crate::store::sqlite) const BEHIND: usize = 17;
}

/// The `seq` of a row, which stands first in every statement's result.
pub(super) fn sequence(row: &SqliteRow) -> Result<u64, StoreError> {
    let sequence: i64 = row.try_get(0).map_err(|source| StoreError::Failed { action: "read a row's seq", source })?;
    Ok(u64::try_from(sequence).unwrap_or(0))
}

/// A claimed row, with the event that it waits behind, if the statement asked. What only this event needs may be unreadable
/// without spoiling the batch.
pub(super) fn claimed(row: &SqliteRow, now: i64, in_order: bool) -> Result<Claimed, StoreError> {
    let sequence = sequence(row)?;
    let broken = |why: String| StoreError::Row { sequence, why };
    let fence = Fence { sequence, claim: number(row, column::CLAIM_SEQ).map_err(broken)? };
    let attempts = number(row, column::ATTEMPTS).map_err(|why| format!("attempts: {why}"));
    let now = Timestamp::from_micros(now);
    let available_at = get(row, column::AVAILABLE_AT).map_or(now, Timestamp::from_micros);
    let expires_at = get::<Option<i64>>(row, column::EXPIRES_AT).unwrap_or(None).map(Timestamp::from_micros);
    Ok(Claimed {
        fence,
        attempts: attempts.clone().unwrap_or(0),
        event: attempts.and_then(|attempts| event(row, fence, attempts)),
        deferrals: number(row, column::DEFERRALS).unwrap_or(0),
        claims: number(row, column::CLAIMS).unwrap_or(1),
        starts: number(row, column::STARTS).unwrap_or(0),
        due: Due::at(now, available_at, expires_at),
        expires_in: expires_at.map(|expires_at| expires_at.since(now)),
        behind: if in_order {
            get::<Option<i64>>(row, column::BEHIND).map_err(broken)?.and_then(|seq| seq.try_into().ok())
        } else {
            None
        },
    })
}

fn event(row: &SqliteRow, fence: Fence, attempts: u32) -> Result<Event, String> {
    let named = |what: &str| {
        let what = what.to_owned();
        move |error: String| format!("{what}: {error}")
    };
    let route = Route::of_event(
        get::<&str>(row, column::AGGREGATE_TYPE).map_err(named("aggregate_type"))?,
        get::<&str>(row, column::EVENT_TYPE).map_err(named("event_type"))?,
    )
    .map_err(|error| error.to_string())?;
    let headers = match get::<Option<&str>>(row, column::HEADERS).map_err(named("headers"))? {
        None => Headers::default(),
        Some(text) => serde_json::from_str(text).map_err(|error| format!("headers: {error}"))?,
    };
    let payload = payload(row, column::PAYLOAD).map_err(named("payload"))?;
    let envelope = Envelope::stored(
        get::<&str>(row, column::EVENT_ID)
            .map_err(named("event_id"))?
            .parse()
            .map_err(|error: crate::event::NameError| error.to_string())?,
        route,
        get::<Option<&str>>(row, column::AGGREGATE_ID).map_err(named("aggregate_id"))?,
        get::<Option<&str>>(row, column::TENANT_ID).map_err(named("tenant_id"))?,
        Timestamp::from_micros(get(row, column::OCCURRED_AT).map_err(named("occurred_at"))?),
        Timestamp::from_micros(get(row, column::AVAILABLE_AT).map_err(named("available_at"))?),
        get::<Option<i64>>(row, column::EXPIRES_AT).map_err(named("expires_at"))?.map(Timestamp::from_micros),
        headers,
        get::<&str>(row, column::CONTENT_TYPE).map_err(named("content_type"))?,
        payload.into(),
    );
    Ok(Event::of(envelope).sequence(fence.sequence).fence(fence.claim).attempt(attempts.saturating_add(1)).build())
}

/// SQLite stores what it is given: a plain INSERT of text leaves text in the column, and its bytes are the payload.
fn payload(row: &SqliteRow, index: usize) -> Result<Vec<u8>, String> {
    row.try_get_unchecked::<Vec<u8>, _>(index).map_err(|error| error.to_string())
}

/// A whole row, read by name: this is for people, not for the hot walk.
pub(super) fn record(row: &SqliteRow) -> Result<Record, StoreError> {
    let sequence = sequence(row)?;
    read_record(row, sequence).map_err(|why| StoreError::Row { sequence, why })
}

fn read_record(row: &SqliteRow, seq: u64) -> Result<Record, String> {
    fn field<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(row: &'r SqliteRow, name: &str) -> Result<T, String> {
        row.try_get(name).map_err(|error| format!("{name}: {error}"))
    }
    fn count<T: TryFrom<i64>>(row: &SqliteRow, name: &str) -> Result<T, String> {
        T::try_from(field::<i64>(row, name)?).map_err(|_| format!("{name} is out of range"))
    }
    /// A plain INSERT may set a counter to anything: people see 0 then, rather than nothing at all.
    fn counter<T: TryFrom<i64> + Default>(row: &SqliteRow, name: &str) -> T {
        count(row, name).unwrap_or_default()
    }
    let time = |name: &str| Ok::<_, String>(field::<Option<i64>>(row, name)?.map(Timestamp::from_micros));
    let moment = |name: &str| field::<i64>(row, name).map(Timestamp::from_micros);
    let status: i32 = count(row, "status")?;
    // People must be able to look at a row that no listener can be given; why it is dead stands in its last_error.
    let headers =
        field::<Option<String>>(row, "headers")?.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Ok(Record {
        seq,
        event_id: field::<String>(row, "event_id")?.parse().map_err(|error| format!("{error}"))?,
        event_type: field(row, "event_type")?,
        aggregate_type: field(row, "aggregate_type")?,
        aggregate_id: field(row, "aggregate_id")?,
        tenant_id: field(row, "tenant_id")?,
        headers,
        content_type: field(row, "content_type")?,
        payload_bytes: count(row, "payload_bytes")?,
        payload: row.try_get_unchecked::<Option<Vec<u8>>, _>("payload").ok().flatten().map(Into::into),
        status: Status::from_code(status).ok_or_else(|| format!("status is {status}; it must be 0 to 3"))?,
        attempts: counter(row, "attempts"),
        deferrals: counter(row, "deferrals"),
        claims: counter(row, "claims"),
        starts: counter(row, "starts"),
        claim_seq: counter(row, "claim_seq"),
        replays: counter(row, "replays"),
        occurred_at: moment("occurred_at")?,
        created_at: moment("created_at")?,
        available_at: moment("available_at")?,
        due_at: time("due_at")?,
        expires_at: time("expires_at")?,
        done_at: time("done_at")?,
        parked: field(row, "parked")?,
        behind: field::<Option<i64>>(row, "behind")?.and_then(|behind| u64::try_from(behind).ok()),
        blocks: field::<i64>(row, "blocks")? != 0,
        locked_by: field(row, "locked_by")?,
        locked_at: time("locked_at")?,
        lease_end: time("lease_end")?,
        last_error: field(row, "last_error")?,
        last_cost: AttemptCost::from_column(field::<Option<String>>(row, "last_cost")?.as_deref()),
    })
}

pub(super) fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(row: &'r SqliteRow, index: usize) -> Result<T, String> {
    row.try_get(index).map_err(|error| error.to_string())
}

fn number<T: TryFrom<i64>>(row: &SqliteRow, index: usize) -> Result<T, String> {
    let value: i64 = get(row, index)?;
    T::try_from(value).map_err(|_| format!("column {index} holds {value}, which is out of range"))
}
