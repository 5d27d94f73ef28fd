//! Order by aggregate: which events wait behind which.

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Run, SqliteStore};
use crate::keys::Waiting;
use crate::number::{numbers, signed};
use crate::row::Named;
use crate::{BlockedKey, Blocker, KeyStore, StoreError, Unblocked, WaitsFor, keys, row};

/// ?1 events as a JSON list, ?2 who is waited for, ?3 now.
pub(super) const HEADS: &str = "
SELECT seq, head FROM (
  SELECT outbox_event.seq AS seq,
         (SELECT earlier.seq FROM outbox_event AS earlier
          WHERE earlier.aggregate_type = outbox_event.aggregate_type AND earlier.aggregate_id = outbox_event.aggregate_id
            AND earlier.aggregate_id IS NOT NULL AND outbox_event.aggregate_id <> '' AND (earlier.status IN (0, 2) OR earlier.blocks = 1)
            AND (?2 = 0 OR earlier.status = 0) AND earlier.available_at <= ?3
            AND (earlier.claim_seq > 0 OR earlier.due_at IS NULL OR earlier.due_at <= ?3) AND earlier.seq < outbox_event.seq
          ORDER BY earlier.seq LIMIT 1) AS head
  FROM outbox_event WHERE seq IN (SELECT value FROM json_each(?1)) AND status IN (0, 2))
WHERE head IS NOT NULL AND ?2 < 2";

/// One row for each: all that wait behind an event are of its aggregate. ?1 partitions as a JSON list, ?2 the last one of the
/// page before, ?3 most rows.
const BLOCKERS: &str = "
SELECT behind, aggregate_type, coalesce(aggregate_id, '') FROM outbox_event INDEXED BY outbox_event_behind
WHERE behind IS NOT NULL AND behind > ?2 AND partition_id IN (SELECT value FROM json_each(?1)) GROUP BY behind ORDER BY behind LIMIT ?3";

/// The first that waits behind each. ?1 events as a JSON list.
const FIRSTS: &str = "
SELECT given.value, (SELECT min(seq) FROM outbox_event WHERE behind IS NOT NULL AND behind = given.value) AS first
FROM json_each(?1) AS given";

/// ?1 events as a JSON list, ?2 now, ?3 most rows behind each.
pub(super) const UNBLOCK: &str = "
UPDATE outbox_event SET due_at = ?2, behind = NULL
WHERE seq IN (
  SELECT waiting.seq FROM json_each(?1) AS given JOIN outbox_event AS waiting ON waiting.seq IN (
    SELECT seq FROM outbox_event WHERE behind IS NOT NULL AND behind = given.value ORDER BY seq LIMIT ?3))";

/// ?1 most keys.
const BLOCKED_KEYS: &str = "
SELECT waits.behind, waits.aggregate_type, waits.aggregate_id, waits.waiting, event_id, event_type, status, due_at, last_error
FROM (SELECT behind, aggregate_type, aggregate_id, count(*) AS waiting FROM outbox_event
      WHERE behind IS NOT NULL GROUP BY behind, aggregate_type, aggregate_id ORDER BY waiting DESC, behind LIMIT ?1) AS waits
LEFT JOIN outbox_event ON outbox_event.seq = waits.behind
ORDER BY waits.waiting DESC, waits.behind";

#[async_trait]
impl KeyStore for SqliteStore {
    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError> {
        let statement = self.statement(HEADS).bind(numbers(events)).bind(rule(waits_for)).bind(self.now_micros());
        self.read_all("look for the heads of queues", statement, |row| Ok((row.sequence(0)?, row.sequence(1)?))).await
    }

    async fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError> {
        let statement = self.statement(BLOCKERS).bind(numbers(partitions)).bind(signed(after)).bind(i64::from(limit));
        // This database keeps any bytes as text: a name that cannot be read must not hide the other blockers.
        let text = |row: &SqliteRow, index: usize| row.try_get::<String, _>(index).unwrap_or_default();
        let blocker = |row: &SqliteRow| {
            Ok(Blocker { sequence: row.sequence(0)?, aggregate_type: text(row, 1), aggregate_id: text(row, 2) })
        };
        self.read_all("look for events that others wait behind", statement, blocker).await
    }

    async fn unblock(&self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Result<Unblocked, StoreError> {
        keys::unblock(self, blockers, waits_for, limit).await
    }

    async fn blocked_keys(&self, limit: u32) -> Result<Vec<BlockedKey>, StoreError> {
        let statement = self.statement(BLOCKED_KEYS).bind(i64::from(limit));
        self.read_all("list blocked aggregates", statement, row::blocked_key).await
    }
}

/// Who is waited for, as the statements know it.
pub(super) fn rule(waits_for: WaitsFor) -> i64 {
    match waits_for {
        WaitsFor::Unresolved => 0,
        WaitsFor::Untried => 1,
        WaitsFor::Nothing => 2,
    }
}

impl Waiting for SqliteStore {
    async fn firsts(&self, blockers: &[u64]) -> Result<Vec<(u64, Option<u64>)>, StoreError> {
        let statement = self.statement(FIRSTS).bind(numbers(blockers));
        self.read_all("look for the first that waits behind others", statement, row::pair).await
    }

    async fn let_go(&self, blockers: &[u64], limit: u32) -> Result<(), StoreError> {
        let statement = self.statement(UNBLOCK).bind(numbers(blockers)).bind(self.now_micros()).bind(i64::from(limit));
        self.execute("let waiting events go on", statement).await?;
        Ok(())
    }
}
