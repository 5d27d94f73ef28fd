//! Rows into values, once for all databases.

use std::time::Duration;

use outbox_event::time::Timestamp;
use outbox_event::{
    Envelope, Event, EventId, Fence, HeaderPairs, Headers, MAX_PAYLOAD_BYTES, Route, StateUsage, StateValue, Status,
};
use sqlx::ColumnIndex;

pub(super) use super::columns::{Columns, Named, filled};
use super::last_cost::from_column;
use super::number::unsigned;
use super::{
    AuditRecord, BlockedKey, Claimed, Due, NodeRecord, PluginUsage, Position, Purgeable, ReadEvent, Record, RouteRecord,
    StateRecord, Stats, StoreError,
};

/// The `seq` of a row, which stands first in every statement's result.
pub(super) fn sequence<R: Columns>(row: &R) -> Result<u64, StoreError>
where
    usize: ColumnIndex<R>,
{
    let sequence = filled(0, row.integer(0)).map_err(|source| StoreError::Failed { action: "read a row's seq", source })?;
    Ok(unsigned(sequence))
}

/// A row as it is, without the epoch of its partition: its `seq` and its `claim_seq`, in the first two columns.
pub(super) fn as_it_is<R: Columns>(row: &R) -> Result<Fence, StoreError>
where
    usize: ColumnIndex<R>,
{
    let claim_seq =
        filled(1, row.integer(1)).map_err(|source| StoreError::Failed { action: "read a row's claim_seq", source })?;
    Ok(Fence::new(sequence(row)?, 0, unsigned(claim_seq)))
}

/// The fence of a row: its `seq` and its claim, in the first two columns.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn fence(row: &impl Named) -> Result<Fence, sqlx::Error> {
    Ok(Fence { sequence: row.number(0)?, claim: row.number(1)? })
}

/// The first two numbers of a row, such as the `seq` of an event and that of another; the second may be NULL.
pub(super) fn pair<R: Columns>(row: &R) -> Result<(u64, Option<u64>), sqlx::Error>
where
    usize: ColumnIndex<R>,
{
    Ok((unsigned(filled(0, row.integer(0))?), row.integer(1)?.and_then(|other| u64::try_from(other).ok())))
}

/// The `seq` of each row, and the id of its event, which stands second; without rows whose id is none.
pub(super) fn with_ids<R: Columns>(rows: &[R]) -> Result<Vec<(u64, EventId)>, sqlx::Error>
where
    usize: ColumnIndex<R>,
{
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        if let Ok(id) = filled(1, row.text(1))?.parse() {
            found.push((unsigned(filled(0, row.integer(0))?), id));
        }
    }
    Ok(found)
}

/// What a claim reads of a row, after its `seq`. What follows differs between the databases.
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
    pub(super) const EPOCH: usize = 17;
    pub(super) const BYTES: usize = 18;
}

/// The first column of a claimed row that only some databases read.
pub(super) const AFTER_CLAIMED: usize = column::BYTES + 1;

/// The most bytes of payload and headers together that are read of an event, eight times what a writer may write. A plain INSERT may
/// write more than this host has memory for: such a row is read without them, and dies. The number stands in the statements too.
/// Below 16 MiB, which is the largest row that MariaDB sends by default.
pub(super) const MAX_READ_BYTES: u64 = 8 << 20;

/// What was left out of a row, because it is large, and read after it.
pub(super) struct Apart {
    pub(super) headers: Option<String>,
    pub(super) payload: Vec<u8>,
}

/// How many bytes the payload and the headers of a claimed row have together.
#[cfg(feature = "mysql")]
pub(super) fn size_bytes<R: Columns>(row: &R) -> Result<u64, StoreError>
where
    usize: ColumnIndex<R>,
{
    number(row, column::BYTES).map_err(|why| StoreError::Row { sequence: sequence(row).unwrap_or(0), why })
}

/// A claimed row at this time of the database, with what was read apart, and the event that it waits behind. What only this event
/// needs may be unreadable without spoiling the batch.
pub(super) fn claimed<R: Columns>(
    row: &R,
    now: Timestamp,
    apart: Option<Apart>,
    behind: Option<u64>,
) -> Result<Claimed, StoreError>
where
    usize: ColumnIndex<R>,
{
    let sequence = sequence(row)?;
    let claim_seq = number(row, column::CLAIM_SEQ).map_err(|why| StoreError::Row { sequence, why })?;
    // NULL where somebody deleted the row of the partition.
    let epoch = number(row, column::EPOCH).unwrap_or(0);
    let fence = Fence::new(sequence, epoch, claim_seq);
    let attempts = number(row, column::ATTEMPTS).map_err(|why| format!("attempts: {why}"));
    let available_at = row.time(column::AVAILABLE_AT).ok().flatten().unwrap_or(now);
    let expires_at = row.time(column::EXPIRES_AT).ok().flatten();
    Ok(Claimed {
        fence,
        attempts: attempts.clone().unwrap_or(0),
        event: attempts.and_then(|attempts| event(row, apart, fence, attempts)),
        deferrals: number(row, column::DEFERRALS).unwrap_or(0),
        claims: number(row, column::CLAIMS).unwrap_or(1),
        starts: number(row, column::STARTS).unwrap_or(0),
        due: Due::at(now, available_at, expires_at),
        expires_in: expires_at.map(|expires_at| expires_at.since(now)),
        behind,
    })
}

