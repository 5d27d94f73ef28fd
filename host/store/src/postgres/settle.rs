//! Outcomes into rows: one statement for a batch, whatever its kinds; rows that are deleted besides need a second one.
//!
//! Every statement compares the fence and the states that an outcome may leave. The row must also be locked by its claim, or its partition
//! must still have the epoch of the fence. So a late outcome changes nothing, and neither does a repeated one.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::Settled;
use sqlx::postgres::PgConnection;

use super::id::Id;
use super::primary::on_primary;
use super::run::Statement;
use super::{PostgresStore, Run};
use crate::number::signed;
use crate::row::sequence;
use crate::run::{answered, commit_or_roll_back};
use crate::settle::{Statements, Written, grouped};
use crate::{SettleStore, StoreError};

/// The rows that belong to the outcomes `settled` and are still ours. An id that is NULL is not known.
///
/// An array of one number instead of an equation: by an equation the planner may also merge two sorted lists, and reads the whole primary
/// key for that if it takes the table for empty. It does so after a vacuum that met no row, or only rows of an open transaction.
macro_rules! held {
    () => {
        "WHERE seq = ANY (ARRAY[settled.sequence]) AND claim_seq & 4294967295 = settled.fence & 4294967295 AND status IN (0, 2)
  AND (settled.id IS NULL OR event_id = settled.id)
  AND (locked_by IS NOT NULL OR EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                        WHERE held.partition_id = outbox_event.partition_id AND held.epoch = settled.fence >> 32
                                          AND held.epoch > 0))"
    };
}
pub(super) use held;

