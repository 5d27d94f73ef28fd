//! Rows into values, once for all databases.

use std::time::Duration;

use outbox_event::time::Timestamp;
use outbox_event::{EventId, Fence, Route, StateUsage, StateValue, Status};
use sqlx::ColumnIndex;

pub(super) use super::columns::{Columns, Named, filled};
use super::last_cost::from_column;
use super::{
    AuditRecord, BlockedKey, ListenerReport, NodeRecord, OldestPending, Peer, PluginUsage, PurgeRow, Purgeable, Record,
    RouteRecord, RowId, StateRecord, Stats, StoreError, StuckEvents, WaitReason,
};

/// The `seq` of a row.
pub(super) fn sequence(row: &impl Named) -> Result<u64, StoreError> {
    let sequence = filled("seq", row.optional_sequence("seq"));
    sequence.map_err(|source| StoreError::Failed { action: "read a row's seq", source })
}

/// A row as it is, without the epoch of its partition.
pub(super) fn as_it_is(row: &impl Named) -> Result<Fence, StoreError> {
    let claim_seq = row.count("claim_seq").map_err(|source| StoreError::Failed { action: "read a row's claim_seq", source })?;
    Ok(Fence::new(sequence(row)?, 0, claim_seq))
}

/// The fence of a row: its `seq` and its claim, in the first two columns.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(super) fn fence(row: &impl Named) -> Result<Fence, sqlx::Error> {
    Ok(Fence { sequence: row.sequence(0)?, claim: row.number(1)? })
}

/// The `seq` of an event and that of another, in the first two columns; the second may be NULL.
pub(super) fn pair<R: Columns>(row: &R) -> Result<(u64, Option<u64>), sqlx::Error>
where
    usize: ColumnIndex<R>,
{
    Ok((filled(0, row.unsigned(0))?, row.unsigned(1)?))
}

/// The `seq` of each row, and the id of its event. Skips rows whose id is not valid.
pub(super) fn with_ids<R: Columns>(rows: &[R]) -> Result<Vec<(u64, EventId)>, sqlx::Error>
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        if let Ok(id) = filled("event_id", row.text("event_id"))?.parse() {
            found.push((filled("seq", row.unsigned("seq"))?, id));
        }
    }
    Ok(found)
}

/// A whole row, read by name: this is for people, who must be able to look at a row that no listener can be given.
///
/// # Errors
/// If the row has no `seq`.
pub(super) fn record<R: Columns>(row: &R) -> Result<Record, StoreError>
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    let seq = sequence(row)?;
    let mut readable = Readable { row, faults: Vec::new() };
    let record = read_record(row, seq, &mut readable);
    let unreadable = (!readable.faults.is_empty()).then(|| readable.faults.join("; "));
    Ok(Record { unreadable, ..record })
}

/// The columns of a row that may hold anything, and what is wrong with them.
struct Readable<'r, R> {
    row: &'r R,
    faults: Vec<String>,
}

impl<R: Columns> Readable<'_, R>
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    /// The value of a column; `None` if it cannot be read, which is noted.
    fn or_note<T>(&mut self, name: &str, value: Result<T, impl std::fmt::Display>) -> Option<T> {
        value.map_err(|error| self.faults.push(format!("{name}: {error}"))).ok()
    }

    fn text(&mut self, name: &str) -> String {
        let text = self.row.string(name);
        self.or_note(name, text).unwrap_or_default()
    }

    fn optional_text(&mut self, name: &str) -> Option<String> {
        let text = self.row.optional_string(name);
        self.or_note(name, text).flatten()
    }

    fn moment(&mut self, name: &str) -> Timestamp {
        let moment = self.row.moment(name);
        self.or_note(name, moment).unwrap_or(Timestamp::from_micros(0))
    }

    fn optional_moment(&mut self, name: &str) -> Option<Timestamp> {
        let moment = self.row.time(name);
        self.or_note(name, moment).flatten()
    }

    /// The id. In place of one that cannot be read, one that no event has.
    fn event_id(&mut self, seq: u64) -> EventId {
        let text = self.row.string("event_id");
        let id = self.or_note("event_id", text).and_then(|text| self.or_note("event_id", text.parse::<EventId>()));
        id.unwrap_or_else(|| format!("?{seq}").parse().expect("a question mark and digits are an id"))
    }

    fn status(&mut self) -> Status {
        let code = filled("status", self.row.integer("status"));
        let status = self.or_note("status", code).and_then(|code| {
            let status = i32::try_from(code).ok().and_then(Status::from_code);
            self.or_note("status", status.ok_or_else(|| format!("it is {code}; it must be 0 to 3")))
        });
        status.unwrap_or(Status::New)
    }
}

