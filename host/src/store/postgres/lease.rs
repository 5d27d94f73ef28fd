//! Leases: what is in our hands stays ours.

use std::time::Duration;

use sqlx::Row;

use super::PostgresStore;
use super::row::sequence;
use crate::event::Fence;
use crate::store::number::signed;
use crate::store::settlement::delay_micros;
use crate::store::{Renewed, StoreError};

/// A row that somebody else has locked is passed by: waiting for it, the leases of all others would end. Its claim is looked at
/// without a lock. $1 and $2 the fences, $3 the lease in microseconds.
pub(super) const RENEW: &str = "
WITH given AS MATERIALIZED (
  SELECT sequence, fence FROM unnest($1::bigint[], $2::bigint[]) AS given (sequence, fence)),
free AS MATERIALIZED (
  SELECT claimed.seq FROM given JOIN outbox_event AS claimed ON claimed.seq = given.sequence
  WHERE claimed.claim_seq = given.fence AND claimed.locked_by IS NOT NULL AND claimed.status IN (0, 2)
  FOR NO KEY UPDATE OF claimed SKIP LOCKED),
renewed AS (
  UPDATE outbox_event AS claimed SET lease_end = now() + $3::bigint * interval '1 microsecond'
  FROM free WHERE claimed.seq = free.seq RETURNING claimed.seq)
SELECT seq, TRUE FROM renewed
UNION ALL
SELECT claimed.seq, FALSE FROM given JOIN outbox_event AS claimed ON claimed.seq = given.sequence
WHERE claimed.claim_seq = given.fence AND claimed.locked_by IS NOT NULL AND claimed.status IN (0, 2)
  AND NOT EXISTS (SELECT 1 FROM free WHERE free.seq = claimed.seq)";

pub(super) async fn renew(store: &PostgresStore, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
    let action = "renew leases";
    let mut renewed = Renewed::default();
    if held.is_empty() {
        return Ok(renewed);
    }
    let (sequences, claims): (Vec<i64>, Vec<i64>) = held.iter().map(|held| (signed(held.sequence), signed(held.claim))).unzip();
    let statement = store.statement(RENEW).bind(sequences).bind(claims).bind(delay_micros(lease));
    for row in store.all(action, statement).await? {
        let holds: bool = row.try_get(1).map_err(|error| store.failed(action, error))?;
        if holds { &mut renewed.held } else { &mut renewed.locked }.push(sequence(&row)?);
    }
    Ok(renewed)
}
