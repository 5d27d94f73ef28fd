//! Order by aggregate: which events wait behind which.

use async_trait::async_trait;

use super::partition::column;
use super::primary::on_primary;
use super::{PostgresStore, Run};
use crate::keys::Waiting;
use crate::number::signed;
use crate::{BlockedKey, Blocker, KeyStore, StoreError, Unblocked, WaitsFor, keys, row};

/// $1 events, $2 the states of events that are waited for.
pub(super) const HEADS: &str = concat!(
    "
SELECT outbox_event.seq,
       (SELECT earlier.seq FROM outbox_event AS earlier
        WHERE earlier.aggregate_type = outbox_event.aggregate_type AND earlier.aggregate_id = outbox_event.aggregate_id
          AND outbox_event.aggregate_id <> ''
          AND (earlier.status IN (0, 2) OR earlier.blocks = 1) AND earlier.status = ANY ($2::smallint[])
          AND earlier.available_at <= now() AND earlier.seq < outbox_event.seq
        ORDER BY earlier.aggregate_type, earlier.aggregate_id, earlier.seq LIMIT 1)
FROM outbox_event WHERE seq = ANY ($1::bigint[]) AND status IN (0, 2)
  AND ",
    on_primary!()
);

/// One row for each: all that wait behind an event are of its aggregate. Steps from one to the next in the index, since a million
/// rows may wait behind one; so the partition of the first that waits counts for all. $1 partitions, $2 the last one of the page before, $3 most rows.
pub(super) const BLOCKERS: &str = concat!(
    "
WITH RECURSIVE blocker AS (
  (SELECT behind, aggregate_type, aggregate_id, partition_id FROM outbox_event
   WHERE behind > $2::bigint ORDER BY behind, seq LIMIT 1)
  UNION ALL
  SELECT next.behind, next.aggregate_type, next.aggregate_id, next.partition_id
  FROM blocker CROSS JOIN LATERAL (
    SELECT waiting.behind, waiting.aggregate_type, waiting.aggregate_id, waiting.partition_id FROM outbox_event AS waiting
    WHERE waiting.behind > blocker.behind ORDER BY waiting.behind, waiting.seq LIMIT 1) AS next)
SELECT behind, aggregate_type, aggregate_id
FROM (SELECT behind, aggregate_type, coalesce(aggregate_id, '') AS aggregate_id FROM blocker
      WHERE partition_id = ANY ($1::smallint[]) LIMIT $3::bigint) AS page
WHERE ",
    on_primary!(),
    "
ORDER BY behind"
);

/// The first that waits behind each. With bounds, since the planner would take an equal number for granted where most rows wait behind
/// one event, and walk by seq through all of them. $1 events.
pub(super) const FIRSTS: &str = concat!(
    "
SELECT given.sequence, (SELECT seq FROM outbox_event WHERE behind >= given.sequence AND behind <= given.sequence
                        ORDER BY behind, seq LIMIT 1)
FROM unnest($1::bigint[]) AS given (sequence)
WHERE ",
    on_primary!()
);

/// With bounds, as above. $1 events, $2 most rows behind each.
pub(super) const UNBLOCK: &str = "
UPDATE ONLY outbox_event SET due_at = now(), behind = NULL
WHERE ctid = ANY (ARRAY (
  SELECT waiting.place FROM unnest($1::bigint[]) AS given (sequence),
    LATERAL (SELECT ctid AS place FROM ONLY outbox_event
             WHERE behind >= given.sequence AND behind <= given.sequence
             ORDER BY behind, seq LIMIT $2::bigint FOR UPDATE SKIP LOCKED) AS waiting))";

/// $1 most keys.
const BLOCKED_KEYS: &str = concat!(
    "
SELECT waits.behind, waits.aggregate_type, waits.aggregate_id, waits.waiting, event_id, event_type, status, due_at, last_error
FROM (SELECT behind, aggregate_type, coalesce(aggregate_id, '') AS aggregate_id, count(*) AS waiting FROM outbox_event
      WHERE behind IS NOT NULL GROUP BY behind, aggregate_type, aggregate_id
      ORDER BY waiting DESC, behind LIMIT $1::bigint) AS waits
LEFT JOIN outbox_event ON outbox_event.seq = waits.behind
WHERE ",
    on_primary!(),
    "
ORDER BY waits.waiting DESC, waits.behind"
);

#[async_trait]
impl KeyStore for PostgresStore {
    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError> {
        let events: Vec<i64> = events.iter().copied().map(signed).collect();
        let statement = self.statement(HEADS).bind(events).bind(waited_for(waits_for));
        let heads = self.read_all("look for the heads of queues", statement, row::pair).await?;
        Ok(heads.into_iter().filter_map(|(event, head)| Some((event, head?))).collect())
    }

    async fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError> {
        let statement = self.statement(BLOCKERS).bind(column(partitions)).bind(signed(after)).bind(i64::from(limit));
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

/// The states of events that are waited for, among those that are unresolved.
pub(super) fn waited_for(waits_for: WaitsFor) -> Vec<i16> {
    match waits_for {
        WaitsFor::Unresolved => vec![0, 2, 3],
        WaitsFor::Untried => vec![0],
        WaitsFor::Nothing => Vec::new(),
    }
}

impl Waiting for PostgresStore {
    async fn firsts(&self, blockers: &[u64]) -> Result<Vec<(u64, Option<u64>)>, StoreError> {
        let blockers: Vec<i64> = blockers.iter().copied().map(signed).collect();
        let statement = self.statement(FIRSTS).bind(blockers);
        self.read_all("look for the first that waits behind others", statement, row::pair).await
    }

    async fn let_go(&self, blockers: &[u64], limit: u32) -> Result<(), StoreError> {
        let blockers: Vec<i64> = blockers.iter().copied().map(signed).collect();
        let statement = self.statement(UNBLOCK).bind(blockers).bind(i64::from(limit));
        self.execute("let waiting events go on", statement).await?;
        Ok(())
    }
}