/// How many columns [`read`] reads.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) const POSITION: usize = 3;

/// An event that was read, with the three columns from this one on: since when it is due, whether it had a claim, its partition.
pub(super) fn read<R: Columns>(row: &R, event: Claimed, column: usize) -> Result<ReadEvent, StoreError>
where
    usize: ColumnIndex<R>,
{
    let failed = |source| StoreError::Failed { action: "read an event's position", source };
    let due_at = filled(column, row.time(column)).map_err(failed)?;
    let was_claimed = filled(column + 1, row.integer(column + 1)).map_err(failed)? != 0;
    let partition = filled(column + 2, row.integer(column + 2)).map_err(failed)?;
    // One that the column cannot hold is nobody's, and was not read.
    let partition = u16::try_from(partition).unwrap_or(u16::MAX);
    Ok(ReadEvent { position: Position { due_at, sequence: event.fence.sequence }, event, partition, was_claimed })
}

fn event<R: Columns>(row: &R, apart: Option<Apart>, fence: Fence, attempts: u32) -> Result<Event, String>
where
    usize: ColumnIndex<R>,
{
    let bytes = number::<_, u64>(row, column::BYTES)?;
    if bytes > MAX_READ_BYTES {
        return Err(too_large(bytes));
    }
    let named = |what: &'static str| move |error: sqlx::Error| format!("{what}: {error}");
    let text = |column, what| filled(column, row.text(column)).map_err(named(what));
    let time = |column, what| filled(column, row.time(column)).map_err(named(what));
    let route = Route::of_event(text(column::AGGREGATE_TYPE, "aggregate_type")?, text(column::EVENT_TYPE, "event_type")?)
        .map_err(|error| error.to_string())?;
    let headers = |text: Option<&str>| match text {
        None => Ok(Headers::default()),
        Some(text) => {
            let pairs: HeaderPairs = serde_json::from_str(text).map_err(|error| not_headers(&error))?;
            pairs.checked().map_err(|error| format!("headers: {error}"))
        }
    };
    let (headers, payload) = match apart {
        Some(apart) => (headers(apart.headers.as_deref())?, apart.payload),
        None => (
            headers(row.text(column::HEADERS).map_err(named("headers"))?)?,
            filled(column::PAYLOAD, row.bytes(column::PAYLOAD)).map_err(named("payload"))?,
        ),
    };
    let envelope = Envelope::stored(
        text(column::EVENT_ID, "event_id")?.parse::<EventId>().map_err(|error| error.to_string())?,
        route,
        row.text(column::AGGREGATE_ID).map_err(named("aggregate_id"))?,
        row.text(column::TENANT_ID).map_err(named("tenant_id"))?,
        time(column::OCCURRED_AT, "occurred_at")?,
        time(column::AVAILABLE_AT, "available_at")?,
        row.time(column::EXPIRES_AT).map_err(named("expires_at"))?,
        headers,
        text(column::CONTENT_TYPE, "content_type")?,
        payload.into(),
    );
    Ok(Event::of(envelope).sequence(fence.sequence).fence(fence.claim).attempt(attempts.saturating_add(1)).build())
}

/// Why a text is no headers, without what the parser says: it repeats the text, and not everybody who sees why an event is dead may
/// see its headers.
fn not_headers(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    let what = if error.is_data() { "an object of strings" } else { "JSON" };
    format!("headers: not {what}; look at line {line}, column {column}")
}

/// Why an event of so many bytes is not read.
fn too_large(bytes: u64) -> String {
    format!(
        "its payload and headers have {bytes} bytes, and no host reads more than {MAX_READ_BYTES}; keep the data elsewhere, and write \
         an event that says where (at most {MAX_PAYLOAD_BYTES} bytes, as the library's writer allows), then discard this one"
    )
}

fn number<R: Columns, N: TryFrom<i64>>(row: &R, index: usize) -> Result<N, String>
where
    usize: ColumnIndex<R>,
{
    let value = filled(index, row.integer(index)).map_err(|error| error.to_string())?;
    N::try_from(value).map_err(|_| format!("column {index} holds {value}, which is out of range"))
}

