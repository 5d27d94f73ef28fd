//! Reading due events without a claim, and when to look again.

use std::time::Duration;

use async_trait::async_trait;
use outbox_event::{OwnerId, Route};
use sqlx::postgres::PgRow;

use super::keys::waited_for;
use super::partition::column;
use super::primary::on_primary;
use super::route;
use super::row::{event_columns, read_columns};
use super::run::Statement;
use super::time::Moment;
use super::{PostgresStore, Run, front};
use crate::event_row::{now, read};
use crate::number::signed;
use crate::read_statement::{Payloads, ReadStatement};
use crate::row::Columns;
use crate::settle::delay_micros;
use crate::{ReadEvent, ReadOrder, ReadRequest, ReadStore, StoreError};

/// The epoch is read with the row: should the partition be lost and won again, an outcome of what was read before is fenced off.
/// The window adds up the payloads, so that a batch of large events is a small batch; `octet_length` of bytes reads no more than
/// their header. $1 the owner, $2 most rows, $3 most bytes, $4 the youngest age in microseconds, $5 partitions, $6 and $7 the
/// position of the last event before (NULL at the beginning), $8 the events in flight.
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
  SELECT due.*, sum(bytes) OVER (ORDER BY due_at, seq ROWS UNBOUNDED PRECEDING) - bytes AS bytes_before
  FROM (SELECT ",
            event_columns!(),
            ", headers, payload, partition_id, due_at, lease_end,
               octet_length(payload) + coalesce(octet_length(headers), 0) AS bytes
        FROM outbox_event
        WHERE due_at <= now() AND (due_at, seq) > (coalesce($6::timestamptz, '-infinity'), coalesce($7::bigint, 0))
          AND (lease_end IS NULL OR lease_end <= now())
          AND NOT (created_at > now() - $4::bigint * interval '1 microsecond'
                   AND created_at <= now() + $4::bigint * interval '1 microsecond')
          AND partition_id = ANY (ARRAY (SELECT partition_id FROM outbox_event_partition
                                         WHERE owner = $1::text AND partition_id = ANY ($5::smallint[])
                                           AND EXISTS (SELECT FROM outbox_event_node AS node
                                                       WHERE node.owner = $1::text AND alive_until > now())))
          AND seq NOT IN (SELECT unnest($8::bigint[])) ",
            $more_conditions,
            "
        ORDER BY due_at, seq LIMIT $2::bigint) AS due) AS chosen
WHERE bytes_before < $3::bigint AND ",
            on_primary!(),
            "
ORDER BY due_at, chosen.seq"
        )
    };
}

/// $9 and $10 are the names of busy routes (NULL if no route is busy); the others are those of `read!`.
pub(super) const READ: ReadStatement = read!(
    "",
    "AND ($9::text[] IS NULL OR (aggregate_type, event_type) NOT IN (SELECT * FROM unnest($9::text[], $10::text[])))"
);

/// Each with the last of the earlier events that it waits for and that is not queued, or with the last of all if all are queued: one
/// that became due late may come before those in the queue. $9 are the states of events that are waited for, $10 the events that are
/// queued; the others are those of `read!`.
pub(super) const READ_IN_ORDER: ReadStatement = read!(
    ",
       coalesce(
         (SELECT earlier.seq FROM outbox_event AS earlier
          WHERE earlier.aggregate_type = chosen.aggregate_type AND earlier.aggregate_id = chosen.aggregate_id AND chosen.aggregate_id <> ''
            AND (earlier.status IN (0, 2) OR earlier.blocks = 1) AND earlier.status = ANY ($9::smallint[])
            AND earlier.available_at <= now() AND earlier.seq < chosen.seq AND earlier.seq NOT IN (SELECT unnest($10::bigint[]))
          ORDER BY earlier.aggregate_type DESC, earlier.aggregate_id DESC, earlier.seq DESC LIMIT 1),
         (SELECT earlier.seq FROM outbox_event AS earlier
          WHERE earlier.aggregate_type = chosen.aggregate_type AND earlier.aggregate_id = chosen.aggregate_id AND chosen.aggregate_id <> ''
            AND (earlier.status IN (0, 2) OR earlier.blocks = 1) AND earlier.status = ANY ($9::smallint[])
            AND earlier.available_at <= now() AND earlier.seq < chosen.seq
          ORDER BY earlier.aggregate_type DESC, earlier.aggregate_id DESC, earlier.seq DESC LIMIT 1)) AS behind",
    ""
);

