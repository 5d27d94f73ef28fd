//! Order by aggregate: which events wait behind which.

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;

use super::primary::on_primary;
use super::{MySqlStore, Run, lock};
use crate::keys::Waiting;
use crate::number::numbers;
use crate::row::Named;
use crate::{BlockedKey, Blocker, KeyStore, PARTITIONS, StoreError, Unblocked, WaitsFor, keys, row};

/// The first of each queue, which may be the event itself or a later one: this database would read on to the end if it were
/// asked for an earlier one. In order of binding: the rule, then a JSON list of seq.
pub(super) const HEADS: &str = concat!(
    "
SELECT outbox_event.seq,
       (SELECT earlier.seq FROM outbox_event AS earlier FORCE INDEX (outbox_key)
        WHERE earlier.key_hash = outbox_event.key_hash
          AND earlier.aggregate_type = outbox_event.aggregate_type AND earlier.aggregate_id = outbox_event.aggregate_id
          AND (? = 0 OR earlier.status = 0) AND earlier.available_at <= UTC_TIMESTAMP(6)
          AND (earlier.claim_seq > 0 OR earlier.due_at IS NULL OR earlier.due_at <= UTC_TIMESTAMP(6))
        ORDER BY earlier.seq LIMIT 1) AS first
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
WHERE outbox_event.status IN (0, 2) AND ",
    on_primary!()
);

/// One row for each: all that wait behind an event are of its aggregate. Bound: the last one of the page before, the partitions
/// as 256 letters, most rows.
const BLOCKERS: &str = concat!(
    "
SELECT behind, MIN(aggregate_type), MIN(COALESCE(aggregate_id, '')) FROM outbox_event FORCE INDEX (outbox_behind)
WHERE ",
    on_primary!(),
    " AND behind > ? AND SUBSTR(?, partition_id + 1, 1) = '1' GROUP BY behind ORDER BY behind LIMIT ?"
);

/// The first that waits behind each. Bound: a JSON list of seq.
const FIRSTS: &str = concat!(
    "
SELECT given.seq,
       (SELECT seq FROM outbox_event FORCE INDEX (outbox_behind) WHERE behind = given.seq ORDER BY seq LIMIT 1) AS first
FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS given
WHERE ",
    on_primary!()
);

/// The first that wait behind each, read without a lock. In order of binding: one less than the most rows behind each, a JSON
/// list of seq.
pub(super) const WAITING: &str = "
SELECT outbox_event.seq
FROM (SELECT given.seq, (SELECT seq FROM outbox_event FORCE INDEX (outbox_behind) WHERE behind = given.seq
                         ORDER BY seq LIMIT 1 OFFSET ?) AS last
      FROM JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS given) AS bounds
STRAIGHT_JOIN outbox_event FORCE INDEX (outbox_behind) ON behind = bounds.seq
WHERE bounds.last IS NULL OR outbox_event.seq <= bounds.last
ORDER BY outbox_event.seq";

/// Bound: a JSON list of seq.
const UNBLOCK: &str = "
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (seq BIGINT UNSIGNED PATH '$')) AS chosen
STRAIGHT_JOIN outbox_event FORCE INDEX (PRIMARY) ON outbox_event.seq = chosen.seq
SET due_at = UTC_TIMESTAMP(6), behind = NULL WHERE behind IS NOT NULL";

/// Bound: most keys.
const BLOCKED_KEYS: &str = concat!(
    "
SELECT waits.behind, waits.aggregate_type, waits.aggregate_id, waits.waiting, event_id, event_type, status,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', due_at) AS due_at, last_error
FROM (SELECT behind, aggregate_type, COALESCE(aggregate_id, '') AS aggregate_id, COUNT(*) AS waiting
      FROM outbox_event FORCE INDEX (outbox_behind) WHERE behind IS NOT NULL
      GROUP BY behind, aggregate_type, outbox_event.aggregate_id ORDER BY waiting DESC, behind LIMIT ?) AS waits
LEFT JOIN outbox_event ON outbox_event.seq = waits.behind
WHERE ",
    on_primary!(),
    "
ORDER BY waits.waiting DESC, waits.behind"
);

#[async_trait]
impl KeyStore for MySqlStore {
    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError> {
        let Some(rule) = rule(waits_for) else { return Ok(Vec::new()) };
        let statement = self.statement(HEADS).bind(rule).bind(numbers(events));
        let heads = self.read_all("look for the heads of queues", statement, earlier).await?;
        Ok(heads.into_iter().flatten().collect())
    }

    async fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError> {
        let statement = self.statement(BLOCKERS).bind(after).bind(letters(partitions)).bind(i64::from(limit));
        self.read_all("look for events that others wait behind", statement, row::blocker).await
    }

    async fn unblock(&self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Result<Unblocked, StoreError> {
        keys::unblock(self, blockers, waits_for, limit).await
    }

    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
        let statement = self.statement(BLOCKED_KEYS).bind(i64::from(limit));
        self.read_all("list blocked aggregates", statement, row::blocked_key).await
    }
}

/// Who is waited for, as the statements of a claim know it; `None` for nobody.
pub(super) fn rule(waits_for: WaitsFor) -> Option<i32> {
    match waits_for {
        WaitsFor::Unresolved => Some(0),
        WaitsFor::Untried => Some(1),
        WaitsFor::Nothing => None,
    }
}

/// One letter for each partition, 1 for those given: the server finds a row's by its place.
pub(super) fn letters(partitions: &[u16]) -> String {
    (0..PARTITIONS).map(|partition| if partitions.contains(&partition) { '1' } else { '0' }).collect()
}

/// An event with the one of its second column, if that is an earlier one.
pub(super) fn earlier(row: &MySqlRow) -> Result<Option<(u64, u64)>, sqlx::Error> {
    let (event, other) = row::pair(row)?;
    Ok(other.filter(|other| *other < event).map(|other| (event, other)))
}

impl Waiting for MySqlStore {
    async fn firsts(&self, blockers: &[u64]) -> Result<Vec<(u64, Option<u64>)>, StoreError> {
        let statement = self.statement(FIRSTS).bind(numbers(blockers));
        self.read_all("look for the first that waits behind others", statement, row::pair).await
    }

    async fn let_go(&self, blockers: &[u64], limit: u32) -> Result<(), StoreError> {
        let action = "let waiting events go on";
        let statement = self.statement(WAITING).bind(i64::from(limit) - 1).bind(numbers(blockers));
        let waiting = self.read_all(action, statement, |row| row.sequence(0)).await?;
        lock::change_free(self, action, UNBLOCK, &waiting).await?;
        Ok(())
    }
}
