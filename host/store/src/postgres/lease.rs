//! Leases: what is in our hands stays ours, or is given back; starts that are counted.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::{EventId, Fence, OwnerId};
use sqlx::Row;

use super::{PostgresStore, Run};
use crate::number::signed;
use crate::row::sequence;
use crate::settle::delay_micros;
use crate::{LeaseStore, Renewed, StoreError};

/// A row of a transaction that is open still cannot be seen, and one that somebody has locked is passed by: neither is waited for.
/// The claim began with the row, which no claim of a poller did, and the row is due since then. $1 ids, $2 the owner.
const GIVE_BACK: &str = "
WITH free AS MATERIALIZED (
  SELECT seq FROM outbox_event
  WHERE event_id = ANY ($1::text[]) AND claim_seq = 1 AND locked_by = $2::text AND locked_at = created_at
    AND status IN (0, 2)
  FOR NO KEY UPDATE SKIP LOCKED),
given_back AS (
  UPDATE outbox_event
  SET claim_seq = claim_seq + 1, claims = greatest(claims, 1) - 1, locked_by = NULL, locked_at = NULL, lease_end = NULL
  FROM free WHERE outbox_event.seq = ANY (ARRAY[free.seq]) RETURNING event_id)
SELECT event_id FROM given_back
UNION ALL
SELECT event_id FROM outbox_event
WHERE event_id = ANY ($1::text[]) AND (claim_seq <> 1 OR locked_by IS DISTINCT FROM $2::text
  OR locked_at IS DISTINCT FROM created_at OR status NOT IN (0, 2))";

/// $1 and $2 the fence.
const COUNT: &str = "
UPDATE outbox_event SET starts = least(starts::bigint + 1, 2147483647)
WHERE seq = $1::bigint AND claim_seq & 4294967295 = $2::bigint & 4294967295 AND locked_by IS NOT NULL AND status IN (0, 2)";

/// Names no fence: whoever holds the event now, this host has outlived it. $1 the `seq`.
const UNCOUNT: &str = "
UPDATE outbox_event SET starts = starts - 1 WHERE seq = $1::bigint AND starts > 0 AND status IN (0, 2)";

/// A row that somebody else has locked is passed by: waiting for it, the leases of all others would end. Its claim is looked at
/// without a lock. Arrays of one number as in the statements that store outcomes. $1 and $2 the fences, $3 the lease in microseconds.
pub(super) const RENEW: &str = "
WITH given AS MATERIALIZED (
  SELECT sequence, fence FROM unnest($1::bigint[], $2::bigint[]) AS given (sequence, fence)),
free AS MATERIALIZED (
  SELECT claimed.seq FROM given JOIN outbox_event AS claimed ON claimed.seq = ANY (ARRAY[given.sequence])
  WHERE claimed.claim_seq & 4294967295 = given.fence & 4294967295 AND claimed.locked_by IS NOT NULL AND claimed.status IN (0, 2)
  FOR NO KEY UPDATE OF claimed SKIP LOCKED),
renewed AS (
  UPDATE outbox_event AS claimed SET lease_end = now() + $3::bigint * interval '1 microsecond'
  FROM free WHERE claimed.seq = ANY (ARRAY[free.seq]) RETURNING claimed.seq)
SELECT seq, TRUE FROM renewed
UNION ALL
SELECT claimed.seq, FALSE FROM given JOIN outbox_event AS claimed ON claimed.seq = ANY (ARRAY[given.sequence])
WHERE claimed.claim_seq & 4294967295 = given.fence & 4294967295 AND claimed.locked_by IS NOT NULL AND claimed.status IN (0, 2)
  AND claimed.seq NOT IN (SELECT seq FROM free)";

#[async_trait]
impl LeaseStore for PostgresStore {
    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
        let store = &self.keeping();
        let action = "renew leases";
        let mut renewed = Renewed::default();
        if held.is_empty() {
            return Ok(renewed);
        }
        let (sequences, claims): (Vec<i64>, Vec<i64>) =
            held.iter().map(|held| (signed(held.sequence), signed(held.claim))).unzip();
        let statement = store.statement(RENEW).bind(sequences).bind(claims).bind(delay_micros(lease));
        for row in store.all(action, statement).await? {
            let holds: bool = row.try_get(1).map_err(|error| store.failed(action, error))?;
            if holds { &mut renewed.held } else { &mut renewed.locked }.push(sequence(&row)?);
        }
        Ok(renewed)
    }

    async fn give_back(&self, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
        let action = "give claims back";
        let texts: Vec<String> = ids.iter().map(EventId::to_string).collect();
        let rows = self.all(action, self.statement(GIVE_BACK).bind(texts).bind(owner.as_str())).await?;
        let ids = rows.iter().map(|row| row.try_get::<&str, _>(0).map(|id| id.parse().ok())).collect::<Result<Vec<_>, _>>();
        Ok(ids.map_err(|error| self.failed(action, error))?.into_iter().flatten().collect())
    }

    async fn count_start(&self, fence: Fence) -> Result<bool, StoreError> {
        let statement = self.statement(COUNT).bind(signed(fence.sequence)).bind(signed(fence.claim));
        Ok(self.execute("count a start", statement).await? == 1)
    }

    async fn uncount_start(&self, sequence: u64) -> Result<(), StoreError> {
        self.execute("take back a start", self.statement(UNCOUNT).bind(signed(sequence))).await?;
        Ok(())
    }
}
