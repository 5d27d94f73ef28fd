//! The record of what is done by hand.

use async_trait::async_trait;
use serde_json::Value;
use sqlx::mysql::MySqlConnection;

use super::MySqlStore;
use super::row::bound;
use crate::store::audit::{Kind, Span};
use crate::store::row::Named;
use crate::store::{Audit, AuditFilter, AuditRecord, AuditStore, StoreError, row};
use crate::time::Timestamp;

const NOTE: &str = "
INSERT INTO outbox_event_audit (at, actor, action, selector, count, reason) VALUES (UTC_TIMESTAMP(6), ?, ?, ?, ?, ?)";

/// Bound: earliest time, latest time twice; of the records at the latest time only those below this number; actor and action each
/// twice, any where nothing is bound; limit.
pub(super) const LIST: &str = "
SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ours.at) AS micros, actor, action, selector, count, reason
FROM outbox_event_audit AS ours FORCE INDEX (outbox_audit_at)
WHERE ours.at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND ours.at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND (ours.at < TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND OR id < ?)
  AND (? IS NULL OR actor = ?) AND (? IS NULL OR action = ?)
ORDER BY ours.at DESC, id DESC LIMIT ?";

/// Bound: the selector of the event, then as above.
pub(super) const LIST_OF_ONE: &str = "
SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ours.at) AS micros, actor, action, selector, count, reason
FROM outbox_event_audit AS ours FORCE INDEX (outbox_audit_one)
WHERE selector = ? AND ours.at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND ours.at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND (ours.at < TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND OR id < ?)
  AND (? IS NULL OR actor = ?) AND (? IS NULL OR action = ?)
ORDER BY ours.at DESC, id DESC LIMIT ?";

/// The newest of each kind, then the newest of both. Bound: as [`LIST_OF_ONE`], as [`LIST`], limit.
pub(super) const LIST_TOUCHING: &str = "
SELECT * FROM (
 (SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ours.at) AS micros, actor, action, selector, count, reason
  FROM outbox_event_audit AS ours FORCE INDEX (outbox_audit_one)
  WHERE selector = ? AND ours.at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
    AND ours.at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
    AND (ours.at < TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND OR id < ?)
    AND (? IS NULL OR actor = ?) AND (? IS NULL OR action = ?)
  ORDER BY ours.at DESC, id DESC LIMIT ?)
  UNION ALL
 (SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ours.at) AS micros, actor, action, selector, count, reason
  FROM outbox_event_audit AS ours FORCE INDEX (outbox_audit_many)
  WHERE many_at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
    AND many_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
    AND (many_at < TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND OR id < ?)
    AND (? IS NULL OR actor = ?) AND (? IS NULL OR action = ?)
  ORDER BY many_at DESC, id DESC LIMIT ?)) AS touching
ORDER BY micros DESC, id DESC LIMIT ?";

/// When the record was made that the page before ended with, or the one before it.
const LAST: &str = "
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) FROM outbox_event_audit WHERE id <= ? ORDER BY id DESC LIMIT 1";

#[async_trait]
impl AuditStore for MySqlStore {
    async fn note(&self, audit: &Audit, action: &str, selector: &serde_json::Value, count: u64) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await.map_err(|error| self.failed("note what was done", error))?;
        note(self, &mut connection, audit, action, selector, count).await
    }

    async fn list_audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        let failed = |error| self.failed("read what was done by hand", error);
        let statement = match filter.kind() {
            Kind::Any => LIST,
            Kind::Of => LIST_OF_ONE,
            Kind::Touching => LIST_TOUCHING,
            Kind::Nothing => return Ok(Vec::new()),
        };
        let mut last = None;
        if let Some(before) = filter.before.and_then(|before| i64::try_from(before).ok()) {
            let found = sqlx::query_scalar(self.table.sql(LAST)).bind(before).fetch_optional(&self.pool).await;
            let Some(at) = found.map_err(failed)? else { return Ok(Vec::new()) };
            last = Some(Timestamp::from_micros(at));
        }
        let Span { since, until, before } = filter.span(last);
        let mut query = sqlx::query(self.table.sql(statement));
        if let Some(selector) = filter.selector() {
            query = query.bind(selector);
        }
        let is_of_two = filter.kind() == Kind::Touching;
        for _ in 0..if is_of_two { 2 } else { 1 } {
            query = query.bind(bound(since)).bind(bound(until)).bind(bound(until)).bind(before);
            for text in [&filter.actor, &filter.action] {
                query = query.bind(text.clone()).bind(text.clone());
            }
            query = query.bind(i64::from(limit));
        }
        if is_of_two {
            query = query.bind(i64::from(limit));
        }
        let rows = query.fetch_all(&self.pool).await.map_err(failed)?;
        rows.iter().map(|row| row::audit(row, row.moment("micros")?)).collect::<Result<_, sqlx::Error>>().map_err(failed)
    }
}

/// Notes it in the transaction that does it; nothing when nothing was done.
pub(super) async fn note(
    store: &MySqlStore,
    connection: &mut MySqlConnection,
    audit: &Audit,
    action: &str,
    selector: &Value,
    count: u64,
) -> Result<(), StoreError> {
    if count == 0 {
        return Ok(());
    }
    let (actor, reason) = audit.stored();
    sqlx::query(store.table.sql(NOTE))
        .bind(actor)
        .bind(action)
        .bind(selector.to_string())
        .bind(i64::try_from(count).unwrap_or(i64::MAX))
        .bind(reason)
        .execute(connection)
        .await
        .map_err(|error| store.failed("note what was done", error))?;
    Ok(())
}
