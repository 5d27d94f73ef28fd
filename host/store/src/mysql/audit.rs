//! The record of what is done by hand.

use async_trait::async_trait;
use serde_json::Value;
use sqlx::mysql::MySqlConnection;

use super::primary::on_primary;
use super::row::bound;
use super::run::Statement;
use super::{MySqlStore, Run};
use crate::audit::Span;
use crate::number::signed;
use crate::row::{Columns, Named, filled};
use crate::{Audit, AuditFilter, AuditRecord, AuditStore, StoreError, row};

const NOTE: &str = "
INSERT INTO outbox_event_audit (at, actor, action, selector, count, reason) VALUES (UTC_TIMESTAMP(6), ?, ?, ?, ?, ?)";

/// Bound: earliest time, latest time twice; of the records at the latest time only those below this number; actor and action each
/// twice, any where nothing is bound; limit. An actor is also a host's name: its label without the number of its process.
pub(super) const LIST: &str = concat!(
    "
SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ours.at) AS micros, actor, action, selector, count, reason
FROM outbox_event_audit AS ours FORCE INDEX (outbox_audit_at)
WHERE ours.at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND ours.at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND (ours.at < TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND OR id < ?)
  AND (? IS NULL OR ? IN (actor, REGEXP_REPLACE(actor, ' [0-9]+$', ''))) AND (? IS NULL OR action = ?) AND ",
    on_primary!(),
    "
ORDER BY ours.at DESC, id DESC LIMIT ?"
);

/// Bound: the selector of the event, then as above.
pub(super) const LIST_OF_ONE: &str = concat!(
    "
SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ours.at) AS micros, actor, action, selector, count, reason
FROM outbox_event_audit AS ours FORCE INDEX (outbox_audit_one)
WHERE selector = ? AND ours.at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND ours.at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
  AND (ours.at < TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND OR id < ?)
  AND (? IS NULL OR ? IN (actor, REGEXP_REPLACE(actor, ' [0-9]+$', ''))) AND (? IS NULL OR action = ?) AND ",
    on_primary!(),
    "
ORDER BY ours.at DESC, id DESC LIMIT ?"
);

/// The newest of each kind, then the newest of both. Bound: as [`LIST_OF_ONE`], as [`LIST`], limit.
pub(super) const LIST_TOUCHING: &str = concat!(
    "
SELECT * FROM (
 (SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ours.at) AS micros, actor, action, selector, count, reason
  FROM outbox_event_audit AS ours FORCE INDEX (outbox_audit_one)
  WHERE selector = ? AND ours.at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
    AND ours.at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
    AND (ours.at < TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND OR id < ?)
    AND (? IS NULL OR ? IN (actor, REGEXP_REPLACE(actor, ' [0-9]+$', ''))) AND (? IS NULL OR action = ?)
  ORDER BY ours.at DESC, id DESC LIMIT ?)
  UNION ALL
 (SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ours.at) AS micros, actor, action, selector, count, reason
  FROM outbox_event_audit AS ours FORCE INDEX (outbox_audit_many)
  WHERE many_at >= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
    AND many_at <= TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND
    AND (many_at < TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND OR id < ?)
    AND (? IS NULL OR ? IN (actor, REGEXP_REPLACE(actor, ' [0-9]+$', ''))) AND (? IS NULL OR action = ?)
  ORDER BY many_at DESC, id DESC LIMIT ?)) AS touching
WHERE ",
    on_primary!(),
    "
ORDER BY micros DESC, id DESC LIMIT ?"
);

/// When the record was made that the page before ended with, or the one before it.
const LAST: &str = concat!(
    "
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', at) FROM outbox_event_audit WHERE id <= ? AND ",
    on_primary!(),
    " ORDER BY id DESC LIMIT 1"
);

const NOTING: &str = "note what was done";
const READING: &str = "read what was done by hand";

#[async_trait]
impl AuditStore for MySqlStore {
    async fn note(&self, audit: &Audit, action: &str, selector: &Value, count: u64) -> Result<(), StoreError> {
        if count > 0 {
            self.execute(NOTING, noting(self, audit, action, selector, count)).await?;
        }
        Ok(())
    }

    async fn list_audit(&self, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
        let Some((sql, parts)) = filter.choose([(LIST, 1), (LIST_OF_ONE, 1), (LIST_TOUCHING, 2)]) else {
            return Ok(Vec::new());
        };
        let last = match filter.last() {
            Some(last) => self.read_optional(READING, self.statement(LAST).bind(last), |row| filled(0, row.time(0))).await?,
            None => None,
        };
        let Some(Span { since, until, before }) = filter.span(last) else { return Ok(Vec::new()) };
        let mut statement = self.statement(sql);
        if let Some(selector) = filter.selector() {
            statement = statement.bind(selector);
        }
        for _ in 0..parts {
            statement = statement.bind(bound(since)).bind(bound(until)).bind(bound(until)).bind(before);
            for text in [&filter.actor, &filter.action] {
                statement = statement.bind(text).bind(text);
            }
            statement = statement.bind(i64::from(limit));
        }
        if parts > 1 {
            statement = statement.bind(i64::from(limit));
        }
        self.read_all(READING, statement, |row| row::audit(row, row.moment("micros")?)).await
    }
}

/// The statement that notes something.
fn noting<'q>(store: &MySqlStore, audit: &Audit, action: &'q str, selector: &Value, count: u64) -> Statement<'q> {
    let (actor, reason) = audit.stored();
    store.statement(NOTE).bind(actor).bind(action).bind(selector.to_string()).bind(signed(count)).bind(reason)
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
    if count > 0 {
        let statement = noting(store, audit, action, selector, count);
        statement.execute(connection).await.map_err(|error| store.failed(NOTING, error))?;
    }
    Ok(())
}
