//! Columns into values: the one place where a column of MySQL becomes a time, a name or a number, and back.

use std::fmt::Display;

use sqlx::mysql::MySqlRow;
use sqlx::{Decode, MySql, Row, Type};

use crate::event::{Envelope, Event, Fence, Headers, Route, Status};
use crate::store::{AttemptCost, Claimed, Due, Record, StoreError};
use crate::time::Timestamp;

/// What a claim reads of a row, after its `seq`.
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
    pub(super) const PAYLOAD_BYTES: usize = 14;
    pub(super) const OCCURRED_AT: usize = 15;
    pub(super) const AVAILABLE_AT: usize = 16;
    pub(super) const EXPIRES_AT: usize = 17;
    pub(super) const NOW: usize = 18;
}

/// 1000-01-01 and the last microsecond of 9999: what a DATETIME can hold.
const EARLIEST: i64 = -30_610_224_000_000_000;
const LATEST: i64 = 253_402_300_799_999_999;

/// A time as it is bound: microseconds since 1970, cut to what the column can hold.
pub(super) fn bound(time: Timestamp) -> i64 {
    time.as_micros().clamp(EARLIEST, LATEST)
}

/// The `seq` of a row, which stands first in every statement's result.
pub(super) fn sequence(row: &MySqlRow) -> Result<u64, StoreError> {
    let sequence: i64 = row.try_get(0).map_err(|source| StoreError::Failed { action: "read a row's seq", source })?;
    Ok(u64::try_from(sequence).unwrap_or(0))
}

/// A JSON list of numbers.
pub(super) fn numbers<N: Display>(numbers: &[N]) -> String {
    let numbers: Vec<String> = numbers.iter().map(N::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// How large a claimed event's payload is.
pub(super) fn payload_bytes(row: &MySqlRow) -> Result<usize, StoreError> {
    let bytes: i64 =
        row.try_get(column::PAYLOAD_BYTES).map_err(|source| StoreError::Failed { action: "read a payload's size", source })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// How large the text of a claimed event's headers is.
pub(super) fn header_bytes(row: &MySqlRow) -> Result<usize, StoreError> {
    let headers: Option<&str> =
        row.try_get(column::HEADERS).map_err(|source| StoreError::Failed { action: "read an event's headers", source })?;
    Ok(headers.map_or(0, str::len))
}

/// Whether a claimed event's payload was too large to be read with it.
pub(super) fn left_out(row: &MySqlRow) -> bool {
    get::<Option<&[u8]>>(row, column::PAYLOAD).is_ok_and(|payload| payload.is_none())
}

/// A claimed row, with its payload when that was read apart. What only this event needs may be unreadable without spoiling the
/// batch.
pub(super) fn claimed(row: &MySqlRow, payload: Option<Vec<u8>>, behind: Option<u64>) -> Result<Claimed, StoreError> {
    let sequence = sequence(row)?;
    let broken = |why: String| StoreError::Row { sequence, why };
    let fence = Fence { sequence, claim: number(row, column::CLAIM_SEQ).map_err(broken)? };
    let now: i64 = get(row, column::NOW).map_err(broken)?;
    let attempts = number(row, column::ATTEMPTS).map_err(|why| format!("attempts: {why}"));
    let now = Timestamp::from_micros(now);
    let available_at = get(row, column::AVAILABLE_AT).map_or(now, Timestamp::from_micros);
    let expires_at = get::<Option<i64>>(row, column::EXPIRES_AT).unwrap_or(None).map(Timestamp::from_micros);
    Ok(Claimed {
        fence,
        attempts: attempts.clone().unwrap_or(0),
        event: attempts.and_then(|attempts| event(row, payload, fence, attempts)),
        deferrals: number(row, column::DEFERRALS).unwrap_or(0),
        claims: number(row, column::CLAIMS).unwrap_or(1),
        starts: number(row, column::STARTS).unwrap_or(0),
        due: Due::at(now, available_at, expires_at),
        expires_in: expires_at.map(|expires_at| expires_at.since(now)),
        behind,
    })
}

fn event(row: &MySqlRow, payload: Option<Vec<u8>>, fence: Fence, attempts: u32) -> Result<Event, String> {
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
    let payload = match payload {
        Some(payload) => payload,
        None => get(row, column::PAYLOAD).map_err(named("payload"))?,
    };
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

/// A whole row, read by name: this is for people, not for the hot walk.
pub(super) fn record(row: &MySqlRow) -> Result<Record, StoreError> {
    let sequence = sequence(row)?;
    read_record(row, sequence).map_err(|why| StoreError::Row { sequence, why })
}

fn read_record(row: &MySqlRow, seq: u64) -> Result<Record, String> {
    fn field<'r, T: Decode<'r, MySql> + Type<MySql>>(row: &'r MySqlRow, name: &str) -> Result<T, String> {
        row.try_get(name).map_err(|error| format!("{name}: {error}"))
    }
    fn count<T: TryFrom<i64>>(row: &MySqlRow, name: &str) -> Result<T, String> {
        T::try_from(field::<i64>(row, name)?).map_err(|_| format!("{name} is out of range"))
    }
    /// A plain INSERT may set a counter to anything: people see 0 then, rather than nothing at all.
    fn counter<T: TryFrom<i64> + Default>(row: &MySqlRow, name: &str) -> T {
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
        payload: row.try_get::<Option<Vec<u8>>, _>("payload").ok().flatten().map(Into::into),
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

/// A number that is counted, so never below zero.
pub(super) fn column<N: TryFrom<i64> + Default>(row: &MySqlRow, name: &str) -> Result<N, sqlx::Error> {
    row.try_get::<i64, _>(name).map(|value| N::try_from(value).unwrap_or_default())
}

/// A time that may be NULL, as microseconds.
pub(super) fn optional(row: &MySqlRow, name: &str) -> Result<Option<Timestamp>, sqlx::Error> {
    Ok(row.try_get::<Option<i64>, _>(name)?.map(Timestamp::from_micros))
}

fn get<'r, T: Decode<'r, MySql> + Type<MySql>>(row: &'r MySqlRow, index: usize) -> Result<T, String> {
    row.try_get(index).map_err(|error| error.to_string())
}

fn number<T: TryFrom<i64>>(row: &MySqlRow, index: usize) -> Result<T, String> {
    let value: i64 = get(row, index)?;
    T::try_from(value).map_err(|_| format!("column {index} holds {value}, which is out of range"))
}
