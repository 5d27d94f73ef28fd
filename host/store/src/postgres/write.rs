//! Envelopes into rows.

use async_trait::async_trait;
use outbox_event::EventId;
use sqlx::Connection;
use sqlx::postgres::{PgBindIterExt, PgConnection};

use super::error::failed;
use super::run::{Statement, begin};
use super::time::Moment;
use super::{PostgresStore, PostgresTransaction, Run};
use crate::number::signed;
use crate::row::with_ids;
use crate::run::{commit_or_roll_back, in_own_task};
use crate::settle::delay_micros;
use crate::write::{chunk_len, number};
use crate::{NewRow, Ownership, StoreError, TransactionalStore, WriteStore};

/// One statement for any number of rows: one array for each column, rows numbered in the order of the arrays. The time is that
/// of the statement, not of a transaction that may have begun long ago. What is not put off is due at once, even when its
/// writer's clock is ahead. It names the columns that outbox_writer may write, and no other. $1 to $11 the columns.
const INSERT: &str = "
INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                          occurred_at, available_at, expires_at, due_at)
SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload, occurred_at,
       CASE WHEN available_at = occurred_at THEN least(available_at, clock.now) ELSE available_at END, expires_at,
       CASE WHEN available_at = occurred_at THEN least(available_at, clock.now) ELSE available_at END
FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock,
     unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[],
            $9::timestamptz[], $10::timestamptz[], $11::timestamptz[])
     WITH ORDINALITY AS row (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                             occurred_at, available_at, expires_at, position)
ORDER BY position
ON CONFLICT (event_id) DO NOTHING
RETURNING seq, event_id";

/// As above, of rows some of which are claimed for a host with the same statement. $12 which of them, $13 the owner, $14 the lease
/// in microseconds.
const INSERT_CLAIMED: &str = "
INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                          occurred_at, created_at, available_at, expires_at, due_at, claims, claim_seq, locked_by, locked_at,
                          lease_end)
SELECT event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
       occurred_at, clock.now, CASE WHEN available_at = occurred_at THEN least(available_at, clock.now) ELSE available_at END,
       expires_at,
       CASE WHEN claimed THEN clock.now WHEN available_at = occurred_at THEN least(available_at, clock.now) ELSE available_at END,
       claimed::integer, claimed::integer,
       CASE WHEN claimed THEN $13::text END, CASE WHEN claimed THEN clock.now END,
       CASE WHEN claimed THEN clock.now + $14::bigint * interval '1 microsecond' END
FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock,
     unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[],
            $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::boolean[])
     WITH ORDINALITY AS row (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                             occurred_at, available_at, expires_at, claimed, position)
ORDER BY position
ON CONFLICT (event_id) DO NOTHING
RETURNING seq, event_id";

const DELETE_INSERTED: &str = "DELETE FROM outbox_event WHERE event_id = ANY ($1::text[])";

/// $1 numbers of rows.
const FIND: &str = "SELECT seq, event_id FROM outbox_event WHERE seq = ANY ($1::bigint[])";

/// Most payload bytes in one statement.
const MAX_BYTES: usize = 16 << 20;

const ACTION: &str = "insert events";

#[async_trait]
impl WriteStore for PostgresStore {
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
        if chunk_len(rows, MAX_BYTES) >= rows.len() && !self.is_pooled(ACTION).await? {
            // A single statement is its own transaction.
            let mut connection = self.connection(ACTION).await?;
            return self.insert(&mut connection, rows, ownership).await;
        }
        let mut transaction = self.transaction().await?;
        let sequences = self.insert(&mut transaction, rows, ownership).await;
        commit_or_roll_back(self, transaction, sequences).await
    }
}

