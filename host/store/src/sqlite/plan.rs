//! How SQLite would run the statements that must stay fast.

use async_trait::async_trait;

use super::{Run, SqliteStore, audit, claim, dead, front, inspect, keys, lease, purge, read, route, settle};
use crate::row::Named;
use crate::{Index, Plan, PlanStore, StoreError};

/// Each with the part of the schema that it lives on, and with an index without which it is not run.
const STATEMENTS: [(&str, &str, &str, Option<Index>); 19] = [
    ("read", read::READ.with_payloads, "outbox_event_due", None),
    ("next to read", read::NEXT_TO_READ, "outbox_event_due", None),
    ("read in order", read::READ_IN_ORDER.with_payloads, "outbox_event_due", Some(Index::OrderedByAggregate)),
    ("read the front", front::READ_FRONT.with_payloads, "outbox_event_open", Some(Index::Ordered)),
    ("claim", claim::CLAIM, PRIMARY_KEY, None),
    ("heads of queues", keys::HEADS, "outbox_event_key", Some(Index::OrderedByAggregate)),
    ("next due", read::NEXT_DUE, "outbox_event_due", None),
    ("settle", settle::DONE, PRIMARY_KEY, None),
    ("settle any", settle::MIXED, PRIMARY_KEY, None),
    ("renew", lease::RENEW, PRIMARY_KEY, None),
    ("purge", purge::PURGE, "outbox_event_done", None),
    ("dead", dead::DEAD_ROWS, "outbox_event_dead", None),
    ("retry now", dead::WAITING_ROWS, "outbox_event_retry", None),
    ("unpark", route::UNPARK, "outbox_event_parked", None),
    ("unblock", keys::UNBLOCK, "outbox_event_behind", None),
    ("events of an aggregate", inspect::OF_AGGREGATE_NEWEST_FIRST, "outbox_event_aggregate", Some(Index::Aggregate)),
    ("audit", audit::LIST, "outbox_event_audit_at", None),
    ("audit of an event", audit::LIST_OF_ONE, "outbox_event_audit_one", None),
    ("audit that touches an event", audit::LIST_TOUCHING, "outbox_event_audit_many", None),
];

const PRIMARY_KEY: &str = "INTEGER PRIMARY KEY";

#[async_trait]
impl PlanStore for SqliteStore {
    async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        let mut plans = Vec::with_capacity(STATEMENTS.len());
        for (statement, sql, index, needs) in STATEMENTS {
            if let Some(needed) = needs
                && !super::index::exists(self, needed).await?
            {
                continue;
            }
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
