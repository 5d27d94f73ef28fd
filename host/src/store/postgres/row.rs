//! Columns into values, and numbers into columns: with `time.rs` the one place where a column of PostgreSQL becomes a time, a
//! name or a number.

use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row, Type};

use super::time::Moment;
use crate::event::{Envelope, Event, Fence, Headers, Route, Status};
use crate::store::{AttemptCost, Claimed, Due, Record, StoreError};
use crate::time::Timestamp;

/// What `RETURNING` gives of a claimed row, after its `seq`.
mod column {
    pub(super) const CLAIM_SEQ: usize = 1;
    pub(super) const ATTEMPTS: usize = 2;
    pub(super) const DEFERRALS: usize = 3;
    pub(super) const CLAIMS: usize = 4;
    pub(super) const STARTS: usize = 5;
    pub(super) const EVENT_ID: usize = 6;
    pub(super) const EVENT_TYPE: usize = 7;
    pub(super) const AGGREGATE_TYPE: usize = 8;
    pub(super) const AGGREGATE_ID: usize = 9;
    pub(super) const TENANT_ID: usize = 10;
    pub(super) const HEADERS: usize = 11;
    pub(super) const CONTENT_TYPE: usize = 12;
    pub(super) const PAYLOAD: usize = 13;
    pub(super) const OCCURRED_AT: usize = 14;
    pub(super) const AVAILABLE_AT: usize = 15;
    pub(super) const EXPIRES_AT: usize = 16;
    pub(super) const NOW: usize = 17;
    pub(super) const BEHIND: usize = 18;
}

/// The `seq` of a row, which stands first in every statement's result.
pub(super) fn sequence(row: &PgRow) -> Result<u64, StoreError> {
    let sequence: i64 = row.try_get(0).map_err(|source| StoreError::Failed { action: "read a row's seq", source })?;
    Ok(u64::try_from(sequence).unwrap_or(0))
}

