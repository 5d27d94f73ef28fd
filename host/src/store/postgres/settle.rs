//! Outcomes into rows: one statement for each kind of outcome, all of them in one transaction.
//!
//! Every statement names the fence, the lock that the claim took and the states that an outcome may leave: a late outcome
//! changes nothing, and neither does the same one a second time.

use async_trait::async_trait;
use sqlx::postgres::PgConnection;

use super::run::Statement;
use super::{PostgresStore, Run, TransactionalStore};
use crate::store::number::signed;
use crate::store::row::sequence;
use crate::store::settle::{Statements, Written, grouped};
use crate::store::{AttemptCost, SettleStore, Settled, StoreError};

/// $1 and $2 the fences.
pub(super) const DONE: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 1, done_at = now(), due_at = NULL, claims = 0, starts = 0, parked = NULL, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[]) AS settled (sequence, fence)
WHERE seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))";

/// [`DONE`] for outcomes whose cost is kept, apart from it because it writes one column more. $1 and $2 the fences, $3 costs.
const DONE_WITH_COST: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 1, done_at = now(), due_at = NULL, claims = 0, starts = 0, parked = NULL, locked_by = NULL, locked_at = NULL, lease_end = NULL,
    last_cost = cost
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS settled (sequence, fence, cost)
WHERE seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))";

/// $1 and $2 the fences.
const ERASED: &str = "
DELETE FROM outbox_event
USING unnest($1::bigint[], $2::bigint[]) AS settled (sequence, fence)
WHERE seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))";

/// $1 and $2 the fences, $3 delays in microseconds, $4 costs.
const DEFERRED: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 0, due_at = now() + delay * interval '1 microsecond', deferrals = deferrals + 1,
    last_cost = coalesce(cost, last_cost), claims = 0, starts = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) AS settled (sequence, fence, delay, cost)
WHERE seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))";

/// $1 and $2 the fences, $3 delays in microseconds, $4 errors, $5 costs.
const RETRY: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 2, due_at = now() + delay * interval '1 microsecond', attempts = attempts + 1, last_error = error, last_cost = cost,
    claims = 0, starts = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[]) AS settled (sequence, fence, delay, error, cost)
WHERE seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))";

/// $1 and $2 the fences, $3 how much each counts and whether it blocks (1 counted, 2 blocks, 3 both), $4 errors, $5 costs.
/// Without an aggregate there is nobody to block.
const DEAD: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 3, done_at = now(), due_at = NULL, attempts = attempts + (flags & 1)::integer, last_error = error, last_cost = cost,
    claims = 0, starts = 0, blocks = CASE WHEN aggregate_id IS NULL THEN 0 ELSE (flags >> 1) & 1 END, parked = NULL,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[]) AS settled (sequence, fence, flags, error, cost)
WHERE seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))";

/// $1 and $2 the fences, $3 reasons.
const PARKED: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    due_at = NULL, parked = reason, claims = 0, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS settled (sequence, fence, reason)
WHERE seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))";

/// $1 and $2 the fences, $3 whom each waits behind. The claim is given back: the event never started.
const BEHIND: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    due_at = NULL, behind = blocker, claims = greatest(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS settled (sequence, fence, blocker)
WHERE seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))";

/// $1 and $2 the fences, $3 delays in microseconds. The claim is given back: the event never started. Without a delay it keeps
/// its place among those that are due.
const RELEASED: &str = "
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    due_at = CASE WHEN delay > 0 THEN now() + delay * interval '1 microsecond' ELSE due_at END,
    claims = greatest(claims - 1, 0), locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS settled (sequence, fence, delay)
WHERE seq = settled.sequence AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))";

/// Locks all rows of a batch in the order of their `seq`, as the renewal does: several statements in one transaction would
/// lock them by kind of outcome, and the two could wait for each other. $1 their `seq`.
const LOCK: &str = "
SELECT 1 FROM outbox_event WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR UPDATE";

