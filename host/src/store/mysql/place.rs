//! Where claimed events stand in the lines of their aggregates.

use std::collections::{BTreeSet, HashMap};

use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::MySqlStore;
use super::line::rule;
use super::row::sequence;
use crate::store::{StoreError, WaitsFor};

/// What is unresolved in the lines of some aggregates, before an event. Looked up after the claimed rows are locked: what was
/// committed before any of them is seen then.
///
/// One range of the index for each line. Asked for each event by itself, in a subquery, this database reads the whole line from
/// its far end, for every event of it (measured, 100 events in each of 1,000 lines: half of all time went there).
/// In order of binding: the event, the rule, then as many hashes as [`LINES`].
pub(super) const LINE: &str = "
SELECT seq, aggregate_type, aggregate_id FROM outbox_event FORCE INDEX (outbox_line)
WHERE seq < ? AND (? = 0 OR status = 0) AND available_at <= UTC_TIMESTAMP(6) AND line IN (
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const LINES: usize = 100;

const ACTION: &str = "look for earlier events of claimed ones";

/// An aggregate.
type Key<'r> = (&'r str, &'r str);

/// The last of the earlier events of its aggregate that each of these claimed ones waits for.
pub(super) async fn behind(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    claimed: &[MySqlRow],
    waits_for: WaitsFor,
) -> Result<HashMap<u64, u64>, StoreError> {
    let Some(rule) = rule(waits_for) else { return Ok(HashMap::new()) };
    let failed = |error| store.failed(ACTION, error);
    let mut hashes = BTreeSet::new();
    let mut last = 0;
    for row in claimed {
        last = last.max(sequence(row)?);
        hashes.extend(row.try_get::<Option<u32>, _>("line").map_err(failed)?);
    }
    let hashes: Vec<u32> = hashes.into_iter().collect();
    let mut unresolved = Vec::new();
    for hashes in hashes.chunks(LINES) {
        let mut query = sqlx::query(store.table.sql(LINE)).bind(last).bind(rule);
        // The rest of the places is filled up with the last hash.
        for index in 0..LINES {
            query = query.bind(hashes[index.min(hashes.len() - 1)]);
        }
        unresolved.extend(query.fetch_all(&mut *connection).await.map_err(failed)?);
    }
    let mut lines: HashMap<Key<'_>, BTreeSet<u64>> = HashMap::new();
    for row in &unresolved {
        lines.entry(key(row).map_err(failed)?.unwrap_or_default()).or_default().insert(sequence(row)?);
    }
    let mut behind = HashMap::new();
    for row in claimed {
        let Some(line) = key(row).map_err(failed)?.and_then(|key| lines.get(&key)) else { continue };
        let sequence = sequence(row)?;
        behind.extend(line.range(..sequence).next_back().map(|nearest| (sequence, *nearest)));
    }
    Ok(behind)
}

/// `None` for an event without an aggregate id, or with names that cannot be read: nobody waits for it.
fn key(row: &MySqlRow) -> Result<Option<Key<'_>>, sqlx::Error> {
    let id: Option<&str> = row.try_get("aggregate_id")?;
    Ok(id.zip(row.try_get("aggregate_type")?))
}