/// $1 and $2 the fences, $3 ids.
pub(super) const DONE: &str = concat!("
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 1, done_at = now(), due_at = NULL, claims = 0, starts = 0, parked = NULL, locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS settled (sequence, fence, id)
", held!());

/// [`DONE`] for outcomes whose cost is kept, apart from it because it writes one column more. $1 and $2 the fences, $3 ids, $4 costs.
const DONE_WITH_COST: &str = concat!("
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = 1, done_at = now(), due_at = NULL, claims = 0, starts = 0, parked = NULL, locked_by = NULL, locked_at = NULL, lease_end = NULL,
    last_cost = settled.cost
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) AS settled (sequence, fence, id, cost)
", held!());

/// $1 and $2 the fences, $3 ids.
const ERASED: &str = concat!(
    "
DELETE FROM outbox_event
USING unnest($1::bigint[], $2::bigint[], $3::text[]) AS settled (sequence, fence, id)
",
    held!()
);

/// Outcomes of any kinds but erased ones: what each kind does to a column stands beside the others. A number is a delay in
/// microseconds, how many failures are counted, or the event that this one waits behind. Where an event never started (behind,
/// released), its claim is given back; released without a delay, it keeps its place among those that are due. Without an
/// aggregate nothing is blocked. $1 and $2 the fences, $3 ids, $4 kinds, $5 numbers, $6 texts, $7 whether each blocks, $8 costs.
pub(super) const MIXED: &str = concat!("
UPDATE outbox_event
SET claim_seq = claim_seq + 1,
    status = CASE settled.kind WHEN 'done' THEN 1 WHEN 'deferred' THEN 0 WHEN 'retry' THEN 2 WHEN 'dead' THEN 3 ELSE status END,
    done_at = CASE WHEN settled.kind IN ('done', 'dead') THEN now() ELSE done_at END,
    due_at = CASE WHEN settled.kind IN ('deferred', 'retry') OR (settled.kind = 'released' AND settled.number > 0)
                    THEN now() + settled.number * interval '1 microsecond'
                  WHEN settled.kind = 'released' THEN due_at END,
    attempts = least(attempts + CASE settled.kind WHEN 'retry' THEN 1 WHEN 'dead' THEN settled.number ELSE 0 END, 2147483647),
    deferrals = least(deferrals::bigint + (settled.kind = 'deferred')::integer, 2147483647),
    last_error = CASE WHEN settled.kind IN ('retry', 'dead') THEN settled.note ELSE last_error END,
    wait_reason = CASE settled.kind WHEN 'released' THEN settled.note WHEN 'done' THEN wait_reason END,
    wait_since = CASE WHEN settled.kind = 'released' AND settled.note IS NOT NULL THEN coalesce(wait_since, now()) WHEN settled.kind IN ('released', 'done') THEN wait_since END,
    last_cost = CASE WHEN settled.kind IN ('retry', 'dead') THEN settled.cost ELSE coalesce(settled.cost, last_cost) END,
    blocks = CASE WHEN settled.kind <> 'dead' THEN blocks WHEN nullif(aggregate_id, '') IS NULL THEN 0 ELSE settled.stops END,
    parked = CASE settled.kind WHEN 'parked' THEN settled.note WHEN 'done' THEN NULL WHEN 'dead' THEN NULL ELSE parked END,
    behind = CASE settled.kind WHEN 'behind' THEN settled.number ELSE behind END,
    claims = CASE WHEN settled.kind NOT IN ('behind', 'released') THEN 0 WHEN locked_by IS NULL THEN claims ELSE greatest(claims, 1) - 1 END,
    starts = CASE WHEN settled.kind IN ('parked', 'behind', 'released') THEN starts ELSE 0 END,
    locked_by = NULL, locked_at = NULL, lease_end = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::smallint[], $8::text[])
  AS settled (sequence, fence, id, kind, number, note, stops, cost)
", held!());

/// Locks all rows of a batch in the order of their `seq`, as the renewal does: several statements in one transaction would
/// lock them by kind of outcome, and the two could wait for each other. Sorted by a number that no index holds, so that a planner that
/// takes the table for empty does not walk along the primary key. $1 their `seq`.
pub(super) const LOCK: &str = "
SELECT 1 FROM outbox_event WHERE seq = ANY ($1::bigint[]) ORDER BY seq + 0 FOR UPDATE";

/// Limits the statements of a transaction, in milliseconds. $1 the longest that one may take, $2 the longest that it may wait for a lock.
const LIMIT: &str = "SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)";

/// Of some events, those that somebody else has locked, against an outcome. $1 their `seq`.
const LOCKED: &str = "
WITH free AS MATERIALIZED (SELECT seq FROM outbox_event WHERE seq = ANY ($1::bigint[]) FOR NO KEY UPDATE SKIP LOCKED)
SELECT seq FROM outbox_event WHERE seq = ANY ($1::bigint[]) AND seq NOT IN (SELECT seq FROM free)";

/// The events for which these outcomes can still be written. $1 and $2 the fences, $3 ids.
const UNSETTLED: &str = concat!(
    "
SELECT seq FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS settled (sequence, fence, id), outbox_event
",
    held!(),
    " AND ",
    on_primary!()
);

const ACTION: &str = "store outcomes";

const STATEMENTS: Statements = Statements { done: DONE, done_with_cost: DONE_WITH_COST, erased: ERASED, mixed: MIXED };

#[async_trait]
impl SettleStore for PostgresStore {
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError> {
        let statements = grouped(settled, &STATEMENTS);
        let mut changed = 0;
        if statements.len() <= 1 {
            // A single statement is its own transaction.
            for (sql, written) in statements {
                changed += self.execute(ACTION, Lists::of(written).bind(sql, self.statement(sql))).await?;
            }
        } else {
            let all = settle_in_transaction(self, settled, statements, None);
            changed = answered(self.longest, all, |silence| self.failed(ACTION, silence)).await?;
        }
        Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX).saturating_sub(changed))
    }

    async fn settle_within(&self, settled: &[Settled], limit: Duration) -> Result<u64, StoreError> {
        let all = settle_in_transaction(self, settled, grouped(settled, &STATEMENTS), Some(limit));
        let changed = answered(self.longest, all, |silence| self.failed(ACTION, silence)).await?;
        Ok(u64::try_from(settled.len()).unwrap_or(u64::MAX).saturating_sub(changed))
    }

    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
        let sequences: Vec<i64> = sequences.iter().copied().map(signed).collect();
        self.all("look for locked events", self.statement(LOCKED).bind(sequences)).await?.iter().map(sequence).collect()
    }

    async fn unsettled(&self, settled: &[Settled]) -> Result<Vec<u64>, StoreError> {
        let statement = fenced(self.statement(UNSETTLED), settled.iter());
        self.all("look for events without an outcome", statement).await?.iter().map(sequence).collect()
    }
}