fn read_record<R: Columns>(row: &R, seq: u64, readable: &mut Readable<'_, R>) -> Record
where
    usize: ColumnIndex<R>,
    for<'c> &'c str: ColumnIndex<R>,
{
    // A plain INSERT may set a counter to anything.
    let counter = |name: &str| row.count(name).unwrap_or_default();
    // Why an event with other headers is dead stands in its last_error.
    let headers = readable.optional_text("headers").and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    Record {
        seq,
        event_id: readable.event_id(seq),
        event_type: readable.text("event_type"),
        aggregate_type: readable.text("aggregate_type"),
        aggregate_id: readable.optional_text("aggregate_id"),
        tenant_id: readable.optional_text("tenant_id"),
        headers,
        content_type: readable.text("content_type"),
        payload_bytes: row.count("payload_bytes").unwrap_or_default(),
        payload: row.bytes("payload").ok().flatten().map(Into::into),
        status: readable.status(),
        attempts: counter("attempts"),
        deferrals: counter("deferrals"),
        claims: counter("claims"),
        starts: counter("starts"),
        claim_seq: row.count("claim_seq").unwrap_or_default(),
        replays: counter("replays"),
        occurred_at: readable.moment("occurred_at"),
        created_at: readable.moment("created_at"),
        available_at: readable.moment("available_at"),
        due_at: readable.optional_moment("due_at"),
        expires_at: readable.optional_moment("expires_at"),
        done_at: readable.optional_moment("done_at"),
        parked: readable.optional_text("parked"),
        behind: row.unsigned("behind").ok().flatten(),
        blocks: row.integer("blocks").ok().flatten().is_some_and(|blocks| blocks != 0),
        locked_by: readable.optional_text("locked_by"),
        locked_at: readable.optional_moment("locked_at"),
        lease_end: readable.optional_moment("lease_end"),
        last_error: readable.optional_text("last_error"),
        wait_reason: readable.optional_text("wait_reason"),
        wait_since: readable.optional_moment("wait_since"),
        last_cost: from_column(readable.optional_text("last_cost").as_deref()),
        unreadable: None,
    }
}

/// A route by its names, which stand in the first two columns. `None` as for [`route`].
pub(super) fn route_name<R: Columns>(row: &R) -> Result<Option<Route>, sqlx::Error>
where
    usize: ColumnIndex<R>,
{
    let names = decoded(filled(0, row.text(0)))?.zip(decoded(filled(1, row.text(1)))?);
    Ok(names.and_then(|(aggregate_type, event_type)| Route::new(aggregate_type, event_type).ok()))
}

/// A text; `None` if it is not UTF-8. SQLite stores such a text, too.
fn decoded<T>(text: Result<T, sqlx::Error>) -> Result<Option<T>, sqlx::Error> {
    match text {
        Ok(text) => Ok(Some(text)),
        Err(sqlx::Error::ColumnDecode { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A route with its counts. `None` for a name that is not valid, by a plain INSERT: its events are dead, or will be, and listed
/// as such.
pub(super) fn route(row: &impl Named) -> Result<Option<RouteRecord>, sqlx::Error> {
    let names = decoded(row.string("aggregate_type"))?.zip(decoded(row.string("event_type"))?);
    let Some(route) = names.and_then(|(aggregate_type, event_type)| Route::new(aggregate_type, event_type).ok()) else {
        return Ok(None);
    };
    Ok(RouteRecord {
        route,
        first_seen_at: row.optional_moment("first_seen_at")?,
        only_relayed: row.optional_number("only_relayed")? == Some(1),
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
        report: row.optional_string("report")?,
        stuck: StuckEvents::read(row.optional_string("stuck")?.as_deref()),
        listeners: ListenerReport::read(row.optional_string("listeners")?.as_deref()),
        room: row.count("room")?,
        session: row.count::<u32>("session")? > 0,
    }
    .bounded())
}

/// Another host, as one looks at it that cannot deliver everything.
pub(super) fn peer(row: &impl Named) -> Result<Peer, sqlx::Error> {
    let listeners = ListenerReport::read(row.optional_string("listeners")?.as_deref());
    Ok(Peer::new(row.string("label")?, row.count("room")?, listeners))
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
    Ok(super::Blocker { sequence: filled(0, row.unsigned(0))?, aggregate_type: text(1)?, aggregate_id: text(2)? })
}

/// An aggregate whose events wait behind one of them.
pub(super) fn blocked_key(row: &impl Named) -> Result<BlockedKey, sqlx::Error> {
    let status = row.optional_number("status")?.and_then(|status| i32::try_from(status).ok());
    Ok(BlockedKey {
        aggregate_type: row.lossy_string("aggregate_type")?.unwrap_or_default(),
        // An event without one waits for no other, unless a writer wrote that into its row.
        aggregate_id: row.lossy_string("aggregate_id")?.unwrap_or_default(),
        // A writer may set it to anything.
        seq: row.optional_sequence("behind").ok().flatten().unwrap_or_default(),
        event_id: row.lossy_string("event_id")?.and_then(|id| id.parse().ok()),
        event_type: row.lossy_string("event_type")?,
        status: status.and_then(Status::from_code),
        due_at: row.optional_moment("due_at")?,
        last_error: row.lossy_string("last_error")?,
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

/// A row that is old enough to be purged: `seq`, event ID and time are its first columns.
pub(super) fn purge_row<R: Columns>(row: &R) -> Result<PurgeRow, sqlx::Error>
where
    usize: ColumnIndex<R>,
{
    let RowId { seq, event_id } = row_id(row)?;
    Ok(PurgeRow { seq, event_id, at: filled(2, row.time(2))? })
}

/// The `seq` of a row and the ID of its event, in the first two columns.
pub(super) fn row_id<R: Columns>(row: &R) -> Result<RowId, sqlx::Error>
where
    usize: ColumnIndex<R>,
{
    let seq = filled(0, row.unsigned(0))?;
    // SQLite may hold an ID that is no text.
    let event_id = row.text(1).ok().flatten().and_then(|id| id.parse().ok());
    Ok(RowId { seq, event_id })
}

/// How many rows a purge would delete, and how many it would leave.
pub(super) fn purgeable(row: &impl Named) -> Result<Purgeable, sqlx::Error> {
    Ok(Purgeable { count: row.number(0)?, blocking: row.number(1)? })
}

/// Events that wait for one reason.
pub(super) fn wait_reason(row: &impl Named) -> Result<WaitReason, sqlx::Error> {
    Ok(WaitReason {
        aggregate_type: row.lossy_string("aggregate_type")?.unwrap_or_default(),
        event_type: row.lossy_string("event_type")?.unwrap_or_default(),
        reason: row.lossy_string("wait_reason")?.unwrap_or_default(),
        events: row.count("events")?,
        since: row.moment("since")?,
    })
}

/// How many events are in each state, and how long the oldest have waited. `age` reads a column that holds an age.
pub(super) fn stats(
    row: &impl Named,
    age: impl Fn(&str) -> Result<Option<Duration>, sqlx::Error>,
) -> Result<Stats, sqlx::Error> {
    let seconds = |column: &str| -> Result<Option<f64>, sqlx::Error> {
        Ok(age(column)?.map(|age| (age.as_secs_f64() * 1_000.0).round() / 1_000.0))
    };
    let oldest_pending_seconds = OldestPending {
        waits_for_host: seconds("waits_for_host")?,
        given_back: seconds("given_back")?,
        no_listener: seconds("no_listener")?,
    };
    Ok(Stats {
        new: row.count("new")?,
        retry: row.count("retry")?,
        done: row.count("done")?,
        dead: row.count("dead")?,
        parked: row.count("parked")?,
        blocked: row.count("blocked")?,
        in_flight: row.count("in_flight")?,
        oldest_pending_seconds,
    })
}
