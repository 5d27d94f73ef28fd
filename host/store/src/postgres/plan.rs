//! How PostgreSQL would run the statements that must stay fast.

use async_trait::async_trait;
use outbox_event::time::Timestamp;
use sqlx::AssertSqlSafe;

use super::run::Statement;
use super::{PostgresStore, Run, audit, claim, dead, effects, front, inspect, keys, lease, purge, read, route, settle};
use crate::row::Named;
use crate::{AuditFilter, Filter, Index, Plan, PlanStore, StoreError};

/// Each with its index, and with an index without which it is not run.
const STATEMENTS: [(&str, &str, &str, Option<Index>); 24] = [
    ("read", read::READ.with_payloads, "outbox_event_due", None),
    ("next to read", read::NEXT_TO_READ, "outbox_event_due", None),
    ("read in order", read::READ_IN_ORDER.with_payloads, "outbox_event_due", Some(Index::OrderedByAggregate)),
    ("what a read in order waits for", read::READ_IN_ORDER.with_payloads, "outbox_event_key", Some(Index::OrderedByAggregate)),
    ("read the front", front::READ_FRONT.with_payloads, "outbox_event_open", Some(Index::Ordered)),
    ("claim", claim::CLAIM, "outbox_event_pkey", None),
    ("heads of queues", keys::HEADS, "outbox_event_key", Some(Index::OrderedByAggregate)),
    ("next due", read::NEXT_DUE, "outbox_event_due", None),
    ("settle", settle::DONE, "outbox_event_pkey", None),
    ("settle any", settle::MIXED, "outbox_event_pkey", None),
    ("lock for outcomes", settle::LOCK, "outbox_event_pkey", None),
    ("lock for effects", effects::HELD, "outbox_event_pkey", None),
    ("renew", lease::RENEW, "outbox_event_pkey", None),
    ("purge", purge::PURGE, "outbox_event_done", None),
    ("dead", dead::DEAD_ROWS, "outbox_event_dead", None),
    ("retry now", dead::WAITING_ROWS, "outbox_event_retry", None),
    ("unpark", route::UNPARK, "outbox_event_parked", None),
    ("unblock", keys::UNBLOCK, "outbox_event_behind", None),
    ("blockers", keys::BLOCKERS, "outbox_event_behind", None),
    ("first behind", keys::FIRSTS, "outbox_event_behind", None),
    ("events of an aggregate", inspect::LIST_NEWEST_FIRST, "outbox_event_aggregate", Some(Index::Aggregate)),
    ("audit", audit::LIST, "outbox_event_audit_at", None),
    ("audit of an event", audit::LIST_OF_ONE, "outbox_event_audit_one", None),
    ("audit that touches an event", audit::LIST_TOUCHING, "outbox_event_audit_many", None),
];

/// As many rows as the host takes at a time.
const BATCH: i64 = 500;

#[async_trait]
impl PlanStore for PostgresStore {
    async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        let mut plans = Vec::with_capacity(STATEMENTS.len());
        for (name, sql, index, needs) in STATEMENTS {
            if let Some(needed) = needs
                && !super::index::is_valid(self, needed).await?
            {
                continue;
            }
            // Safe: a statement of this store with a word before it.
            let explain = sqlx::query(AssertSqlSafe(format!("EXPLAIN {}", self.table.sql(sql).as_str())));
            let lines = self.read_all("explain a statement", bound(name, explain), |row| row.string("QUERY PLAN")).await?;
            plans.push(judged(self, name, index, &lines));
        }
        Ok(plans)
    }
}

