//! The record of what is done by hand.

use async_trait::async_trait;
use serde_json::Value;
use sqlx::postgres::PgRow;

use super::primary::on_primary;
use super::run::Statement;
use super::time::Moment;
use super::{PostgresStore, Run};
use crate::audit::Span;
use crate::number::signed;
use crate::row::Named;
use crate::{Audit, AuditFilter, AuditRecord, AuditStore, StoreError, row};

/// $1 actor, $2 reason, $3 selector, $4 action, $5 count.
const NOTE: &str = "
INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
VALUES (now(), $1::text, $2::text, $3::text, $4::text, $5::bigint)";

/// Nothing bound means any actor $1 and any action $2. An actor is also a host's name: its label without the number of its process.
/// $3 earliest and $4 latest time; of the records at $4 only those below the number $5; $6 limit.
pub(super) const LIST: &str = concat!(
    "
SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
WHERE at >= $3::timestamptz AND at <= $4::timestamptz AND (at < $4 OR id < $5::bigint)
  AND ($1::text IS NULL OR $1 IN (actor, regexp_replace(actor, ' [0-9]+$', ''))) AND ($2::text IS NULL OR action = $2) AND ",
    on_primary!(),
    "
ORDER BY at DESC, id DESC LIMIT $6::bigint"
);

/// As above; $7 the selector of the event.
pub(super) const LIST_OF_ONE: &str = concat!(
    r#"
SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
WHERE selector = $7::text AND left(selector, 12) = '{"event_id":'
  AND at >= $3::timestamptz AND at <= $4::timestamptz AND (at < $4 OR id < $5::bigint)
  AND ($1::text IS NULL OR $1 IN (actor, regexp_replace(actor, ' [0-9]+$', ''))) AND ($2::text IS NULL OR action = $2) AND "#,
    on_primary!(),
    "
ORDER BY at DESC, id DESC LIMIT $6::bigint"
);

/// As above. The newest of each kind, then the newest of both.
pub(super) const LIST_TOUCHING: &str = concat!(
    r#"
SELECT * FROM (
 (SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
  WHERE selector = $7::text AND left(selector, 12) = '{"event_id":'
  AND at >= $3::timestamptz AND at <= $4::timestamptz AND (at < $4 OR id < $5::bigint)
    AND ($1::text IS NULL OR $1 IN (actor, regexp_replace(actor, ' [0-9]+$', ''))) AND ($2::text IS NULL OR action = $2)
  ORDER BY at DESC, id DESC LIMIT $6::bigint)
  UNION ALL
 (SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
  WHERE action IN ('pause', 'resume', 'replay', 'retry_now') AND left(selector, 12) <> '{"event_id":'
    AND at >= $3::timestamptz AND at <= $4::timestamptz AND (at < $4 OR id < $5::bigint)
    AND ($1::text IS NULL OR $1 IN (actor, regexp_replace(actor, ' [0-9]+$', ''))) AND ($2::text IS NULL OR action = $2)
  ORDER BY at DESC, id DESC LIMIT $6::bigint)) AS touching
WHERE "#,
    on_primary!(),
    "
ORDER BY at DESC, id DESC LIMIT $6::bigint"
);

/// When the record was made that the page before ended with, or the one before it.
const LAST: &str =
    concat!("SELECT at FROM outbox_event_audit WHERE id <= $1::bigint AND ", on_primary!(), " ORDER BY id DESC LIMIT 1");

const READING: &str = "read what was done by hand";

#[async_trait]
impl AuditStore for PostgresStore {
    async fn note(&self, audit: &Audit, action: &str, selector: &Value, count: u64) -> Result<(), StoreError> {
        if count > 0 {
            self.execute("note what was done", noting(self, audit, action, selector, count)).await?;
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
        let statement = bound(self.statement(sql), filter, span, limit);
        self.read_all(READING, statement, |row| row::audit(row, row.moment("at")?)).await
    }
}

/// The statement that notes something, for whoever runs it in the transaction that does it.
pub(super) fn noting<'q>(store: &PostgresStore, audit: &Audit, action: &'q str, selector: &Value, count: u64) -> Statement<'q> {
    let (actor, reason) = audit.stored();
    let statement = store.statement(NOTE).bind(actor).bind(reason).bind(selector.to_string());
    statement.bind(action).bind(signed(count))
}

/// A statement that does something and notes it, both or neither. Its first three parameters are actor, reason and selector.
pub(super) fn doing<'q>(store: &PostgresStore, sql: &'static str, audit: &Audit, selector: &Value) -> Statement<'q> {
    let (actor, reason) = audit.stored();
    store.statement(sql).bind(actor).bind(reason).bind(selector.to_string())
}

/// Whether such a statement has done what it was to do, to one row.
pub(super) fn done(row: &PgRow) -> Result<bool, sqlx::Error> {
    Ok(row.count::<u64>("count")? == 1)
}

/// A statement that lists audit records, with what it asks for.
pub(super) fn bound<'q>(statement: Statement<'q>, filter: &AuditFilter, span: Span, limit: u32) -> Statement<'q> {
    let Span { since, until, before } = span;
    let statement = statement.bind(filter.actor.clone()).bind(filter.action.clone()).bind(Moment(since)).bind(Moment(until));
    let statement = statement.bind(before).bind(i64::from(limit));
    match filter.selector() {
        Some(selector) => statement.bind(selector),
        None => statement,
    }
}
