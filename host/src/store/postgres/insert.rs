//! Envelopes into rows.

use async_trait::async_trait;
use sqlx::postgres::{PgBindIterExt, PgConnection};
use sqlx::{Connection, Row};

use super::run::Statement;
use super::time::Moment;
use super::{PostgresStore, transaction};
use crate::event::EventId;
use crate::store::row::sequence;
use crate::store::settle::delay_micros;
use crate::store::{NewRow, Ownership, StoreError, WriteStore};

/// One statement for any number of rows: one array for each column, rows numbered in the order of the arrays. The time is that
/// of the statement, not of a transaction that may have begun long ago. What is not put off is due at once, even when its
/// writer's clock is ahead. $1 to $12 the columns, $13 the owner, $14 the lease in microseconds.
const INSERT: &str = "
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

/// Most rows in one statement, and most payload bytes: bounded, so that a large batch does not double itself in memory.
const MAX_ROWS: usize = 1_000;
const MAX_BYTES: usize = 16 << 20;

#[async_trait]
impl WriteStore for PostgresStore {
    async fn write(&self, rows: &[NewRow<'_>], ownership: &Ownership) -> Result<Vec<Option<u64>>, StoreError> {
        if is_one_chunk(rows) {
            // A single statement is its own transaction.
            let mut connection = self.connection("insert events").await?;
            return insert(self, &mut connection, rows, ownership).await;
        }
        let mut transaction = transaction::begin(&self.host).await?;
        let sequences = insert(self, &mut transaction, rows, ownership).await?;
        transaction::commit(transaction).await?;
        Ok(sequences)
    }
}

pub(super) async fn insert(
    store: &PostgresStore,
    connection: &mut PgConnection,
    rows: &[NewRow<'_>],
    ownership: &Ownership,
) -> Result<Vec<Option<u64>>, StoreError> {
    let mut sequences = Vec::with_capacity(rows.len());
    let mut rest = rows;
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk_len(rest));
        insert_chunk(store, connection, chunk, ownership, &mut sequences).await?;
        rest = after;
    }
    Ok(sequences)
}

/// Whether one statement takes them all.
pub(super) fn is_one_chunk(rows: &[NewRow<'_>]) -> bool {
    chunk_len(rows) >= rows.len()
}

fn chunk_len(rows: &[NewRow<'_>]) -> usize {
    let mut bytes = 0;
    let fitting = rows.iter().take(MAX_ROWS).take_while(|row| {
        bytes += row.bytes();
        bytes <= MAX_BYTES
    });
    fitting.count().max(1)
}

async fn insert_chunk(
    store: &PostgresStore,
    connection: &mut PgConnection,
    rows: &[NewRow<'_>],
    ownership: &Ownership,
    sequences: &mut Vec<Option<u64>>,
) -> Result<(), StoreError> {
    let statement = bind(store.statement(INSERT), rows, ownership);
    let inserted = match statement.fetch_all(&mut *connection).await.map_err(|error| store.failed("insert events", error)) {
        Ok(inserted) => inserted,
        Err(error) => {
            if matches!(error, StoreError::Outdated { .. }) {
                // It may be the caller's own connection, which nobody replaces. That this can fail as well changes nothing.
                let _ = connection.clear_cached_statements().await;
            }
            return Err(error);
        }
    };
    // The rows come back in the order in which they went in; what is missing was there already.
    let mut inserted = inserted.iter().peekable();
    for row in rows {
        let came_in =
            inserted.next_if(|returned| returned.try_get::<&str, _>(1).is_ok_and(|id| id == row.envelope.id().as_str()));
        sequences.push(came_in.map(sequence).transpose()?);
    }
    Ok(())
}

fn bind<'q>(statement: Statement<'q>, rows: &'q [NewRow<'_>], ownership: &'q Ownership) -> Statement<'q> {
    let ids: Vec<String> = rows.iter().map(|row| row.envelope.id().to_string()).collect();
    let headers: Vec<Option<String>> = rows.iter().map(|row| headers(row)).collect();
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
        .bind(rows.iter().map(|row| row.claimed).bind_iter())
        .bind(ownership.owner.as_str())
        .bind(delay_micros(ownership.lease))
}

fn headers(row: &NewRow<'_>) -> Option<String> {
    let headers = row.envelope.headers();
    (!headers.is_empty()).then(|| serde_json::to_string(headers).expect("a map of strings is JSON"))
}

pub(super) async fn delete_inserted(
    store: &PostgresStore,
    connection: &mut PgConnection,
    ids: &[EventId],
) -> Result<(), StoreError> {
    let ids: Vec<String> = ids.iter().map(EventId::to_string).collect();
    let statement = store.statement(DELETE_INSERTED).bind(ids);
    statement.execute(connection).await.map_err(|error| store.failed("delete inserted events", error))?;
    Ok(())
}