/// The next that becomes due, or whose lease ends. Of what is due and held, the first are enough: it is a hint.
pub(super) const NEXT_DUE: &str = concat!(
    "
SELECT least((SELECT due_at FROM outbox_event WHERE due_at > now() ORDER BY due_at, seq LIMIT 1),
             (SELECT min(coalesce(lease_end, due_at))
              FROM (SELECT lease_end, due_at FROM outbox_event WHERE due_at <= now() ORDER BY due_at, seq LIMIT 500) AS due)),
       now()
WHERE ",
    on_primary!()
);

/// As [`NEXT_DUE`]. $1 the owner, $2 the events in flight, $3 and $4 the names of busy routes (NULL if no route is busy).
pub(super) const NEXT_TO_READ: &str = concat!("
SELECT least((SELECT due_at FROM outbox_event
              WHERE due_at > now()
                AND partition_id = ANY (ARRAY (SELECT partition_id FROM outbox_event_partition WHERE owner = $1::text))
              ORDER BY due_at, seq LIMIT 1),
             (SELECT min(coalesce(lease_end, due_at))
              FROM (SELECT lease_end, due_at FROM outbox_event
                    WHERE due_at <= now()
                      AND partition_id = ANY (ARRAY (SELECT partition_id FROM outbox_event_partition WHERE owner = $1::text))
                      AND seq NOT IN (SELECT unnest($2::bigint[]))
                      AND ($3::text[] IS NULL OR (aggregate_type, event_type) NOT IN (SELECT * FROM unnest($3::text[], $4::text[])))
                    ORDER BY due_at, seq LIMIT 500) AS due)),
       now()
WHERE ", on_primary!());

/// Nothing is compared with the names where there are none.
fn busy_names<'q>(statement: Statement<'q>, busy: &'q [Route]) -> Statement<'q> {
    match busy {
        [] => statement.bind(None::<Vec<&str>>).bind(None::<Vec<&str>>),
        _ => route::names(statement, busy),
    }
}

impl PostgresStore {
    async fn read_by(&self, payloads: Payloads, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        let read_statement = match request.order {
            None => READ,
            Some(ReadOrder::ByAggregate { .. }) => READ_IN_ORDER,
            Some(ReadOrder::OneForAll) => front::READ_FRONT,
        };
        let mut statement = self
            .statement(read_statement.sql(payloads))
            .bind(request.owner.as_str())
            .bind(i64::from(request.limit))
            .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
            .bind(delay_micros(request.skip_recent));
        let held = request.held.iter().copied().map(signed).collect::<Vec<_>>();
        statement = match request.order {
            Some(ReadOrder::OneForAll) => statement.bind(held),
            _ => statement
                .bind(column(&request.partitions))
                .bind(request.after.map(|after| Moment(after.due_at)))
                .bind(request.after.map(|after| signed(after.sequence)))
                .bind(held),
        };
        statement = match &request.order {
            None => busy_names(statement, &request.busy),
            Some(ReadOrder::ByAggregate { waits_for, queued }) => {
                statement.bind(waited_for(*waits_for)).bind(queued.iter().copied().map(signed).collect::<Vec<_>>())
            }
            Some(ReadOrder::OneForAll) => statement,
        };
        read(self.all("read events", statement).await?, now, request.order.is_some())
    }
}

#[async_trait]
impl ReadStore for PostgresStore {
    async fn read(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        self.read_by(Payloads::Included, request).await
    }

    async fn read_without_payloads(&self, request: &ReadRequest) -> Result<Vec<ReadEvent>, StoreError> {
        self.read_by(Payloads::LeftOut, request).await
    }

    async fn next_to_read(&self, owner: &OwnerId, held: &[u64], busy: &[Route]) -> Result<Option<Duration>, StoreError> {
        let held: Vec<i64> = held.iter().copied().map(signed).collect();
        let statement = busy_names(self.statement(NEXT_TO_READ).bind(owner.as_str()).bind(held), busy);
        self.read_one("look for the next due event", statement, rest).await
    }

    async fn next_due(&self) -> Result<Option<Duration>, StoreError> {
        self.read_one("look for the next due event", self.statement(NEXT_DUE), rest).await
    }
}

/// The time from now, the second column, to the first.
fn rest(row: &PgRow) -> Result<Option<Duration>, sqlx::Error> {
    Ok(row.time(0)?.zip(row.time(1)?).map(|(due, now)| due.since(now)))
}