/// Of some events, those that somebody else has locked, against an outcome. $1 their `seq`.
const LOCKED: &str = "
WITH free AS MATERIALIZED (SELECT seq FROM outbox_event WHERE seq = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED)
SELECT seq FROM outbox_event WHERE seq = ANY ($1::bigint[]) AND seq NOT IN (SELECT seq FROM free)";

const ACTION: &str = "store outcomes";

const STATEMENTS: Statements = Statements {
    done: DONE,
    done_with_cost: DONE_WITH_COST,
    erased: ERASED,
    deferred: DEFERRED,
    retry: RETRY,
    dead: DEAD,
    parked: PARKED,
    behind: BEHIND,
    released: RELEASED,
};

#[async_trait]
impl SettleStore for PostgresStore {
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError> {
        let statements = grouped(settled, &STATEMENTS);
        let mut changed = 0;
        if statements.len() <= 1 {
            // A single statement is its own transaction.
            for (sql, written) in statements {
                changed += self.execute(ACTION, Lists::of(written).bind(self.statement(sql))).await?;
            }
        } else {
            let sequences: Vec<i64> = settled.iter().map(|settled| signed(settled.fence.sequence)).collect();
            let mut transaction = self.transaction().await?;
            self.statement(LOCK)
                .bind(sequences)
                .execute(&mut *transaction)
                .await
                .map_err(|error| self.failed(ACTION, error))?;
            changed = run(self, &mut transaction, statements).await?;
            Self::commit(transaction).await?;
        }
        Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX).saturating_sub(changed))
    }

    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
        let sequences: Vec<i64> = sequences.iter().copied().map(signed).collect();
        self.all("look for locked events", self.statement(LOCKED).bind(sequences)).await?.iter().map(sequence).collect()
    }
}

/// What one statement writes: a list for each of its columns.
#[derive(Default)]
struct Lists {
    sequences: Vec<i64>,
    fences: Vec<i64>,
    numbers: Vec<i64>,
    texts: Vec<String>,
    costs: Vec<Option<String>>,
}

impl Lists {
    fn of(written: Vec<Written<'_>>) -> Self {
        let mut columns = Self::default();
        for Written { fence, number, text, blocks, cost } in written {
            columns.sequences.push(signed(fence.sequence));
            columns.fences.push(signed(fence.claim));
            // The flags of a dead event are one number.
            columns.numbers.extend(number.map(|number| number | i64::from(blocks == Some(true)) << 1));
            columns.texts.extend(text);
            columns.costs.extend(cost.map(|cost| cost.map(AttemptCost::to_column)));
        }
        columns
    }

    fn bind<'q>(self, statement: Statement<'q>) -> Statement<'q> {
        let mut statement = statement.bind(self.sequences).bind(self.fences);
        if !self.numbers.is_empty() {
            statement = statement.bind(self.numbers);
        }
        if !self.texts.is_empty() {
            statement = statement.bind(self.texts);
        }
        if !self.costs.is_empty() {
            statement = statement.bind(self.costs);
        }
        statement
    }
}

/// Writes outcomes in the transaction that is open on the connection, whose rows it has locked. Returns how many.
pub(super) async fn settle_locked(
    store: &PostgresStore,
    connection: &mut PgConnection,
    settled: &[&Settled],
) -> Result<u64, StoreError> {
    run(store, connection, grouped(settled.iter().copied(), &STATEMENTS)).await
}

async fn run(
    store: &PostgresStore,
    connection: &mut PgConnection,
    statements: Vec<(&'static str, Vec<Written<'_>>)>,
) -> Result<u64, StoreError> {
    let mut changed = 0;
    for (sql, written) in statements {
        let statement = Lists::of(written).bind(store.statement(sql));
        let result = statement.execute(&mut *connection).await.map_err(|error| store.failed(ACTION, error))?;
        changed += result.rows_affected();
    }
    Ok(changed)
}