/// A whole row, read by name: this is for people, not for the hot walk.
pub(super) fn record<R: Columns>(row: &R) -> Result<Record, StoreError>
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    let sequence = sequence(row)?;
    read_record(row, sequence).map_err(|why| StoreError::Row { sequence, why })
}

fn read_record<R: Columns>(row: &R, seq: u64) -> Result<Record, String>
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    fn named<T>(name: &str, value: Result<T, sqlx::Error>) -> Result<T, String> {
        value.map_err(|error| format!("{name}: {error}"))
    }
    let string = |name: &str| named(name, row.string(name));
    let optional = |name: &str| named(name, row.optional_string(name));
    let moment = |name: &str| named(name, row.moment(name));
    let time = |name: &str| named(name, row.time(name));
    // A plain INSERT may set a counter to anything: people see 0 then, rather than nothing at all.
    let counter = |name: &str| row.count(name).unwrap_or_default();
    let status = named("status", filled("status", row.integer("status")))?;
    let status = i32::try_from(status)
        .ok()
        .and_then(Status::from_code)
        .ok_or_else(|| format!("status is {status}; it must be 0 to 3"))?;
    // People must be able to look at a row that no listener can be given; why it is dead stands in its last_error.
    let headers = optional("headers")?.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Ok(Record {
        seq,
        event_id: string("event_id")?.parse().map_err(|error| format!("{error}"))?,
        event_type: string("event_type")?,
        aggregate_type: string("aggregate_type")?,
        aggregate_id: optional("aggregate_id")?,
        tenant_id: optional("tenant_id")?,
        headers,
        content_type: string("content_type")?,
        payload_bytes: named("payload_bytes", row.count("payload_bytes"))?,
        payload: row.bytes("payload").ok().flatten().map(Into::into),
        status,
        attempts: counter("attempts"),
        deferrals: counter("deferrals"),
        claims: counter("claims"),
        starts: counter("starts"),
        claim_seq: row.count("claim_seq").unwrap_or_default(),
        replays: counter("replays"),
        occurred_at: moment("occurred_at")?,
        created_at: moment("created_at")?,
        available_at: moment("available_at")?,
        due_at: time("due_at")?,
        expires_at: time("expires_at")?,
        done_at: time("done_at")?,
        parked: optional("parked")?,
        behind: named("behind", row.integer("behind"))?.and_then(|behind| u64::try_from(behind).ok()),
        blocks: named("blocks", row.integer("blocks"))?.is_some_and(|blocks| blocks != 0),
        locked_by: optional("locked_by")?,
        locked_at: time("locked_at")?,
        lease_end: time("lease_end")?,
        last_error: optional("last_error")?,
        last_cost: from_column(optional("last_cost")?.as_deref()),
    })
}

/// A route by its names, which stand in the first two columns. `None` as for [`route`].
pub(super) fn route_name<R: Columns>(row: &R) -> Result<Option<Route>, sqlx::Error>
where
    usize: ColumnIndex<R>,
{
    Ok(Route::new(filled(0, row.text(0))?, filled(1, row.text(1))?).ok())
}

/// A route with its counts. `None` for a name that is not valid, by a plain INSERT: its events are dead, or will be, and listed
/// as such.
pub(super) fn route(row: &impl Named) -> Result<Option<RouteRecord>, sqlx::Error> {
    let Ok(route) = Route::new(row.string("aggregate_type")?, row.string("event_type")?) else {
        return Ok(None);
    };
    Ok(RouteRecord {
        route,
        first_seen_at: row.optional_moment("first_seen_at")?,
        paused_at: row.optional_moment("paused_at")?,
        paused_by: row.optional_string("paused_by")?,
        pause_reason: row.optional_string("reason")?,
        waiting: row.count("waiting")?,
        parked: row.count("parked")?,
        blocked: row.count("blocked")?,
        dead: row.count("dead")?,
    }
    .read())
}

/// A host, of which the statement or the caller knows whether it is alive.
pub(super) fn node(row: &impl Named, alive: bool) -> Result<NodeRecord, sqlx::Error> {
    Ok(NodeRecord {
        owner: row.string("owner")?,
        label: row.string("label")?,
        mode: row.string("mode")?,
        version: row.string("version")?,
        started_at: row.moment("started_at")?,
        alive_until: row.moment("alive_until")?,
        alive,
        partitions: row.count("partitions")?,
        plugins: row.optional_string("plugins")?,
        room: row.count("room")?,
        session: row.count::<u32>("session")? > 0,
    }
    .bounded())
}

