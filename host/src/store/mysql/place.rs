//! Where claimed events stand in the lines of their aggregates.

use std::collections::{BTreeSet, HashMap};

use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::MySqlStore;
use super::line::{numbers, pairs, rule};
use super::row::sequence;
use crate::event::OwnerId;
use crate::store::{StoreError, WaitsFor};

/// The first event of each line that its owner does not hold, if it stands before the one that is asked for: that one waits
/// for it. A line is read from its front, past what is held, and no further. In order of binding: the rule, the owner, a JSON
/// list of seq.
pub(super) const NOT_HELD: &str = "
SELECT outbox_event.seq,
       (SELECT earlier.seq FROM outbox_event AS earlier FORCE INDEX (outbox_line)
        WHERE earlier.line = outbox_event.line
          AND earlier.aggregate_type = outbox_event.aggregate_type AND earlier.aggregate_id = outbox_event.aggregate_id
          AND (? = 0 OR earlier.status = 0) AND earlier.available_at <= UTC_TIMESTAMP(6)
          AND (earlier.locked_by IS NULL OR earlier.locked_by <> ? OR earlier.lease_end <= UTC_TIMESTAMP(6))
        ORDER BY earlier.seq LIMIT 1) AS first
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event ON outbox_event.seq = chosen.seq";

/// What the owner holds in the lines of some aggregates, before an event. One range of the index for each line: asked for each
/// event by itself, in a subquery, this database reads a line from its far end (measured, 100 events in each of 1,000 lines:
/// half of all time went there). In order of binding: the event, the rule, the owner, then as many hashes as [`LINES`].
pub(super) const LINE: &str = "
SELECT seq, aggregate_type, aggregate_id FROM outbox_event FORCE INDEX (outbox_line)
WHERE seq < ? AND (? = 0 OR status = 0) AND available_at <= UTC_TIMESTAMP(6) AND locked_by = ?
  AND line IN (
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const LINES: usize = 100;

const ACTION: &str = "look for earlier events of claimed ones";

/// An earlier event of its aggregate for each of these claimed ones that waits for any: one that the owner does not hold, else
/// the last of those that it does. Looked up after the claim, which holds all of them: what was committed before any of them
/// is seen then.
pub(super) async fn behind(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
    claimed: &[MySqlRow],
    waits_for: WaitsFor,
) -> Result<HashMap<u64, u64>, StoreError> {
    let Some(rule) = rule(waits_for) else { return Ok(HashMap::new()) };
    let failed = |error| store.failed(ACTION, error);
    let mut sequences = claimed.iter().map(sequence).collect::<Result<Vec<_>, _>>()?;
    let mut behind = not_held(store, connection, owner, &sequences, rule).await?;
    sequences.retain(|sequence| !behind.contains_key(sequence));
    let mut rest = Vec::with_capacity(sequences.len());
    for row in claimed {
        if !behind.contains_key(&sequence(row)?) {
            rest.push(row);
        }
    }
    let lines = lines(store, connection, owner, &rest, rule).await?;
    // Once more: what was held before may have failed meanwhile, and stand in neither of the two answers.
    behind.extend(not_held(store, connection, owner, &sequences, rule).await?);
    for row in rest {
        if behind.contains_key(&sequence(row)?) {
            continue;
        }
        let Some(line) = key(row).map_err(failed)?.and_then(|(kind, id)| lines.get(&(kind.to_owned(), id.to_owned()))) else {
            continue;
        };
        let sequence = sequence(row)?;
        behind.extend(line.range(..sequence).next_back().map(|nearest| (sequence, *nearest)));
    }
    Ok(behind)
}

/// The first that the owner does not hold before each of these events.
async fn not_held(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
    sequences: &[u64],
    rule: i32,
) -> Result<HashMap<u64, u64>, StoreError> {
    if sequences.is_empty() {
        return Ok(HashMap::new());
    }
    let query = sqlx::query(store.table.sql(NOT_HELD)).bind(rule).bind(owner.as_str()).bind(numbers(sequences));
    let rows = query.fetch_all(connection).await.map_err(|error| store.failed(ACTION, error))?;
    Ok(pairs(store, ACTION, &rows)?.into_iter().collect())
}

/// What the owner holds in the lines of these claimed events.
async fn lines(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    owner: &OwnerId,
    claimed: &[&MySqlRow],
    rule: i32,
) -> Result<HashMap<(String, String), BTreeSet<u64>>, StoreError> {
    let failed = |error| store.failed(ACTION, error);
    let mut hashes = BTreeSet::new();
    let mut last = 0;
    for row in claimed {
        last = last.max(sequence(row)?);
        hashes.extend(row.try_get::<Option<u32>, _>("line").map_err(failed)?);
    }
    let hashes: Vec<u32> = hashes.into_iter().collect();
    let mut lines: HashMap<(String, String), BTreeSet<u64>> = HashMap::new();
    for hashes in hashes.chunks(LINES) {
        let mut query = sqlx::query(store.table.sql(LINE)).bind(last).bind(rule).bind(owner.as_str());
        // The rest of the places is filled up with the last hash.
        for index in 0..LINES {
            query = query.bind(hashes[index.min(hashes.len() - 1)]);
        }
        for row in query.fetch_all(&mut *connection).await.map_err(failed)? {
            if let Some((kind, id)) = key(&row).map_err(failed)? {
                lines.entry((kind.to_owned(), id.to_owned())).or_default().insert(sequence(&row)?);
            }
        }
    }
    Ok(lines)
}

/// `None` for an event without an aggregate id, or with names that cannot be read: nobody waits for it.
fn key(row: &MySqlRow) -> Result<Option<(&str, &str)>, sqlx::Error> {
    let id: Option<&str> = row.try_get("aggregate_id")?;
    Ok(id.zip(row.try_get("aggregate_type")?))
}
