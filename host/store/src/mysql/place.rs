//! Where read events stand in the queues of their aggregates.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::iter::repeat;

use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::keys::{earlier, rule};
use super::primary::on_primary;
use super::{MySqlStore, Run};
use crate::number::numbers;
use crate::row::sequence;
use crate::{StoreError, WaitsFor};

/// Everything in the queues of taken events before the last of these, up to [`MOST`] rows; of what is not waited for, without
/// its names. One range of the index for each queue: asked for each event by itself, in a subquery, this database reads a queue
/// from its far end (measured, 100 events in each of 1,000 queues: half of all time went there). In order of binding: the rule,
/// the last of the taken, then as many hashes as [`CHUNK`].
pub(super) const EARLIER: &str = concat!("
SELECT seq, CAST(NULL AS UNSIGNED),
       CASE WHEN (? = 0 OR status = 0) AND available_at <= UTC_TIMESTAMP(6)
                 AND (claim_seq > 0 OR due_at IS NULL OR due_at <= UTC_TIMESTAMP(6)) THEN aggregate_type END AS aggregate_type, aggregate_id
FROM outbox_event FORCE INDEX (outbox_key)
WHERE ", on_primary!(), " AND seq < ? AND key_hash IN (
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
LIMIT 1000");

/// As the `LIMIT` of [`EARLIER`]: with so many rows it has not told all, and queues are too long to be read whole.
const MOST: usize = 1_000;

/// The same for long queues, as rows of one of two kinds, seen at one moment: what was held before may just have failed.
///
/// With a second `seq`, the first of each one's queue that the owner does not have, which may be a later one: a queue is read
/// from its front, past what the owner has, and no further. Then, with the names of their aggregates, those that the owner has. In
/// order of binding: the rule, what it has as a JSON list of seq, a JSON list of seq, what it has, the last of these, the rule.
pub(super) const PLACES: &str = concat!(
    "
SELECT outbox_event.seq,
       (SELECT earlier.seq FROM outbox_event AS earlier FORCE INDEX (outbox_key)
        WHERE earlier.key_hash = outbox_event.key_hash
          AND earlier.aggregate_type = outbox_event.aggregate_type AND earlier.aggregate_id = outbox_event.aggregate_id
          AND (? = 0 OR earlier.status = 0) AND earlier.available_at <= UTC_TIMESTAMP(6)
          AND (earlier.claim_seq > 0 OR earlier.due_at IS NULL OR earlier.due_at <= UTC_TIMESTAMP(6))
          AND earlier.seq NOT IN (SELECT listed.seq FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS listed)
        ORDER BY earlier.seq LIMIT 1), NULL AS aggregate_type, NULL AS aggregate_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
WHERE ",
    on_primary!(),
    "
UNION ALL
SELECT ours.seq, CAST(NULL AS UNSIGNED), ours.aggregate_type, ours.aggregate_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS listed
STRAIGHT_JOIN outbox_event AS ours FORCE INDEX (PRIMARY) ON ours.seq = listed.seq
WHERE ours.seq < ? AND ours.key_hash IS NOT NULL AND (? = 0 OR ours.status = 0) AND ours.available_at <= UTC_TIMESTAMP(6)
  AND (ours.claim_seq > 0 OR ours.due_at IS NULL OR ours.due_at <= UTC_TIMESTAMP(6))"
);

/// The events that the owner has, the taken ones included.
pub(super) struct Ours<'o> {
    /// The `seq` of events that were queued before the read.
    pub(super) queued: &'o [u64],
    /// These and what was read, as a JSON list of seq.
    pub(super) all: String,
}

/// How many taken events are placed by one statement.
const CHUNK: usize = 100;

/// An earlier event of its aggregate for each of these taken ones that waits for any: the last that was not queued before,
/// and the last only when all were; in a long queue one that it does not have now, if there is one. Looked up after they were taken: what was committed before any of
/// them is seen then.
pub(super) async fn behind(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    ours: &Ours<'_>,
    taken: &[MySqlRow],
    waits_for: WaitsFor,
) -> Result<HashMap<u64, u64>, StoreError> {
    let Some(rule) = rule(waits_for) else { return Ok(HashMap::new()) };
    let failed = |error| store.failed("look for earlier events of taken ones", error);
    let mut behind = HashMap::new();
    let queued: HashSet<u64> = ours.queued.iter().copied().collect();
    for taken in taken.chunks(CHUNK) {
        let sequences = taken.iter().map(sequence).collect::<Result<Vec<_>, _>>()?;
        let last = sequences.iter().max().copied().unwrap_or(0);
        let queues =
            taken.iter().map(|row| row.try_get("key_hash")).collect::<Result<Vec<Option<u32>>, _>>().map_err(failed)?;
        let queues: BTreeSet<u32> = queues.into_iter().flatten().collect();
        let Some(filler) = queues.first() else { continue };
        let queues = || queues.iter().chain(repeat(filler)).take(CHUNK);

        let query = store.statement(EARLIER).bind(rule).bind(last);
        let mut found =
            queues().fold(query, |query, queue| query.bind(queue)).fetch_all(&mut *connection).await.map_err(failed)?;
        if found.len() >= MOST {
            let sequences = numbers(&sequences);
            let query = store.statement(PLACES).bind(rule).bind(&ours.all).bind(sequences);
            let query = query.bind(&ours.all).bind(last).bind(rule);
            found = query.fetch_all(&mut *connection).await.map_err(failed)?;
        }
        place(taken, &found, &queued, &mut behind)?;
    }
    Ok(behind)
}

/// Joins taken events with what was found for them.
fn place(
    taken: &[MySqlRow],
    found: &[MySqlRow],
    queued: &HashSet<u64>,
    behind: &mut HashMap<u64, u64>,
) -> Result<(), StoreError> {
    let failed = |source| StoreError::Failed { action: "read earlier events of taken ones", source };
    let mut held = Vec::with_capacity(found.len());
    for row in found {
        match key(row).map_err(failed)? {
            Some(key) => held.push((key, sequence(row)?)),
            None => behind.extend(earlier(row).map_err(failed)?),
        }
    }
    held.sort_unstable();
    for row in taken {
        let (Some(key), sequence) = (key(row).map_err(failed)?, sequence(row)?) else { continue };
        let before = held.partition_point(|held| *held < (key, sequence));
        let mut queue = held[..before].iter().rev().take_while(|(other, _)| *other == key).map(|(_, earlier)| *earlier);
        let last = queue.next();
        let not_queued = last.into_iter().chain(queue).find(|earlier| !queued.contains(earlier));
        if let Some(nearest) = not_queued.or(last) {
            behind.entry(sequence).or_insert(nearest);
        }
    }
    Ok(())
}

/// `None` for an event without an aggregate id, or with names that cannot be read: nobody waits for it.
fn key(row: &MySqlRow) -> Result<Option<(&str, &str)>, sqlx::Error> {
    let id: Option<&str> = row.try_get("aggregate_id")?;
    Ok(id.zip(row.try_get("aggregate_type")?))
}
