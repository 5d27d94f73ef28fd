//! The record of what is done by hand.

use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::row::{count, time};
use super::run::Statement;
use super::time::Moment;
use crate::store::{Audit, AuditFilter, AuditRecord, StoreError};

/// $1 actor, $2 reason, $3 selector, $4 action, $5 count.
const NOTE: &str = "
INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
VALUES (now(), $1::text, $2::text, $3::text, $4::text, $5::bigint)";

/// Nothing bound means any. $1 actor, $2 action, $3 selector, $4 earliest and $5 latest time, $6 before, $7 limit, $8 the selector of
/// the event that may have been touched.
const LIST: &str = r#"
SELECT id, at, actor, action, selector, count, reason FROM outbox_event_audit
WHERE ($1::text IS NULL OR actor = $1) AND ($2::text IS NULL OR action = $2) AND ($3::text IS NULL OR selector = $3)
  AND ($4::timestamptz IS NULL OR at >= $4) AND ($5::timestamptz IS NULL OR at <= $5) AND id < $6::bigint
  AND ($8::text IS NULL OR selector = $8
       OR (action IN ('pause', 'resume', 'replay', 'retry_now') AND selector NOT LIKE '{"event_id":%'))
ORDER BY id DESC LIMIT $7::bigint"#;

pub(super) async fn note(
    store: &PostgresStore,
    audit: &Audit,
    action: &str,
    selector: &Value,
    count: u64,
) -> Result<(), StoreError> {
    if count == 0 {
        return Ok(());
    }
    store.execute("note what was done", noting(store, audit, action, selector, count)).await?;
    Ok(())
}

/// The statement that notes something, for whoever runs it in the transaction that does it.
pub(super) fn noting<'q>(store: &PostgresStore, audit: &Audit, action: &'q str, selector: &Value, count: u64) -> Statement<'q> {
    let (actor, reason) = audit.stored();
    let statement = store.statement(NOTE).bind(actor).bind(reason).bind(selector.to_string());
    statement.bind(action).bind(i64::try_from(count).unwrap_or(i64::MAX))
}

/// Runs a statement that does something and notes it, both or neither, and answers to how many rows. Its first three
/// parameters are actor, reason and selector; what follows is bound by `bind`.
pub(super) async fn noted<'q>(
    store: &PostgresStore,
    action: &'static str,
    sql: &'static str,
    audit: &Audit,
    selector: &Value,
    bind: impl FnOnce(Statement<'q>) -> Statement<'q>,
) -> Result<u64, StoreError> {
    let row = noted_row(store, action, sql, audit, selector, bind).await?;
    count(&row, "count").map_err(|error| store.failed(action, error))
}

/// As [`noted`], for a statement that tells more than the count.
pub(super) async fn noted_row<'q>(
    store: &PostgresStore,
    action: &'static str,
    sql: &'static str,
    audit: &Audit,
    selector: &Value,
    bind: impl FnOnce(Statement<'q>) -> Statement<'q>,
) -> Result<PgRow, StoreError> {
    let (actor, reason) = audit.stored();
    store.one(action, bind(store.statement(sql).bind(actor).bind(reason).bind(selector.to_string()))).await
}

pub(super) async fn list(store: &PostgresStore, filter: &AuditFilter, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
    let action = "read what was done by hand";
    let [selector, touching] = filter.selectors();
    let statement = store.statement(LIST).bind(filter.actor.clone()).bind(filter.action.clone()).bind(selector);
    let statement = statement.bind(filter.since.map(Moment)).bind(filter.until.map(Moment)).bind(filter.before());
    let rows = store.all(action, statement.bind(i64::from(limit)).bind(touching)).await?;
    rows.iter().map(record).collect::<Result<_, _>>().map_err(|error| store.failed(action, error))
}

fn record(row: &PgRow) -> Result<AuditRecord, sqlx::Error> {
    let selector: &str = row.try_get("selector")?;
    Ok(AuditRecord {
        id: count(row, "id")?,
        at: time(row, "at")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        selector: serde_json::from_str(selector).unwrap_or_else(|_| selector.into()),
        count: count(row, "count")?,
        reason: row.try_get("reason")?,
    })
}