/// What somebody did, at this time.
pub(super) fn audit(row: &impl Named, at: Timestamp) -> Result<AuditRecord, sqlx::Error> {
    let selector = row.string("selector")?;
    Ok(AuditRecord {
        id: row.count("id")?,
        at,
        actor: row.string("actor")?,
        action: row.string("action")?,
        selector: serde_json::from_str(&selector).unwrap_or_else(|_| selector.into()),
        count: row.count("count")?,
        reason: row.optional_string("reason")?,
    })
}

/// An event that others wait behind, and its aggregate, in the first three columns.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn blocker<R: Columns>(row: &R) -> Result<super::Blocker, sqlx::Error>
where
    usize: ColumnIndex<R>,
{
    let text = |column| Ok::<_, sqlx::Error>(filled(column, row.text(column))?.to_owned());
    Ok(super::Blocker { sequence: unsigned(filled(0, row.integer(0))?), aggregate_type: text(1)?, aggregate_id: text(2)? })
}

/// An aggregate whose events wait behind one of them.
pub(super) fn blocked_key(row: &impl Named) -> Result<BlockedKey, sqlx::Error> {
    let status = row.optional_number("status")?.and_then(|status| i32::try_from(status).ok());
    Ok(BlockedKey {
        aggregate_type: row.string("aggregate_type")?,
        // An event without one waits for nobody, unless somebody wrote that into its row.
        aggregate_id: row.optional_string("aggregate_id")?.unwrap_or_default(),
        seq: row.count("behind")?,
        event_id: row.optional_string("event_id")?.and_then(|id| id.parse().ok()),
        event_type: row.optional_string("event_type")?,
        status: status.and_then(Status::from_code),
        due_at: row.optional_moment("due_at")?,
        last_error: row.optional_string("last_error")?,
        waiting: row.count("waiting")?,
    })
}

/// How much state a plugin has.
pub(super) fn state_usage(row: &impl Named) -> Result<StateUsage, sqlx::Error> {
    Ok(StateUsage { keys: row.count("used_keys")?, bytes: row.count("used_bytes")? })
}

/// How much state this plugin has.
pub(super) fn plugin_usage(row: &impl Named, plugin: String) -> Result<PluginUsage, sqlx::Error> {
    Ok(PluginUsage { plugin, usage: state_usage(row)? })
}

/// A value of a plugin's state, for the plugin.
pub(super) fn state_value(row: &impl Named) -> Result<StateValue, sqlx::Error> {
    Ok(StateValue { version: row.count("version")?, value: filled("value", row.optional_bytes("value"))?.into() })
}

/// A value of this plugin's state under this key, for people.
pub(super) fn state_record(row: &impl Named, plugin: String, key: String) -> Result<StateRecord, sqlx::Error> {
    Ok(StateRecord {
        plugin,
        key,
        version: row.count("version")?,
        value_bytes: row.count("value_bytes")?,
        updated_at: row.moment("updated_at")?,
        value: row.optional_bytes("value")?.map(Into::into),
    })
}

/// How many rows a purge would delete, and how many it would leave.
pub(super) fn purgeable(row: &impl Named) -> Result<Purgeable, sqlx::Error> {
    Ok(Purgeable { count: row.number(0)?, blocking: row.number(1)? })
}

/// How many events are in each state, and how long the oldest that could be delivered has waited.
pub(super) fn stats(row: &impl Named, oldest: Option<Duration>) -> Result<Stats, sqlx::Error> {
    Ok(Stats {
        new: row.count("new")?,
        retry: row.count("retry")?,
        done: row.count("done")?,
        dead: row.count("dead")?,
        parked: row.count("parked")?,
        blocked: row.count("blocked")?,
        in_flight: row.count("in_flight")?,
        oldest_pending_seconds: oldest.map(|age| (age.as_secs_f64() * 1_000.0).round() / 1_000.0),
    })
}

/// The `seq` of the event that a claimed row waits behind, which stands in this column.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) fn behind<R: Columns>(row: &R, column: usize) -> Result<Option<u64>, StoreError>
where
    usize: ColumnIndex<R>,
{
    let sequence = sequence(row)?;
    let behind = row.integer(column).map_err(|error| StoreError::Row { sequence, why: error.to_string() })?;
    Ok(behind.and_then(|seq| seq.try_into().ok()))
}

/// The time of the database at which a row was claimed, which stands in this column.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn claimed_at<R: Columns>(row: &R, column: usize) -> Result<Timestamp, StoreError>
where
    usize: ColumnIndex<R>,
{
    let sequence = sequence(row)?;
    filled(column, row.time(column)).map_err(|error| StoreError::Row { sequence, why: error.to_string() })
}
