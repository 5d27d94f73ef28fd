//! Reading due events without a claim, and when to look again.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::time::{Timestamp, micros};
use outbox_event::{OwnerId, Route};

use super::row::{event_columns, read_columns};
use super::{Run, SqliteStore, front, keys};
use crate::event_row::read;
use crate::number::{numbers, signed};
use crate::read_statement::{Payloads, ReadStatement};
use crate::route::pairs;
use crate::row::Columns;
use crate::{ReadEvent, ReadOrder, ReadRequest, ReadStore, StoreError};

/// The epoch is read with the row: should the partition be lost and won again, an outcome of what was read before is fenced off.
/// The window adds up the payloads, so that a batch of large events is a small batch; `length` of a blob reads its header only. The
/// payloads of the chosen rows alone are read, since a window keeps in memory whatever it is computed over.
/// ?1 now, ?2 the owner, ?3 most rows, ?4 most bytes, ?5 the newest insertion time, ?6 partitions as a JSON list, ?7 and ?8 the
/// position of the last event before, ?9 the events in flight as a JSON list.
macro_rules! read {
    ($more_columns:literal, $more_conditions:literal) => {
        ReadStatement {
            with_payloads: read!(with_payload, $more_columns, $more_conditions),
            without_payloads: read!(without_payload, $more_columns, $more_conditions),
        }
    };
    ($payload:ident, $more_columns:literal, $more_conditions:literal) => {
        concat!(
            "\nSELECT ",
            read_columns!($payload),
            $more_columns,
            "
FROM (
  SELECT seq, due_at, bytes, sum(bytes) OVER (ORDER BY due_at, seq ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
  FROM (SELECT seq, due_at, octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes
        FROM outbox_event
        WHERE due_at <= ?1 AND (due_at, seq) > (?7, ?8) AND (lease_end IS NULL OR lease_end <= ?1)
          AND (created_at <= ?5 OR created_at - ?1 > ?1 - ?5)
          AND partition_id IN (
            SELECT partition_id FROM outbox_event_partition
            WHERE owner = (SELECT owner FROM outbox_event_node WHERE owner = ?2 AND alive_until > ?1)
              AND partition_id IN (SELECT value FROM json_each(?6)))
          AND seq NOT IN (SELECT value FROM json_each(?9)) ",
            $more_conditions,
            "
        ORDER BY due_at, seq LIMIT ?3)) AS chosen
CROSS JOIN outbox_event AS event ON event.seq = chosen.seq
WHERE chosen.bytes_before < ?4
ORDER BY chosen.due_at, chosen.seq"
        )
    };
}

/// ?10 are the busy routes as rows of [aggregate_type, event_type], or NULL; the others are those of `read!`.
pub(super) const READ: ReadStatement =
    read!("", "AND (?10 IS NULL OR (aggregate_type, event_type) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each(?10)))");

/// Each with the last of the earlier events that it waits for and that is not queued, or with the last of all if all are queued: one
/// that became due late may come before those in the queue. ?10 says which events are waited for, ?11 are the events that are queued,
/// as a JSON list; the others are those of `read!`.
pub(super) const READ_IN_ORDER: ReadStatement = read!(
    ",
       coalesce(
         (SELECT earlier.seq FROM outbox_event AS earlier
          WHERE earlier.aggregate_type = event.aggregate_type AND earlier.aggregate_id = event.aggregate_id
            AND earlier.aggregate_id IS NOT NULL AND event.aggregate_id <> '' AND (earlier.status IN (0, 2) OR earlier.blocks = 1)
            AND (?10 = 0 OR earlier.status = 0) AND ?10 < 2
            AND earlier.available_at <= ?1 AND (earlier.claim_seq > 0 OR earlier.due_at IS NULL OR earlier.due_at <= ?1) AND earlier.seq < event.seq AND earlier.seq NOT IN (SELECT value FROM json_each(?11))
          ORDER BY earlier.seq DESC LIMIT 1),
         (SELECT earlier.seq FROM outbox_event AS earlier
          WHERE earlier.aggregate_type = event.aggregate_type AND earlier.aggregate_id = event.aggregate_id
            AND earlier.aggregate_id IS NOT NULL AND event.aggregate_id <> '' AND (earlier.status IN (0, 2) OR earlier.blocks = 1)
            AND (?10 = 0 OR earlier.status = 0) AND ?10 < 2
            AND earlier.available_at <= ?1 AND (earlier.claim_seq > 0 OR earlier.due_at IS NULL OR earlier.due_at <= ?1) AND earlier.seq < event.seq
          ORDER BY earlier.seq DESC LIMIT 1)) AS behind",
    ""
);

/// The next that becomes due, or whose lease ends. Of what is due and held, the first are enough: it is a hint. ?1 now.
pub(super) const NEXT_DUE: &str = "
SELECT min(next) FROM (
  SELECT min(due_at) AS next FROM outbox_event WHERE due_at > ?1
  UNION ALL
  SELECT min(coalesce(lease_end, due_at))
  FROM (SELECT lease_end, due_at FROM outbox_event WHERE due_at <= ?1 ORDER BY due_at, seq LIMIT 500))";

/// As [`NEXT_DUE`]. ?1 now, ?2 the owner, ?3 the events in flight as a JSON list, ?4 busy routes as above.
pub(super) const NEXT_TO_READ: &str = "
SELECT min(next) FROM (
  SELECT due_at AS next FROM (
    SELECT due_at FROM outbox_event
    WHERE due_at > ?1 AND EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                  WHERE held.partition_id = outbox_event.partition_id AND held.owner = ?2)
    ORDER BY due_at, seq LIMIT 1)
  UNION ALL
  SELECT min(coalesce(lease_end, due_at))
  FROM (SELECT lease_end, due_at FROM outbox_event
        WHERE due_at <= ?1 AND EXISTS (SELECT 1 FROM outbox_event_partition AS held
                                       WHERE held.partition_id = outbox_event.partition_id AND held.owner = ?2)
          AND seq NOT IN (SELECT value FROM json_each(?3))
          AND (?4 IS NULL OR (aggregate_type, event_type) NOT IN (SELECT value ->> 0, value ->> 1 FROM json_each(?4)))
        ORDER BY due_at, seq LIMIT 500))";

