//! What `outbox doctor` looks at in the table: how it was made, what is left of it, and who may do what with it.

use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::error::{DENIED, number};
use super::index::{self, IndexState};
use super::{MySqlStore, Run};
use crate::doctor::GRANT;
use crate::row::Named;
use crate::{Finding, StoreError};

pub(super) const ACTION: &str = "look at the database";

const INDEXES: [&str; 6] = ["outbox_id", "outbox_due", "outbox_done", "outbox_dead", "outbox_parked", "outbox_behind"];

const MADE: &str = "
SELECT CONVERT(COALESCE(engine, '') USING utf8mb4), CAST(COALESCE(data_length + index_length, 0) AS SIGNED),
       CAST(COALESCE(data_free, 0) AS SIGNED)
FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?";

const COLLATIONS: &str = "
SELECT COUNT(*) FROM information_schema.columns
WHERE table_schema = DATABASE() AND table_name = ?
  AND column_name IN ('event_id', 'event_type', 'aggregate_type', 'aggregate_id') AND collation_name <> 'utf8mb4_bin'";

/// Needs the right PROCESS, which a host need not have.
const HISTORY: &str = "SELECT COUNT FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'";

/// Beyond it, some transaction has been open too long: every read has to step over old versions of rows.
const LONG_HISTORY: i64 = 1_000_000;

/// Each touches no row; the server asks for the right before it looks.
const RIGHTS: [(&str, &str, &str); 19] = [
    ("SELECT", "outbox_event", "SELECT 1 FROM outbox_event WHERE 1 = 0"),
    ("INSERT", "outbox_event", "INSERT INTO outbox_event (event_type, payload) SELECT '', '' FROM outbox_event WHERE 1 = 0"),
    ("UPDATE", "outbox_event", "UPDATE outbox_event SET claims = claims WHERE 1 = 0"),
    ("DELETE", "outbox_event", "DELETE FROM outbox_event WHERE 1 = 0"),
    ("INSERT", "outbox_event_route", "INSERT INTO outbox_event_route SELECT * FROM outbox_event_route AS there WHERE 1 = 0"),
    ("UPDATE", "outbox_event_route", "UPDATE outbox_event_route SET first_seen_at = first_seen_at WHERE 1 = 0"),
    ("INSERT", "outbox_event_pause", "INSERT INTO outbox_event_pause SELECT * FROM outbox_event_pause AS there WHERE 1 = 0"),
    ("DELETE", "outbox_event_pause", "DELETE FROM outbox_event_pause WHERE 1 = 0"),
    ("INSERT", "outbox_event_node", "INSERT INTO outbox_event_node SELECT * FROM outbox_event_node AS there WHERE 1 = 0"),
    ("UPDATE", "outbox_event_node", "UPDATE outbox_event_node SET label = label WHERE 1 = 0"),
    ("DELETE", "outbox_event_node", "DELETE FROM outbox_event_node WHERE 1 = 0"),
    ("UPDATE", "outbox_event_partition", "UPDATE outbox_event_partition SET owner = owner WHERE 1 = 0"),
    ("INSERT", "outbox_event_state", "INSERT INTO outbox_event_state SELECT * FROM outbox_event_state AS there WHERE 1 = 0"),
    ("UPDATE", "outbox_event_state", "UPDATE outbox_event_state SET version = version WHERE 1 = 0"),
    ("DELETE", "outbox_event_state", "DELETE FROM outbox_event_state WHERE 1 = 0"),
    (
        "INSERT",
        "outbox_event_state_usage",
        "INSERT INTO outbox_event_state_usage SELECT * FROM outbox_event_state_usage AS there WHERE 1 = 0",
    ),
    ("UPDATE", "outbox_event_state_usage", "UPDATE outbox_event_state_usage SET revision = revision WHERE 1 = 0"),
    ("INSERT", "outbox_event_audit", "INSERT INTO outbox_event_audit SELECT * FROM outbox_event_audit AS there WHERE 1 = 0"),
    ("SELECT", "outbox_event_partition", "SELECT 1 FROM outbox_event_partition WHERE 1 = 0"),
];

pub(super) async fn check(store: &MySqlStore) -> Result<Vec<Finding>, StoreError> {
    let mut findings = made(store).await?;
    findings.push(collations(store).await?);
    findings.push(indexes(store).await?);
    findings.push(rights(store).await);
    findings.push(history(store).await);
    Ok(findings)
}