/// Values as the host would bind them: the planner looks at them.
fn bound<'q>(name: &str, statement: Statement<'q>) -> Statement<'q> {
    const LEASE: i64 = 30_000_000;
    const NAME: &str = "outbox";
    let numbers: Vec<i64> = (1..=BATCH).collect();
    let many = numbers.len();
    match name {
        "next to read" => statement.bind(NAME).bind(vec![1_i64, 2]).bind(vec![NAME]).bind(vec![NAME]),
        "read" => bound("read what is due", statement).bind(vec![NAME]).bind(vec![NAME]),
        "read what is due" => statement
            .bind(NAME)
            .bind(BATCH)
            .bind(i64::MAX)
            .bind(0_i64)
            .bind((0..256).collect::<Vec<i16>>())
            .bind(None::<super::time::Moment>)
            .bind(None::<i64>)
            .bind(numbers),
        "read in order" | "what a read in order waits for" => {
            let statement = bound("read what is due", statement);
            statement.bind(keys::waited_for(crate::WaitsFor::Unresolved)).bind(vec![1_i64, 2])
        }
        "read the front" => statement.bind(NAME).bind(BATCH).bind(i64::MAX).bind(0_i64).bind(Vec::<i64>::new()),
        "claim" => statement.bind(NAME).bind(LEASE).bind(numbers.clone()).bind(numbers),
        "heads of queues" => statement.bind(numbers).bind(keys::waited_for(crate::WaitsFor::Unresolved)),
        "settle" | "lock for effects" => statement.bind(numbers.clone()).bind(numbers).bind(vec![NAME; many]),
        "lock for outcomes" => statement.bind(numbers),
        "settle any" => {
            let names = vec![NAME; many];
            let statement = statement.bind(numbers.clone()).bind(numbers.clone()).bind(names.clone()).bind(vec!["retry"; many]);
            statement.bind(numbers).bind(names.clone()).bind(vec![0_i16; many]).bind(names)
        }
        "renew" => statement.bind(numbers.clone()).bind(numbers).bind(LEASE),
        "purge" => {
            let statement = statement.bind(1_i16).bind(super::time::Moment(Timestamp::from_micros(LEASE)));
            statement.bind(None::<super::time::Moment>).bind(vec![1_i64, 2]).bind(BATCH)
        }
        "dead" => {
            let statement = statement.bind(None::<&str>).bind(None::<&str>).bind(None::<&str>).bind(None::<&str>);
            let statement = statement.bind(None::<&str>).bind(None::<i32>);
            statement.bind(None::<super::time::Moment>).bind(None::<super::time::Moment>).bind(0_i64).bind(BATCH)
        }
        "retry now" => statement.bind(None::<i32>).bind(0_i64).bind(BATCH),
        "unpark" => statement.bind(vec![NAME]).bind(vec![NAME]).bind(BATCH).bind(NAME).bind(None::<Vec<i16>>),
        "unblock" => statement.bind(numbers).bind(BATCH),
        "blockers" => statement.bind((0..256).collect::<Vec<i16>>()).bind(0_i64).bind(BATCH),
        "first behind" => statement.bind(numbers),
        "events of an aggregate" => {
            let filter = Filter { aggregate_id: Some(NAME.to_owned()), newest_first: true, ..Filter::default() };
            inspect::bound(statement, &filter, 50)
        }
        "audit" => audited(statement, &AuditFilter::default()),
        "audit of an event" | "audit that touches an event" => {
            audited(statement, &AuditFilter { touching: NAME.parse().ok(), ..AuditFilter::default() })
        }
        _ => statement,
    }
}

fn audited<'q>(statement: Statement<'q>, filter: &AuditFilter) -> Statement<'q> {
    audit::bound(statement, filter, filter.span(None).expect("the first page is never empty"), 50)
}

fn judged(store: &PostgresStore, statement: &'static str, index: &str, lines: &[String]) -> Plan {
    // Names are not quoted in statements, so the server knows them in lower case.
    let table = store.table.as_str().to_ascii_lowercase();
    let index = store.table.unqualified(index).to_ascii_lowercase();
    let whole = format!("Seq Scan on {table}");
    let reads_whole =
        lines.iter().filter_map(|line| line.split_once(&whole)).any(|(_, rest)| rest.is_empty() || rest.starts_with(' '));
    // The whole of the primary key, compared row by row.
    let by_key = format!("using {} on ", store.table.unqualified("outbox_event_pkey").to_ascii_lowercase());
    let has_condition = |at: usize| lines.get(at + 1).is_some_and(|line| line.contains("Index Cond:"));
    let walks_key = lines.iter().enumerate().any(|(at, line)| line.contains(&by_key) && !has_condition(at));
    // A bitmap would mean that all matching rows are read before the first is taken.
    let using = format!("using {index} on ");
    let uses_index = lines.iter().any(|line| line.contains(&using));
    Plan { statement, good: uses_index && !reads_whole && !walks_key, index, text: lines.join("\n") }
}
