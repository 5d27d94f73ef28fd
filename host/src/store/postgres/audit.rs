//! The record of what is done by hand.

use serde_json::Value;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::row::{count, time};
use super::run::Statement;
use crate::store::{Audit, AuditRecord, StoreError};

/// $1 actor, $2 reason, $3 selector, $4 action, $5 count.
const NOTE: &str = "
INSERT INTO outbox_event_audit (at, actor, reason, selector, action, count)
VALUES (now(), $1::text, $2::text, $3::text, $4::text, $5::bigint)";

const LIST: &str =
    "SELECT at, actor, action, selector, count, reason FROM outbox_event_audit ORDER BY id DESC LIMIT $1::bigint";

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
    let (actor, reason) = audit.stored();
    let statement = bind(store.statement(sql).bind(actor).bind(reason).bind(selector.to_string()));
    let row = store.one(action, statement).await?;
    count(&row, "count").map_err(|error| store.failed(action, error))
}

pub(super) async fn list(store: &PostgresStore, limit: u32) -> Result<Vec<AuditRecord>, StoreError> {
    let action = "read what was done by hand";
    let rows = store.all(action, store.statement(LIST).bind(i64::from(limit))).await?;
    rows.iter().map(record).collect::<Result<_, _>>().map_err(|error| store.failed(action, error))
}

fn record(row: &PgRow) -> Result<AuditRecord, sqlx::Error> {
    let selector: &str = row.try_get("selector")?;
    Ok(AuditRecord {
        at: time(row, "at")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        selector: serde_json::from_str(selector).unwrap_or_else(|_| selector.into()),
        count: count(row, "count")?,
        reason: row.try_get("reason")?,
    })
}
