//! The record of what is done by hand.

use serde_json::Value;
use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::SqliteStore;
use super::error::failed;
use super::inspect::column;
use crate::store::{Audit, AuditFilter, AuditRecord, StoreError};
use crate::time::Timestamp;

const NOTE: &str = "
INSERT INTO outbox_event_audit (at, actor, action, selector, count, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Nothing bound means any. ?1 actor, ?2 action, ?3 selector, ?4 earliest and ?5 latest time, ?6 before, ?7 limit, ?8 the selector of
/// the event that may have been touched.
const LIST: &str = r#"
SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
WHERE (?1 IS NULL OR actor = ?1) AND (?2 IS NULL OR action = ?2) AND (?3 IS NULL OR selector = ?3)
  AND (?4 IS NULL OR at >= ?4) AND (?5 IS NULL OR at <= ?5) AND id < ?6
  AND (?8 IS NULL OR selector = ?8
       OR (action IN ('pause', 'resume', 'replay', 'retry_now') AND selector NOT LIKE '{"event_id":%'))
ORDER BY id DESC LIMIT ?7"#;

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

pub(super) async fn list(store: &SqliteStore, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
    let action = "read what was done by hand";
    let [selector, touching] = filter.selectors();
    let rows = sqlx::query(store.table.sql(LIST))
        .bind(&filter.actor)
        .bind(&filter.action)
        .bind(selector)
        .bind(filter.since.map(Timestamp::as_micros))
        .bind(filter.until.map(Timestamp::as_micros))
        .bind(filter.before())
        .bind(i64::from(limit))
        .bind(touching)
        .fetch_all(&store.readers)
        .await
        .map_err(|error| failed(action, error))?;
    rows.iter()
        .map(|row| {
            let selector: &str = row.try_get("selector")?;
            Ok(AuditRecord {
                id: column(row, "id")?,
                at: Timestamp::from_micros(row.try_get("at")?),
                actor: row.try_get("actor")?,
                action: row.try_get("action")?,
                selector: serde_json::from_str(selector).unwrap_or_else(|_| selector.into()),
                count: column(row, "count")?,
                reason: row.try_get("reason")?,
            })
        })
        .collect::<Result<_, sqlx::Error>>()
        .map_err(|error| failed(action, error))
}
