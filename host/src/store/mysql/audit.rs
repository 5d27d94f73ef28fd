//! The record of what is done by hand.

use serde_json::Value;
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};

use super::MySqlStore;
use super::row::{bound, column};
use crate::store::{Audit, AuditFilter, AuditRecord, StoreError};
use crate::time::Timestamp;

const NOTE: &str = "
INSERT INTO outbox_event_audit (at, actor, action, selector, count, reason) VALUES (UTC_TIMESTAMP(6), ?, ?, ?, ?, ?)";

/// Nothing bound means any. Actor, action, selector, the selector of the event that may have been touched, earliest and latest time
/// each twice; before, limit.
const LIST: &str = r#"
SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) AS at, actor, action, selector, count, reason
FROM outbox_event_audit
WHERE (? IS NULL OR actor = ?) AND (? IS NULL OR action = ?) AND (? IS NULL OR selector = ?)
  AND (? IS NULL OR selector = ?
       OR (action IN ('pause', 'resume', 'replay', 'retry_now') AND selector NOT LIKE '{"event_id":%'))
  AND (? IS NULL OR at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND)
  AND (? IS NULL OR at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND) AND id < ?
ORDER BY id DESC LIMIT ?"#;

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

pub(super) async fn list(store: &MySqlStore, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
    let failed = |error| store.failed("read what was done by hand", error);
    let mut query = sqlx::query(store.table.sql(LIST));
    let [selector, touching] = filter.selectors();
    for text in [filter.actor.clone(), filter.action.clone(), selector, touching] {
        query = query.bind(text.clone()).bind(text);
    }
    for time in [filter.since.map(bound), filter.until.map(bound)] {
        query = query.bind(time).bind(time);
    }
    let rows = query.bind(filter.before()).bind(i64::from(limit)).fetch_all(&store.pool).await.map_err(failed)?;
    rows.iter().map(record).collect::<Result<_, sqlx::Error>>().map_err(failed)
}

fn record(row: &MySqlRow) -> Result<AuditRecord, sqlx::Error> {
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
}