impl TransactionalStore for PostgresStore {
    type Connection = PgConnection;
    type Transaction = PostgresTransaction;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        self.is_pooled(ACTION).await?;
        begin(&self.callers, (!self.is_lent).then(|| self.connector.clone())).await
    }

    async fn commit(transaction: Self::Transaction) -> Result<(), StoreError> {
        in_own_task("commit", transaction.commit(), failed).await
    }

    async fn rollback(transaction: Self::Transaction) -> Result<(), StoreError> {
        transaction.rollback().await.map_err(|error| failed("roll back", error))
    }

    fn is_in_transaction(connection: &mut Self::Connection) -> bool {
        Connection::is_in_transaction(connection)
    }

    async fn insert(
        &self,
        connection: &mut Self::Connection,
        rows: &[NewRow<'_>],
        ownership: &Ownership,
    ) -> Result<Vec<Option<u64>>, StoreError> {
        let mut sequences = Vec::with_capacity(rows.len());
        let mut rest = rows;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(chunk_len(rest, MAX_BYTES));
            let inserted = if chunk.iter().any(|row| row.claimed) {
                bind_claimed(self.statement(INSERT_CLAIMED), chunk, ownership)
            } else {
                bind(self.statement(INSERT), chunk)
            };
            let inserted = inserted.fetch_all(&mut *connection).await;
            // A read-only transaction is the caller's own, and says nothing of the server.
            let inserted = inserted.map_err(|error| self.sorted(ACTION, error));
            if let Err(StoreError::Outdated { .. }) = inserted {
                // It may be the caller's own connection, which nobody replaces. That this can fail as well changes nothing.
                let _ = connection.clear_cached_statements().await;
            }
            number(chunk, &inserted?, &mut sequences)?;
            rest = after;
        }
        Ok(sequences)
    }

    async fn find(&self, connection: &mut Self::Connection, sequences: &[u64]) -> Result<Vec<(u64, EventId)>, StoreError> {
        let given: Vec<i64> = sequences.iter().copied().map(signed).collect();
        let rows = self.statement(FIND).bind(given).fetch_all(connection).await;
        rows.and_then(|rows| with_ids(&rows)).map_err(|error| self.failed("look for written events", error))
    }

    async fn delete_inserted(&self, connection: &mut Self::Connection, ids: &[EventId]) -> Result<(), StoreError> {
        let ids: Vec<String> = ids.iter().map(EventId::to_string).collect();
        let result = self.statement(DELETE_INSERTED).bind(ids).execute(connection).await;
        result.map(drop).map_err(|error| self.failed("delete inserted events", error))
    }
}

fn bind_claimed<'q>(statement: Statement<'q>, rows: &'q [NewRow<'_>], ownership: &'q Ownership) -> Statement<'q> {
    bind(statement, rows)
        .bind(rows.iter().map(|row| row.claimed).bind_iter())
        .bind(ownership.owner.as_str())
        .bind(delay_micros(ownership.lease))
}

fn bind<'q>(statement: Statement<'q>, rows: &'q [NewRow<'_>]) -> Statement<'q> {
    let ids: Vec<String> = rows.iter().map(|row| row.envelope.id().to_string()).collect();
    let headers: Vec<Option<String>> = rows.iter().map(NewRow::headers).collect();
    statement
        .bind(ids)
        .bind(rows.iter().map(|row| row.envelope.event_type().as_str()).bind_iter())
        .bind(rows.iter().map(|row| row.envelope.aggregate_type().as_str()).bind_iter())
        .bind(rows.iter().map(|row| row.envelope.aggregate_id()).bind_iter())
        .bind(rows.iter().map(|row| row.envelope.tenant_id()).bind_iter())
        .bind(headers)
        .bind(rows.iter().map(|row| row.envelope.content_type()).bind_iter())
        .bind(rows.iter().map(|row| &row.envelope.payload_bytes()[..]).bind_iter())
        .bind(rows.iter().map(|row| Moment(row.envelope.occurred_at())).bind_iter())
        .bind(rows.iter().map(|row| Moment(row.envelope.available_at())).bind_iter())
        .bind(rows.iter().map(|row| row.envelope.expires_at().map(Moment)).bind_iter())
}