async fn made(store: &MySqlStore) -> Result<Vec<Finding>, StoreError> {
    let made = |row: &MySqlRow| Ok((row.try_get_unchecked(0)?, row.number(1)?, row.number(2)?));
    let statement = sqlx::query(MADE).bind(store.table.as_str());
    let (engine, used, free): (String, u64, u64) = store.read_one(ACTION, statement, made).await?;
    let engine = if engine == "InnoDB" {
        Finding::good("engine", "InnoDB: rows are locked one by one, and commits are whole")
    } else {
        Finding::fault(
            "engine",
            format!("the table is of the engine {engine}, which has no transactions"),
            format!("ALTER TABLE {} ENGINE = InnoDB", store.table),
        )
    };
    let found = format!("the table takes {} MiB, {} MiB of it free", used >> 20, free >> 20);
    let bloat = if free > 1 << 30 && free > used {
        Finding::warning("bloat", found, format!("in a quiet hour: OPTIMIZE TABLE {}", store.table))
    } else {
        Finding::good("bloat", found)
    };
    Ok(vec![engine, bloat])
}

async fn collations(store: &MySqlStore) -> Result<Finding, StoreError> {
    let statement = sqlx::query(COLLATIONS).bind(store.table.as_str());
    Ok(if store.read_one(ACTION, statement, |row| row.number(0)).await? == 0 {
        Finding::good("collation", "names are compared byte by byte")
    } else {
        Finding::fault(
            "collation",
            "some columns of names are not utf8mb4_bin: `Order` and `order` may be taken for the same, and a search for several IDs reads \
             the whole table",
            format!("ALTER TABLE {} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", store.table),
        )
    })
}

async fn indexes(store: &MySqlStore) -> Result<Finding, StoreError> {
    let (mut missing, mut hidden) = (Vec::new(), Vec::new());
    for name in INDEXES {
        match index::find(store, name).await? {
            IndexState::Missing => missing.push(name),
            IndexState::Hidden => hidden.push(name),
            IndexState::Usable => {}
        }
    }
    Ok(if !missing.is_empty() {
        let missing = missing.join(", ");
        Finding::fault(
            "indexes",
            format!("{missing} missing on {}, and statements that name it fail", store.table),
            format!("make it as `outbox migrate sql` prints it: ALTER TABLE {} ADD KEY {missing} (…)", store.table),
        )
    } else if let Some(first) = hidden.first() {
        Finding::fault(
            "indexes",
            format!("invisible or ignored on {}: {}; statements that name such an index fail", store.table, hidden.join(", ")),
            format!("ALTER TABLE {} ALTER INDEX {first} VISIBLE; on MariaDB NOT IGNORED; the same for the others", store.table),
        )
    } else {
        Finding::good("indexes", format!("all {} are there", INDEXES.len()))
    })
}

/// What this account may not do, though a host does it.
pub(super) async fn rights(store: &MySqlStore) -> Finding {
    let mut missing = Vec::new();
    for (right, table, statement) in RIGHTS {
        let denied = store.statement(statement).execute(&store.pool).await.is_err_and(|error| {
            // Anything else has a finding of its own, such as a server that is read-only.
            number(&error).is_some_and(|number| DENIED.contains(&number))
        });
        if denied {
            missing.push(format!("{right} on {}", store.table.sql(table).as_str()));
        }
    }
    if missing.is_empty() {
        Finding::good("grants", "this account may do all that a host does")
    } else {
        Finding::fault("grants", format!("this account lacks {}", missing.join(", ")), GRANT)
    }
}

async fn history(store: &MySqlStore) -> Finding {
    let row = sqlx::query(HISTORY).fetch_optional(&store.pool).await;
    match row.ok().flatten().and_then(|row| row.try_get::<i64, _>(0).ok()) {
        Some(length) if length > LONG_HISTORY => Finding::warning(
            "history",
            format!("{length} old versions of rows are kept for a transaction that is open for long"),
            "find it: SELECT * FROM information_schema.innodb_trx ORDER BY trx_started LIMIT 1; then end it: KILL its \
             trx_mysql_thread_id",
        ),
        Some(length) => Finding::good("history", format!("{length} old versions of rows are kept for open transactions")),
        None => Finding::good("history", "not looked at: this account lacks the right PROCESS"),
    }
}
