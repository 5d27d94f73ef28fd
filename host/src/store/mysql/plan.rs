//! How the server would run the statements that must stay fast.

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row};

use super::{MySqlStore, Run, audit, claim, dead, front, keys, lease, place, purge, route, settle};
use crate::store::{Plan, PlanStore, StoreError};

/// A statement, the index that it lives on, and what stands for its parameters: the server looks at values when it plans.
struct Explained {
    statement: &'static str,
    sql: &'static str,
    index: &'static str,
    values: &'static [&'static str],
}

const ANY_DEAD: [&str; 20] = ["NULL"; 20];
/// The end of the year 9999, in microseconds.
const LATEST: &str = "253402300799000000";
const ONE: &str = "'{\"event_id\":\"outbox\"}'";

const STATEMENTS: [Explained; 18] = [
    Explained { statement: "claim", sql: claim::CLAIM, index: "outbox_due", values: &["0", "500"] },
    Explained {
        statement: "claim in order",
        sql: claim::CHOOSE_IN_ORDER,
        index: "outbox_due",
        values: &["0", "'nobody'", "'1'", "500"],
    },
    Explained {
        statement: "claim the front",
        sql: front::FRONT,
        index: "outbox_done",
        values: &["0", "500", "0", "500", "'nobody'", "500"],
    },
    Explained { statement: "place in queue", sql: place::EARLIER, index: "outbox_key", values: &["0", "500", "1", "2"] },
    Explained {
        statement: "place in a long queue",
        sql: place::PLACES,
        index: "outbox_key",
        values: &["0", "'nobody'", "'[1,2]'", "500", "0", "'nobody'", "1", "2"],
    },
    Explained { statement: "heads of queues", sql: keys::HEADS, index: "outbox_key", values: &["0", "'[1,2]'"] },
    Explained { statement: "next due", sql: claim::NEXT_DUE, index: "outbox_due", values: &[] },
    Explained { statement: "settle", sql: settle::DONE, index: "PRIMARY", values: &["'[[1,1],[2,1]]'"] },
    Explained { statement: "renew", sql: lease::RENEW, index: "PRIMARY", values: &["'[[1,1],[2,1]]'", "30000000"] },
    Explained { statement: "purge", sql: purge::CHOOSE, index: "outbox_done", values: &["1", "0", "500"] },
    Explained { statement: "dead", sql: dead::CHOOSE_DEAD, index: "outbox_dead", values: &ANY_DEAD },
    Explained { statement: "retry now", sql: dead::CHOOSE_FAILED, index: "outbox_done", values: &["0", "NULL", "NULL", "500"] },
    Explained {
        statement: "retry put off",
        sql: dead::CHOOSE_PUT_OFF,
        index: "outbox_done",
        values: &["0", "500", "NULL", "NULL", "500"],
    },
    Explained {
        statement: "unpark",
        sql: route::CHOOSE_PARKED,
        index: "outbox_parked",
        values: &["'[[\"Order\",\"OrderPlaced\"]]'", "500"],
    },
    Explained { statement: "unblock", sql: keys::WAITING, index: "outbox_behind", values: &["127", "'[1,2]'"] },
    Explained {
        statement: "audit",
        sql: audit::LIST,
        index: "outbox_audit_at",
        values: &["0", LATEST, LATEST, "500", "NULL", "NULL", "NULL", "NULL", "50"],
    },
    Explained {
        statement: "audit of an event",
        sql: audit::LIST_OF_ONE,
        index: "outbox_audit_one",
        values: &[ONE, "0", LATEST, LATEST, "500", "NULL", "NULL", "NULL", "NULL", "50"],
    },
    Explained {
        statement: "audit that touches an event",
        sql: audit::LIST_TOUCHING,
        index: "outbox_audit_many",
        values: &[
            ONE, "0", LATEST, LATEST, "500", "NULL", "NULL", "NULL", "NULL", "50", "0", LATEST, LATEST, "500", "NULL", "NULL",
            "NULL", "NULL", "50", "50",
        ],
    },
];

#[async_trait]
impl PlanStore for MySqlStore {
    async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        let failed = |error| self.failed("explain a statement", error);
        let mut plans = Vec::with_capacity(STATEMENTS.len());
        for Explained { statement, sql, index, values } in STATEMENTS {
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