/// A number as the column counts it; one that the column cannot hold belongs to no row.
/// A claimed row. What only this event needs may be unreadable without spoiling the batch.
pub(super) fn claimed(row: &PgRow, in_order: bool) -> Result<Claimed, StoreError> {
    let sequence = sequence(row)?;
    let broken = |why: String| StoreError::Row { sequence, why };
    let fence = Fence { sequence, claim: long(row, column::CLAIM_SEQ).map_err(broken)? };
    let now = moment(row, column::NOW).map_err(broken)?;
    let attempts = number(row, column::ATTEMPTS).map_err(|why| format!("attempts: {why}"));
    let available_at = moment(row, column::AVAILABLE_AT).unwrap_or(now);
    let expires_at = optional_moment(row, column::EXPIRES_AT).unwrap_or(None);
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

fn event(row: &PgRow, fence: Fence, attempts: u32) -> Result<Event, String> {
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
    let payload: Vec<u8> = get(row, column::PAYLOAD).map_err(named("payload"))?;
    let envelope = Envelope::stored(
        get::<&str>(row, column::EVENT_ID)
            .map_err(named("event_id"))?
            .parse()
            .map_err(|error: crate::event::NameError| error.to_string())?,
        route,
        get::<Option<&str>>(row, column::AGGREGATE_ID).map_err(named("aggregate_id"))?,
        get::<Option<&str>>(row, column::TENANT_ID).map_err(named("tenant_id"))?,
        moment(row, column::OCCURRED_AT).map_err(named("occurred_at"))?,
        moment(row, column::AVAILABLE_AT).map_err(named("available_at"))?,
        optional_moment(row, column::EXPIRES_AT).map_err(named("expires_at"))?,
        headers,
        get::<&str>(row, column::CONTENT_TYPE).map_err(named("content_type"))?,
        payload.into(),
    );
    Ok(Event::of(envelope).sequence(fence.sequence).fence(fence.claim).attempt(attempts.saturating_add(1)).build())
}

/// A whole row, read by name: this is for people, not for the hot walk.
pub(super) fn record(row: &PgRow) -> Result<Record, StoreError> {
    let sequence = sequence(row)?;
    read_record(row, sequence).map_err(|why| StoreError::Row { sequence, why })
}

fn read_record(row: &PgRow, seq: u64) -> Result<Record, String> {
    fn field<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, name: &str) -> Result<T, String> {
        row.try_get(name).map_err(|error| format!("{name}: {error}"))
    }
    /// A plain INSERT may set a counter to anything: people see 0 then, rather than nothing at all.
    fn counter(row: &PgRow, name: &str) -> Result<u32, String> {
        Ok(u32::try_from(field::<i32>(row, name)?).unwrap_or_default())
    }
    let time = |name: &str| Ok::<_, String>(field::<Option<Moment>>(row, name)?.map(|moment| moment.0));
    let moment = |name: &str| Ok::<_, String>(field::<Moment>(row, name)?.0);
    let long = |name: &str| Ok::<_, String>(field::<Option<i64>>(row, name)?.and_then(|value| u64::try_from(value).ok()));
    let status: i16 = field(row, "status")?;
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
        payload_bytes: u64::try_from(field::<i32>(row, "payload_bytes")?).unwrap_or_default(),
        payload: field::<Option<Vec<u8>>>(row, "payload")?.map(Into::into),
        status: Status::from_code(status.into()).ok_or_else(|| format!("status is {status}; it must be 0 to 3"))?,
        attempts: counter(row, "attempts")?,
        deferrals: counter(row, "deferrals")?,
        claims: counter(row, "claims")?,
        starts: counter(row, "starts")?,
        claim_seq: long("claim_seq")?.unwrap_or_default(),
        replays: counter(row, "replays")?,
        occurred_at: moment("occurred_at")?,
        created_at: moment("created_at")?,
        available_at: moment("available_at")?,
        due_at: time("due_at")?,
        expires_at: time("expires_at")?,
        done_at: time("done_at")?,
        parked: field(row, "parked")?,
        behind: long("behind")?,
        blocks: field::<i16>(row, "blocks")? != 0,
        locked_by: field(row, "locked_by")?,
        locked_at: time("locked_at")?,
        lease_end: time("lease_end")?,
        last_error: field(row, "last_error")?,
        last_cost: AttemptCost::from_column(field::<Option<String>>(row, "last_cost")?.as_deref()),
    })
}

fn get<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, index: usize) -> Result<T, String> {
    row.try_get(index).map_err(|error| error.to_string())
}

fn moment(row: &PgRow, index: usize) -> Result<Timestamp, String> {
    get::<Moment>(row, index).map(|moment| moment.0)
}

fn optional_moment(row: &PgRow, index: usize) -> Result<Option<Timestamp>, String> {
    Ok(get::<Option<Moment>>(row, index)?.map(|moment| moment.0))
}

fn number(row: &PgRow, index: usize) -> Result<u32, String> {
    let value: i32 = get(row, index)?;
    u32::try_from(value).map_err(|_| format!("column {index} holds {value}, which is out of range"))
}

fn long(row: &PgRow, index: usize) -> Result<u64, String> {
    let value: i64 = get(row, index)?;
    u64::try_from(value).map_err(|_| format!("column {index} holds {value}, which is out of range"))
}

/// A count, which the database never makes negative.
pub(super) fn count(row: &PgRow, name: &str) -> Result<u64, sqlx::Error> {
    row.try_get::<i64, _>(name).map(|value| u64::try_from(value).unwrap_or_default())
}

/// A time.
pub(super) fn time(row: &PgRow, name: &str) -> Result<Timestamp, sqlx::Error> {
    row.try_get::<Moment, _>(name).map(|moment| moment.0)
}

/// A time that may be NULL.
pub(super) fn optional_time(row: &PgRow, name: &str) -> Result<Option<Timestamp>, sqlx::Error> {
    Ok(row.try_get::<Option<Moment>, _>(name)?.map(|moment| moment.0))
}