/// Nothing is compared with the names where there are none.
fn busy_names(busy: &[Route]) -> Option<String> {
    (!busy.is_empty()).then(|| pairs(busy))
}

impl SqliteStore {
    async fn read_by(&self, payloads: Payloads, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        self.opened_file.check()?;
        let now = self.now_micros();
        let read_statement = match request.order {
            None => READ,
            Some(ReadOrder::ByAggregate { .. }) => READ_IN_ORDER,
            Some(ReadOrder::OneForAll) => front::READ_FRONT,
        };
        let mut statement = self
            .statement(read_statement.sql(payloads))
            .bind(now)
            .bind(request.owner.as_str())
            .bind(i64::from(request.limit))
            .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
            .bind(now.saturating_sub(micros(request.skip_recent)));
        let (after, sequence) = request.after.map_or((i64::MIN, 0), |after| (after.due_at.as_micros(), after.sequence));
        statement = match request.order {
            Some(ReadOrder::OneForAll) => statement.bind(numbers(&request.held)),
            _ => {
                let statement = statement.bind(numbers(&request.partitions)).bind(after).bind(signed(sequence));
                statement.bind(numbers(&request.held))
            }
        };
        statement = match &request.order {
            None => statement.bind(busy_names(&request.busy)),
            Some(ReadOrder::ByAggregate { waits_for, queued }) => statement.bind(keys::rule(*waits_for)).bind(numbers(queued)),
            Some(ReadOrder::OneForAll) => statement,
        };
        let rows = self.all("read events", statement).await?;
        read(rows, |_| Ok(Timestamp::from_micros(now)), request.order.is_some())
    }
}

#[async_trait]
impl ReadStore for SqliteStore {
    async fn read(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        self.read_by(Payloads::Included, request).await
    }

    async fn read_without_payloads(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        self.read_by(Payloads::LeftOut, request).await
    }

    async fn next_to_read(&self, owner: &OwnerId, held: &[u64], busy: &[Route]) -> Result<Option<Duration>, StoreError> {
        let now = self.clock.now();
        let statement = self.statement(NEXT_TO_READ).bind(now.as_micros()).bind(owner.as_str()).bind(numbers(held));
        let statement = statement.bind(busy_names(busy));
        let due = self.read_one("look for the next due event", statement, |row| row.time(0)).await?;
        Ok(due.map(|due| due.since(now)))
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        let now = self.clock.now();
        let statement = self.statement(NEXT_DUE).bind(now.as_micros());
        let due = self.read_one("look for the next due event", statement, |row| row.time(0)).await?;
        Ok(due.map(|due| due.since(now)))
    }
}
