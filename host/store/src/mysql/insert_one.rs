//! One envelope into a row.

use outbox_event::Envelope;
use sqlx::mysql::MySqlConnection;

use super::error::is_duplicate;
use super::row::bound;
use super::{MySqlStore, Run};
use crate::settle::delay_micros;
use crate::{NewRow, Ownership, StoreError};

/// One row, and its number comes back with the answer. A duplicate key fails this statement alone: this database takes back
/// what the statement did and leaves the transaction open. What is not put off is due at once, even when its writer's clock is
/// ahead. Bound: the columns in order, times in microseconds; an empty lease
/// means that it is not claimed.
pub(super) const INSERT_ONE: &str = "
INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, headers, content_type, payload,
                          occurred_at, available_at, expires_at, created_at, due_at, claims, claim_seq, locked_by, locked_at,
                          lease_end)
VALUES (?, ?, ?, ?, ?, ?, ?, ?,
        TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND,
        CASE WHEN ? = 1 THEN TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
             ELSE LEAST(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6)) END,
        TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6),
        CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) ELSE available_at END,
        ?, ?, ?, CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) END, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)";

pub(super) const ACTION: &str = "insert events";

pub(super) async fn insert_one(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    row: &NewRow<'_>,
    ownership: &Ownership,
) -> Result<Option<u64>, StoreError> {
    let envelope: &Envelope = row.envelope;
    let claimed = i64::from(row.claimed);
    let result = store
        .statement(INSERT_ONE)
        .bind(envelope.id().to_string())
        .bind(envelope.event_type().as_str())
        .bind(envelope.aggregate_type().as_str())
        .bind(envelope.aggregate_id())
        .bind(envelope.tenant_id())
        .bind(row.headers())
        .bind(envelope.content_type())
        .bind(&envelope.payload_bytes()[..])
        .bind(bound(envelope.occurred_at()))
        .bind(i64::from(envelope.is_delayed()))
        .bind(bound(envelope.available_at()))
        .bind(bound(envelope.available_at()))
        .bind(envelope.expires_at().map(bound))
        .bind(claimed)
        .bind(claimed)
        .bind(claimed)
        .bind(row.claimed.then(|| ownership.owner.as_str()))
        .bind(claimed)
        .bind(row.claimed.then(|| delay_micros(ownership.lease)))
        .execute(connection)
        .await;
    match result {
        Ok(result) => Ok(Some(result.last_insert_id())),
        Err(error) if is_duplicate(&error) => Ok(None),
        Err(error) => Err(store.failed(ACTION, error)),
    }
}
