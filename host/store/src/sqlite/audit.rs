//! The record of what is done by hand.

use async_trait::async_trait;
use serde_json::Value;
use sqlx::sqlite::SqliteConnection;

use super::error::failed;
use super::run::Statement;
use super::{Run, SqliteStore};
use crate::number::signed;
use crate::row::Named;
use crate::{Audit, AuditFilter, AuditRecord, AuditStore, StoreError, row};

const NOTE: &str = "
INSERT INTO outbox_event_audit (at, actor, action, selector, count, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Nothing bound means any actor ?1 and any action ?2. An actor is also a host's name: its label without the number of its process.
/// ?3 earliest and ?4 latest time; of the records at ?4 only those below the number ?5; ?6 limit.
pub(super) const LIST: &str = "
SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
WHERE at >= ?3 AND at <= ?4 AND (at < ?4 OR id < ?5)
  AND (?1 IS NULL OR actor = ?1 OR rtrim(actor, '0123456789') = ?1 || ' ') AND (?2 IS NULL OR action = ?2)
ORDER BY at DESC, id DESC LIMIT ?6";

/// As above; ?7 the selector of the event.
pub(super) const LIST_OF_ONE: &str = r#"
SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
WHERE selector = ?7 AND substr(selector, 1, 12) = '{"event_id":' AND at >= ?3 AND at <= ?4 AND (at < ?4 OR id < ?5)
  AND (?1 IS NULL OR actor = ?1 OR rtrim(actor, '0123456789') = ?1 || ' ') AND (?2 IS NULL OR action = ?2)
ORDER BY at DESC, id DESC LIMIT ?6"#;

/// As above. The newest of each kind, then the newest of both.
pub(super) const LIST_TOUCHING: &str = r#"
SELECT * FROM (
  SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
  WHERE selector = ?7 AND substr(selector, 1, 12) = '{"event_id":' AND at >= ?3 AND at <= ?4 AND (at < ?4 OR id < ?5)
    AND (?1 IS NULL OR actor = ?1 OR rtrim(actor, '0123456789') = ?1 || ' ') AND (?2 IS NULL OR action = ?2)
  ORDER BY at DESC, id DESC LIMIT ?6)
UNION ALL
SELECT * FROM (
  SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
  WHERE action IN ('pause', 'resume', 'replay', 'retry_now') AND substr(selector, 1, 12) <> '{"event_id":'
    AND at >= ?3 AND at <= ?4 AND (at < ?4 OR id < ?5)
    AND (?1 IS NULL OR actor = ?1 OR rtrim(actor, '0123456789') = ?1 || ' ') AND (?2 IS NULL OR action = ?2)
  ORDER BY at DESC, id DESC LIMIT ?6)
ORDER BY at DESC, id DESC LIMIT ?6"#;

/// When the record was made that the page before ended with, or the one before it.
const LAST: &str = "SELECT at FROM outbox_event_audit WHERE id <= ?1 ORDER BY id DESC LIMIT 1";

const NOTING: &str = "note what was done";
const READING: &str = "read what was done by hand";

#[async_trait]
impl AuditStore for SqliteStore {
    async fn note(&self, audit: &Audit, action: &str, selector: &Value, count: u64) -> Result<(), StoreError> {
        if count > 0 {
            self.execute(NOTING, noting(self, audit, action, selector, count)).await?;
        }
        Ok(())
    }

    async fn list_audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        let Some(sql) = filter.choose([LIST, LIST_OF_ONE, LIST_TOUCHING]) else { return Ok(Vec::new()) };
        let last = match filter.last() {
            Some(last) => self.read_optional(READING, self.statement(LAST).bind(last), |row| row.moment("at")).await?,
            None => None,
        };
        let Some(span) = filter.span(last) else { return Ok(Vec::new()) };
        let mut statement = self
            .statement(sql)
            .bind(&filter.actor)
            .bind(&filter.action)
            .bind(span.since.as_micros())
            .bind(span.until.as_micros())
            .bind(span.before)
            .bind(i64::from(limit));
        if let Some(selector) = filter.selector() {
            statement = statement.bind(selector);
        }
        self.read_all(READING, statement, |row| row::audit(row, row.moment("at")?)).await
    }
}

/// The statement that notes something.
fn noting<'q>(store: &SqliteStore, audit: &Audit, action: &'q str, selector: &Value, count: u64) -> Statement<'q> {
    let (actor, reason) = audit.stored();
    let statement = store.statement(NOTE).bind(store.now_micros()).bind(actor).bind(action);
    statement.bind(selector.to_string()).bind(signed(count)).bind(reason)
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
    if count > 0 {
        let statement = noting(store, audit, action, selector, count);
        statement.execute(connection).await.map_err(|error| failed(NOTING, error))?;
    }
    Ok(())
}