/// Writes outcomes in one transaction, each of whose statements may take this long. Returns how many.
async fn settle_in_transaction(
    store: &PostgresStore,
    settled: &[Settled],
    statements: Vec<(&'static str, Vec<Written>)>,
    limit: Option<Duration>,
) -> Result<u64, StoreError> {
    let sequences: Vec<i64> = settled.iter().map(|settled| signed(settled.fence.sequence)).collect();
    let mut transaction = store.transaction().await?;
    let changed = lock_and_run(store, &mut transaction, sequences, statements, limit).await;
    commit_or_roll_back(store, transaction, changed).await
}

async fn lock_and_run(
    store: &PostgresStore,
    connection: &mut PgConnection,
    sequences: Vec<i64>,
    statements: Vec<(&'static str, Vec<Written>)>,
    limit: Option<Duration>,
) -> Result<u64, StoreError> {
    if let Some(limit) = limit {
        let [statement, lock] = store.settings.limits_within(limit);
        let set = store.statement(LIMIT).bind(statement).bind(lock).execute(&mut *connection).await;
        set.map_err(|error| store.failed(ACTION, error))?;
    }
    if statements.len() > 1 {
        let lock = store.statement(LOCK).bind(sequences).execute(&mut *connection).await;
        lock.map_err(|error| store.failed(ACTION, error))?;
    }
    run(store, connection, statements).await
}

/// Binds fences and ids, the first three lists of a statement.
pub(super) fn fenced<'q, 's>(statement: Statement<'q>, settled: impl Iterator<Item = &'s Settled> + Clone) -> Statement<'q> {
    let fences = settled.clone().map(|settled| settled.fence);
    let (sequences, fences): (Vec<i64>, Vec<i64>) = fences.map(|fence| (signed(fence.sequence), signed(fence.claim))).unzip();
    let ids: Vec<Option<Id>> = settled.map(|settled| settled.id.map(Id)).collect();
    statement.bind(sequences).bind(fences).bind(ids)
}

/// What one statement writes: a list for each of its columns.
#[derive(Default)]
struct Lists {
    sequences: Vec<i64>,
    fences: Vec<i64>,
    ids: Vec<Option<Id>>,
    kinds: Vec<&'static str>,
    numbers: Vec<Option<i64>>,
    texts: Vec<Option<String>>,
    stops: Vec<i16>,
    costs: Vec<Option<String>>,
}

impl Lists {
    fn of(written: Vec<Written>) -> Self {
        let mut lists = Self::default();
        for Written { seq, fence, id, kind, number, behind, text, stops, cost } in written {
            lists.sequences.push(signed(seq));
            lists.fences.push(signed(fence));
            lists.ids.push(id.map(Id));
            lists.kinds.push(kind);
            lists.numbers.push(number.or(behind.map(signed)));
            lists.texts.push(text);
            lists.stops.push(i16::from(stops));
            lists.costs.push(cost);
        }
        lists
    }

    /// Binds the lists that this statement has.
    fn bind<'q>(self, sql: &str, statement: Statement<'q>) -> Statement<'q> {
        let statement = statement.bind(self.sequences).bind(self.fences).bind(self.ids);
        match sql {
            DONE | ERASED => statement,
            DONE_WITH_COST => statement.bind(self.costs),
            _ => statement.bind(self.kinds).bind(self.numbers).bind(self.texts).bind(self.stops).bind(self.costs),
        }
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
    statements: Vec<(&'static str, Vec<Written>)>,
) -> Result<u64, StoreError> {
    let mut changed = 0;
    for (sql, written) in statements {
        let statement = Lists::of(written).bind(sql, store.statement(sql));
        let result = statement.execute(&mut *connection).await.map_err(|error| store.failed(ACTION, error))?;
        changed += result.rows_affected();
    }
    Ok(changed)
}
