//! How SQLite would run the statements that must stay fast.

use async_trait::async_trait;

use super::{Run, SqliteStore, audit, claim, dead, front, keys, lease, purge, read, route, settle};
use crate::store::row::Named;
use crate::store::{Plan, PlanStore, StoreError};

/// Each with the part of the schema that it lives on.
const STATEMENTS: [(&str, &str, &str); 18] = [
    ("read", read::READ, "outbox_event_due"),
    ("next to read", read::NEXT_TO_READ, "outbox_event_due"),
    ("read in order", read::READ_IN_ORDER, "outbox_event_due"),
    ("read the front", front::READ_FRONT, "outbox_event_open"),
    ("claim", claim::CLAIM, PRIMARY_KEY),
    ("heads of queues", keys::HEADS, "outbox_event_key"),
    ("next due", read::NEXT_DUE, "outbox_event_due"),
    ("settle", settle::DONE, PRIMARY_KEY),
    ("settle any", settle::MIXED, PRIMARY_KEY),
    ("renew", lease::RENEW, PRIMARY_KEY),
    ("purge", purge::PURGE, "outbox_event_done"),
    ("dead", dead::REPLAY_BATCH, "outbox_event_dead"),
    ("retry now", dead::RETRY_NOW, "outbox_event_open"),
    ("unpark", route::UNPARK, "outbox_event_parked"),
    ("unblock", keys::UNBLOCK, "outbox_event_behind"),
    ("audit", audit::LIST, "outbox_event_audit_at"),
    ("audit of an event", audit::LIST_OF_ONE, "outbox_event_audit_one"),
    ("audit that touches an event", audit::LIST_TOUCHING, "outbox_event_audit_many"),
];

const PRIMARY_KEY: &str = "INTEGER PRIMARY KEY";

#[async_trait]
impl PlanStore for SqliteStore {
    async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        let mut plans = Vec::with_capacity(STATEMENTS.len());
        for (statement, sql, index) in STATEMENTS {
            let explain = format!("EXPLAIN QUERY PLAN {}", self.table.sql(sql).as_str());
            // Unbound parameters are NULL: SQLite's planner does not look at values.
            let explain = sqlx::query(sqlx::AssertSqlSafe(explain));
            let lines = self.read_all("explain a statement", explain, |row| row.string("detail")).await?;
            let index = index.replace("outbox_event", self.table.as_str());
            let whole = format!("SCAN {}", self.table);
            let reads_whole_table = |line: &String| line.strip_prefix(&whole).is_some_and(|rest| !rest.contains("INDEX"));
            plans.push(Plan {
                statement,
                good: lines.iter().any(|line| line.contains(&index)) && !lines.iter().any(reads_whole_table),
                index,
                text: lines.join("\n"),
            });
        }
        Ok(plans)
    }
}
