//! How the server would run the statements that must stay fast.

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row};

use super::{MySqlStore, Run, audit, claim, dead, front, inspect, keys, lease, place, purge, read, route, settle};
use crate::{Index, Plan, PlanStore, StoreError};

/// Parameters of a search for all dead events.
const ANY_DEAD: [&str; 21] = {
    let mut values = ["NULL"; 21];
    values[20] = "0";
    values
};
/// The end of the year 9999, in microseconds.
const LATEST: &str = "253402300799000000";
const ROUTES: &str = "'[[\"Order\",\"OrderPlaced\"]]'";
const ONE: &str = "'{\"event_id\":\"outbox\"}'";

/// Parameters of a search by aggregate.
const OF_ONE_AGGREGATE: [&str; 33] = {
    let mut values = ["NULL"; 33];
    (values[6], values[7]) = ("'42'", "'42'");
    (values[30], values[31], values[32]) = ("0", "9223372036854775807", "50");
    values
};

/// Each with the index that it lives on, and what stands for its parameters: the server looks at values when it plans.
const STATEMENTS: [(&str, &str, &str, &[&str]); 22] = [
    ("choose the front", front::FRONT, "outbox_done", &["0", "500", "0", "500", "'host'", "500"]),
    ("read", read::READ.with_payloads, "outbox_due", &["0", "0", "0", "0", "'nobody'", "'1'", "'[1,2]'", ROUTES, "500"]),
    ("next to read", read::NEXT_TO_READ, "outbox_due", &["'nobody'", "'nobody'", "'[1,2]'", ROUTES]),
    ("read the front", front::READ_CHOSEN.with_payloads, "PRIMARY", &["'[1,2]'", "'nobody'"]),
    ("claim", claim::LOCK, "PRIMARY", &["'[[1,1],[2,1]]'", "'host'"]),
    ("place in queue", place::EARLIER, "outbox_key", &["0", "500", "1", "2"]),
    ("place in a long queue", place::PLACES, "outbox_key", &["0", "'[1]'", "'[1,2]'", "'[1]'", "500", "0"]),
    ("heads of queues", keys::HEADS, "outbox_key", &["0", "'[1,2]'"]),
    ("next due", read::NEXT_DUE, "outbox_due", &[]),
    ("settle", settle::DONE, "PRIMARY", &["'[[1,1],[2,1]]'"]),
    ("settle any", settle::MIXED, "PRIMARY", &["'[{\"seq\":1,\"fence\":1,\"kind\":\"retry\",\"number\":0}]'"]),
    ("renew", lease::RENEW, "PRIMARY", &["'[[1,1],[2,1]]'", "30000000"]),
    ("purge", purge::CHOOSE, "outbox_done", &["1", "0", "0", "'1,2'", "500"]),
    ("dead", dead::DEAD_ROWS, "outbox_dead", &ANY_DEAD),
    ("retry now", dead::CHOOSE_FAILED, "outbox_done", &["0", "NULL", "NULL", "500"]),
    ("retry put off", dead::CHOOSE_PUT_OFF, "outbox_done", &["0", "500", "NULL", "NULL", "500"]),
    ("unpark", route::CHOOSE_PARKED, "outbox_parked", &[ROUTES, "REPEAT('1', 256)", "500"]),
    ("unblock", keys::WAITING, "outbox_behind", &["127", "'[1,2]'"]),
    ("events of an aggregate", inspect::LIST_NEWEST_FIRST, "outbox_aggregate", &OF_ONE_AGGREGATE),
    ("audit", audit::LIST, "outbox_audit_at", &["0", LATEST, LATEST, "500", "NULL", "NULL", "NULL", "NULL", "50"]),
    (
        "audit of an event",
        audit::LIST_OF_ONE,
        "outbox_audit_one",
        &[ONE, "0", LATEST, LATEST, "500", "NULL", "NULL", "NULL", "NULL", "50"],
    ),
    (
        "audit that touches an event",
        audit::LIST_TOUCHING,
        "outbox_audit_many",
        &[
            ONE, "0", LATEST, LATEST, "500", "NULL", "NULL", "NULL", "NULL", "50", "0", LATEST, LATEST, "500", "NULL", "NULL",
            "NULL", "NULL", "50", "50",
        ],
    ),
];

#[async_trait]
impl PlanStore for MySqlStore {
    async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        let failed = |error| self.failed("explain a statement", error);
        let mut plans = Vec::with_capacity(STATEMENTS.len());
        // Statements whose optional index is missing are left out: FORCE INDEX would fail.
        let has_keys = super::index::exists(self, Index::OrderedByAggregate).await?;
        let has_aggregates = super::index::exists(self, Index::Aggregate).await?;
        for (statement, sql, index, values) in STATEMENTS {
            if index == "outbox_key" && !has_keys || index == "outbox_aggregate" && !has_aggregates {
                continue;
            }
            // Safe: nothing but constants and a checked table name.
            let text = format!("EXPLAIN {}", filled(self.table.sql(sql).as_str(), values));
            let rows = sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(&self.pool).await.map_err(failed)?;
            let steps = rows.iter().map(step).collect::<Result<Vec<_>, _>>().map_err(failed)?;
            plans.push(Plan {
                statement,
                index: index.to_owned(),
                good: is_good(&steps, self.table.as_str(), index),
                text: steps.iter().map(|step| step.text.as_str()).collect::<Vec<_>>().join("\n"),
            });
        }
        Ok(plans)
    }
}

/// The statement with its parameters put in, in order; a statement with more of them than values keeps the last.
fn filled(sql: &str, values: &[&str]) -> String {
    let mut parts = sql.split('?');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for (index, part) in parts.enumerate() {
        text.push_str(values.get(index).copied().unwrap_or("500"));
        text.push_str(part);
    }
    text
}

/// One line of EXPLAIN.
struct Step {
    table: String,
    access: String,
    key: String,
    text: String,
}

fn step(row: &MySqlRow) -> Result<Step, sqlx::Error> {
    let text = |name: &str| Ok::<_, sqlx::Error>(row.try_get_unchecked::<Option<String>, _>(name)?.unwrap_or_default());
    let (table, access, key, extra) = (text("table")?, text("type")?, text("key")?, text("Extra")?);
    let rows = text("rows")?;
    let said = format!("{table}: {access} {key}, {rows} rows, {extra}");
    Ok(Step { table, access, key, text: said })
}

/// A look at one end of an index is answered while planning, and named by no key.
fn is_good(steps: &[Step], table: &str, index: &str) -> bool {
    let ours: Vec<&Step> = steps.iter().filter(|step| [table, "earlier", "ours"].contains(&step.table.as_str())).collect();
    let answered = steps.iter().any(|step| step.text.contains("optimized away") || step.text.contains("min/max row"));
    answered
        || (ours.iter().any(|step| step.key == index)
            && ours.iter().all(|step| !step.access.eq_ignore_ascii_case("ALL") && !step.access.eq_ignore_ascii_case("index")))
}
