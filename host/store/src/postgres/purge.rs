//! Deletes old rows.

use async_trait::async_trait;
use outbox_event::Status;
use outbox_event::time::Timestamp;

use super::inspect::state;
use super::primary::on_primary;
use super::run::Statement;
use super::time::Moment;
use super::{PostgresStore, Run};
use crate::number::signed;
use crate::row::{Columns, Named, purge_row};
use crate::settle::delay_micros;
use crate::{PurgeBatch, PurgeRequest, PurgeRow, PurgeStore, PurgeTarget, Purgeable, StoreError, row};

/// `ONLY`, here and wherever rows are chosen by `ctid`: rows of a child table may have the same `ctid` as rows of this table.
///
/// Walks its own index from the oldest; what another host is just purging is stepped over. Answers the rows that a trigger or a policy
/// kept, and one row without a seq for those deleted. $1 status, $2 the latest and $3 the earliest time, $4 the seq of rows to skip, $5
/// most rows.
pub(super) const PURGE: &str = "
WITH chosen AS MATERIALIZED (
  SELECT ctid AS place, seq, event_id, done_at FROM ONLY outbox_event
  WHERE status = $1::smallint AND done_at IS NOT NULL AND done_at <= $2::timestamptz
    AND done_at >= COALESCE($3::timestamptz, '-infinity') AND blocks = 0 AND seq <> ALL ($4::bigint[])
  ORDER BY status, done_at LIMIT $5::bigint FOR UPDATE SKIP LOCKED),
purged AS (
  DELETE FROM ONLY outbox_event WHERE ctid = ANY (ARRAY (SELECT place FROM chosen))
  RETURNING seq, done_at)
SELECT NULL AS seq, NULL AS event_id, min(done_at) AS first, max(done_at) AS last, count(*) AS count FROM purged
UNION ALL
SELECT seq, event_id, done_at, NULL, NULL FROM chosen WHERE seq NOT IN (SELECT seq FROM purged)";

/// The row that [`PURGE`] chooses first. A standby refuses to lock it.
const NEXT: &str = "
SELECT seq, event_id, done_at FROM outbox_event
WHERE status = $1::smallint AND done_at IS NOT NULL AND done_at <= $2::timestamptz
  AND done_at >= COALESCE($3::timestamptz, '-infinity') AND blocks = 0 AND seq <> ALL ($4::bigint[])
ORDER BY status, done_at LIMIT $5::bigint FOR UPDATE SKIP LOCKED";

/// $1 status, $2 the cut-off.
const OLDEST: &str = concat!(
    "
SELECT seq, event_id, done_at FROM outbox_event
WHERE status = $1::smallint AND done_at IS NOT NULL AND done_at <= $2::timestamptz AND blocks = 0 AND ",
    on_primary!(),
    "
ORDER BY status, done_at LIMIT 1"
);

/// $1 status, $2 the cut-off.
const COUNT: &str = concat!(
    "
SELECT count(*) FILTER (WHERE blocks = 0) AS count, count(*) FILTER (WHERE blocks = 1) AS blocking FROM outbox_event
WHERE status = $1::smallint AND done_at IS NOT NULL AND done_at <= $2::timestamptz AND ",
    on_primary!()
);

/// Walks the index of what is due. What its writer dated back is as old as its row, no older. A host that lives is going to
/// deliver what is due, however late: it is looked for in each batch, since it may have come a moment ago. $1 the age in
/// microseconds, $2 the earliest time, $3 the seq of rows to skip, $4 most rows.
const UNDELIVERED: &str = "
WITH chosen AS MATERIALIZED (
  SELECT ctid AS place, seq, event_id, due_at FROM ONLY outbox_event
  WHERE due_at <= now() - $1::bigint * interval '1 microsecond' AND due_at >= COALESCE($2::timestamptz, '-infinity')
    AND created_at <= now() - $1::bigint * interval '1 microsecond' AND status = 0 AND claim_seq = 0
    AND seq <> ALL ($3::bigint[])
    AND NOT EXISTS (SELECT 1 FROM outbox_event_node WHERE alive_until > now())
  ORDER BY due_at, seq LIMIT $4::bigint FOR UPDATE SKIP LOCKED),
purged AS (
  DELETE FROM ONLY outbox_event WHERE ctid = ANY (ARRAY (SELECT place FROM chosen))
  RETURNING seq, due_at)
SELECT NULL AS seq, NULL AS event_id, min(due_at) AS first, max(due_at) AS last, count(*) AS count FROM purged
UNION ALL
SELECT seq, event_id, due_at, NULL, NULL FROM chosen WHERE seq NOT IN (SELECT seq FROM purged)";

/// The row that [`UNDELIVERED`] chooses first.
const NEXT_UNDELIVERED: &str = "
SELECT seq, event_id, due_at FROM outbox_event
WHERE due_at <= now() - $1::bigint * interval '1 microsecond' AND due_at >= COALESCE($2::timestamptz, '-infinity')
  AND created_at <= now() - $1::bigint * interval '1 microsecond' AND status = 0 AND claim_seq = 0
  AND seq <> ALL ($3::bigint[])
  AND NOT EXISTS (SELECT 1 FROM outbox_event_node WHERE alive_until > now())
ORDER BY due_at, seq LIMIT $4::bigint FOR UPDATE SKIP LOCKED";

#[async_trait]
impl PurgeStore for PostgresStore {
    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
        let action = request.target.action();
        // All rows are read: a deferred constraint fails after the last of them.
        let statement = self.bound([PURGE, UNDELIVERED], request, request.limit);
        let rows = self.all_or_rolled_back(action, statement).await?;
        let mut batch = PurgeBatch::default();
        for row in &rows {
            let is_total = row.integer(0).map_err(|error| self.failed(action, error))?.is_none();
            if is_total {
                let total = || Ok((row.count("count")?, row.optional_moment("first")?, row.optional_moment("last")?));
                (batch.count, batch.first, batch.last) = total().map_err(|error| self.failed(action, error))?;
            } else {
                batch.remaining.push(purge_row(row).map_err(|error| self.failed(action, error))?);
            }
        }
        Ok(batch)
    }

    async fn next_to_purge(&self, request: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError> {
        self.read_optional(request.target.action(), self.bound([NEXT, NEXT_UNDELIVERED], request, 1), purge_row).await
    }

    async fn oldest_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Option<PurgeRow>, StoreError> {
        let statement = self.statement(OLDEST).bind(state(status)).bind(Moment(finished_before));
        self.read_optional("read the oldest finished event", statement, purge_row).await
    }

    async fn count_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Purgeable, StoreError> {
        let statement = self.statement(COUNT).bind(state(status)).bind(Moment(finished_before));
        self.read_one("count finished events", statement, row::purgeable).await
    }
}

impl PostgresStore {
    /// The statement for finished rows, or that for undelivered ones.
    fn bound(&self, [finished, undelivered]: [&'static str; 2], request: &PurgeRequest, limit: u32) -> Statement<'_> {
        let statement = match request.target {
            PurgeTarget::Finished { status, finished_before } => {
                self.statement(finished).bind(state(status)).bind(Moment(finished_before))
            }
            PurgeTarget::Undelivered { older_than } => self.statement(undelivered).bind(delay_micros(older_than)),
        };
        let skip: Vec<i64> = request.skip.iter().copied().map(signed).collect();
        statement.bind(request.from.map(Moment)).bind(skip).bind(i64::from(limit))
    }
}
