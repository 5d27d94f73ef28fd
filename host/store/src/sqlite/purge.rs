//! Deletes old rows.

use async_trait::async_trait;
use outbox_event::Status;
use outbox_event::time::{Timestamp, micros};

use super::error::failed;
use super::run::Statement;
use super::{Run, SqliteStore};
use crate::number::numbers;
use crate::row::{Columns, filled, purge_row};
use crate::{PurgeBatch, PurgeRequest, PurgeRow, PurgeStore, PurgeTarget, Purgeable, StoreError, row};

/// Walks its own index from the oldest. ?1 status, ?2 the earliest and ?3 the latest time, ?4 the seq of rows to skip, ?5 most rows.
pub(super) const PURGE: &str = "
DELETE FROM outbox_event
WHERE seq IN (
  SELECT seq FROM outbox_event
  WHERE status = ?1 AND done_at IS NOT NULL AND done_at >= ?2 AND done_at <= ?3 AND blocks = 0
    AND seq NOT IN (SELECT value FROM json_each(?4))
  ORDER BY done_at, seq LIMIT ?5)
RETURNING done_at";

/// The rows that [`PURGE`] chooses.
const CHOOSE: &str = "
SELECT seq, event_id, done_at FROM outbox_event
WHERE status = ?1 AND done_at IS NOT NULL AND done_at >= ?2 AND done_at <= ?3 AND blocks = 0
  AND seq NOT IN (SELECT value FROM json_each(?4))
ORDER BY done_at, seq LIMIT ?5";

/// ?1 status, ?2 the cut-off.
const OLDEST: &str = "
SELECT seq, event_id, done_at FROM outbox_event
WHERE status = ?1 AND done_at IS NOT NULL AND done_at <= ?2 AND blocks = 0
ORDER BY done_at, seq LIMIT 1";

const COUNT: &str = "
SELECT count(*) FILTER (WHERE blocks = 0), count(*) FILTER (WHERE blocks = 1)
FROM outbox_event WHERE status = ?1 AND done_at IS NOT NULL AND done_at <= ?2";

/// Walks the index of what is due. What its writer dated back is as old as its row, no older. ?1 now, ?2 the earliest and ?3 the latest
/// time, ?4 the seq of rows to skip, ?5 most rows.
const UNDELIVERED: &str = "
DELETE FROM outbox_event
WHERE seq IN (
  SELECT seq FROM outbox_event
  WHERE due_at >= ?2 AND due_at <= ?3 AND created_at <= ?3 AND status = 0 AND claim_seq = 0
    AND seq NOT IN (SELECT value FROM json_each(?4))
    AND NOT EXISTS (SELECT 1 FROM outbox_event_node WHERE alive_until > ?1)
  ORDER BY due_at, seq LIMIT ?5)
RETURNING due_at";

/// The rows that [`UNDELIVERED`] chooses.
const CHOOSE_UNDELIVERED: &str = "
SELECT seq, event_id, due_at FROM outbox_event
WHERE due_at >= ?2 AND due_at <= ?3 AND created_at <= ?3 AND status = 0 AND claim_seq = 0
  AND seq NOT IN (SELECT value FROM json_each(?4))
  AND NOT EXISTS (SELECT 1 FROM outbox_event_node WHERE alive_until > ?1)
ORDER BY due_at, seq LIMIT ?5";

#[async_trait]
impl PurgeStore for SqliteStore {
    async fn purge(&self, request: &PurgeRequest) -> Result<PurgeBatch, StoreError> {
        let failed = |error| failed(request.target.action(), error);
        let (mut connection, now) = (self.writing(failed).await?, self.now_micros());
        let statement = self.bound([PURGE, UNDELIVERED], request, now, request.limit.into());
        let rows = statement.fetch_all(&mut *connection).await.map_err(failed)?;
        let times = rows.iter().map(|row| filled(0, row.time(0))).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let batch = PurgeBatch::of(&times);
        let missing = i64::from(request.limit) - i64::try_from(batch.count).unwrap_or(i64::MAX);
        if missing <= 0 {
            return Ok(batch);
        }
        // No more rows match, or a trigger kept some of those chosen: they are still the oldest that match.
        let statement = self.bound([CHOOSE, CHOOSE_UNDELIVERED], request, now, missing);
        let rows = statement.fetch_all(&mut *connection).await.map_err(failed)?;
        let remaining = rows.iter().map(purge_row).collect::<Result<_, _>>().map_err(failed)?;
        Ok(PurgeBatch { remaining, ..batch })
    }

    async fn next_to_purge(&self, request: &PurgeRequest) -> Result<Option<PurgeRow>, StoreError> {
        let statement = self.bound([CHOOSE, CHOOSE_UNDELIVERED], request, self.now_micros(), 1);
        self.read_optional(request.target.action(), statement, purge_row).await
    }

    async fn oldest_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Option<PurgeRow>, StoreError> {
        let statement = self.statement(OLDEST).bind(status.code()).bind(finished_before.as_micros());
        self.read_optional("read the oldest finished event", statement, purge_row).await
    }

    async fn count_purgeable(&self, status: Status, finished_before: Timestamp) -> Result<Purgeable, StoreError> {
        let statement = self.statement(COUNT).bind(status.code()).bind(finished_before.as_micros());
        self.read_one("count finished events", statement, row::purgeable).await
    }
}

impl SqliteStore {
    /// The statement for finished rows, or that for undelivered ones.
    fn bound(&self, [finished, undelivered]: [&'static str; 2], request: &PurgeRequest, now: i64, limit: i64) -> Statement<'_> {
        let (statement, latest) = match request.target {
            PurgeTarget::Finished { status, finished_before } => {
                (self.statement(finished).bind(i64::from(status.code())), finished_before.as_micros())
            }
            PurgeTarget::Undelivered { older_than } => {
                (self.statement(undelivered).bind(now), now.saturating_sub(micros(older_than)))
            }
        };
        let earliest = request.from.map_or(i64::MIN, Timestamp::as_micros);
        statement.bind(earliest).bind(latest).bind(numbers(&request.skip)).bind(limit)
    }
}
