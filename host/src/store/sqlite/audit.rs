//! The record of what is done by hand.

use async_trait::async_trait;
use serde_json::Value;
use sqlx::sqlite::SqliteConnection;

use super::error::failed;
use super::{SqliteStore, error};
use crate::store::audit::{Kind, Span};
use crate::store::row::Named;
use crate::store::{Audit, AuditFilter, AuditRecord, AuditStore, StoreError, row};
use crate::time::Timestamp;

const NOTE: &str = "
INSERT INTO outbox_event_audit (at, actor, action, selector, count, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Nothing bound means any actor ?1 and any action ?2. ?3 earliest and ?4 latest time; of the records at ?4 only those below the
/// number ?5; ?6 limit.
pub(super) const LIST: &str = "
SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
WHERE at >= ?3 AND at <= ?4 AND (at < ?4 OR id < ?5)
  AND (?1 IS NULL OR actor = ?1) AND (?2 IS NULL OR action = ?2)
ORDER BY at DESC, id DESC LIMIT ?6";

/// As above; ?7 the selector of the event.
pub(super) const LIST_OF_ONE: &str = r#"
SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
WHERE selector = ?7 AND substr(selector, 1, 12) = '{"event_id":' AND at >= ?3 AND at <= ?4 AND (at < ?4 OR id < ?5)
  AND (?1 IS NULL OR actor = ?1) AND (?2 IS NULL OR action = ?2)
ORDER BY at DESC, id DESC LIMIT ?6"#;

/// As above. The newest of each kind, then the newest of both.
pub(super) const LIST_TOUCHING: &str = r#"
SELECT * FROM (
  SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
  WHERE selector = ?7 AND substr(selector, 1, 12) = '{"event_id":' AND at >= ?3 AND at <= ?4 AND (at < ?4 OR id < ?5)
    AND (?1 IS NULL OR actor = ?1) AND (?2 IS NULL OR action = ?2)
  ORDER BY at DESC, id DESC LIMIT ?6)
UNION ALL
SELECT * FROM (
  SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
  WHERE action IN ('pause', 'resume', 'replay', 'retry_now') AND substr(selector, 1, 12) <> '{"event_id":'
    AND at >= ?3 AND at <= ?4 AND (at < ?4 OR id < ?5)
    AND (?1 IS NULL OR actor = ?1) AND (?2 IS NULL OR action = ?2)
  ORDER BY at DESC, id DESC LIMIT ?6)
ORDER BY at DESC, id DESC LIMIT ?6"#;

/// When the record was made that the page before ended with, or the one before it.
const LAST: &str = "SELECT at FROM outbox_event_audit WHERE id <= ?1 ORDER BY id DESC LIMIT 1";

#[async_trait]
impl AuditStore for SqliteStore {
    async fn note(&self, audit: &Audit, action: &str, selector: &serde_json::Value, count: u64) -> Result<(), StoreError> {
        let mut connection = self.writer.acquire().await.map_err(|error| error::failed("note what was done", error))?;
        note(self, &mut connection, audit, action, selector, count).await
    }

    async fn list_audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        let action = "read what was done by hand";
        let statement = match filter.kind() {
            Kind::Any => LIST,
            Kind::Of => LIST_OF_ONE,
            Kind::Touching => LIST_TOUCHING,
            Kind::Nothing => return Ok(Vec::new()),
        };
        let mut last = None;
        if let Some(before) = filter.before.and_then(|before| i64::try_from(before).ok()) {
            let found = sqlx::query_scalar(self.table.sql(LAST)).bind(before).fetch_optional(&self.readers).await;
            let Some(at) = found.map_err(|error| failed(action, error))? else { return Ok(Vec::new()) };
            last = Some(Timestamp::from_micros(at));
        }
        let Span { since, until, before } = filter.span(last);
        let mut query = sqlx::query(self.table.sql(statement))
            .bind(&filter.actor)
            .bind(&filter.action)
            .bind(since.as_micros())
            .bind(until.as_micros())
            .bind(before)
            .bind(i64::from(limit));
        if let Some(selector) = filter.selector() {
            query = query.bind(selector);
        }
        let rows = query.fetch_all(&self.readers).await.map_err(|error| failed(action, error))?;
        rows.iter()
            .map(|row| row::audit(row, row.moment("at")?))
            .collect::<Result<_, sqlx::Error>>()
            .map_err(|error| failed(action, error))
    }
}

/// Notes it in the transaction that does it; nothing when nothing was done.
pub(super) async fn note(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
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
        .bind(store.now_micros())
        .bind(actor)
        .bind(action)
        .bind(selector.to_string())
        .bind(i64::try_from(count).unwrap_or(i64::MAX))
        .bind(reason)
        .execute(connection)
        .await
        .map_err(|error| failed("note what was done", error))?;
    Ok(())
}
