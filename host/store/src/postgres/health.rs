//! What `outbox doctor` looks at in the tables and in what keeps them from being cleaned.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{PostgresStore, Run};
use crate::doctor::{GRANT, missing_index};
use crate::row::Named;
use crate::{Finding, Index, StoreError};

const INDEXES: [&str; 7] = [
    "outbox_event_pkey",
    "outbox_event_due",
    "outbox_event_done",
    "outbox_event_dead",
    "outbox_event_parked",
    "outbox_event_behind",
    "outbox_event_retry",
];

/// What a host needs of each table.
const RIGHTS: [(&str, &[&str]); 9] = [
    ("outbox_event", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("outbox_event_route", &["SELECT", "INSERT", "UPDATE"]),
    ("outbox_event_pause", &["SELECT", "INSERT", "DELETE"]),
    ("outbox_event_node", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("outbox_event_partition", &["SELECT", "UPDATE"]),
    ("outbox_event_state", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
    ("outbox_event_state_usage", &["SELECT", "INSERT", "UPDATE"]),
    ("outbox_event_audit", &["SELECT", "INSERT"]),
    ("outbox_event_migration", &["SELECT"]),
];

/// Those of a table's columns that are not there; nothing when the table is not. $1 the columns.
const MISSING_COLUMNS: &str = "
SELECT wanted.name FROM unnest($1::text[]) AS wanted (name)
WHERE to_regclass('outbox_event') IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM pg_attribute
                  WHERE attrelid = to_regclass('outbox_event') AND attname = wanted.name AND NOT attisdropped)";

const COLUMNS: [&str; 33] = [
    "seq",
    "event_id",
    "event_type",
    "aggregate_type",
    "aggregate_id",
    "tenant_id",
    "headers",
    "content_type",
    "payload",
    "status",
    "attempts",
    "deferrals",
    "claims",
    "starts",
    "claim_seq",
    "replays",
    "occurred_at",
    "created_at",
    "available_at",
    "due_at",
    "expires_at",
    "done_at",
    "parked",
    "behind",
    "blocks",
    "locked_by",
    "locked_at",
    "lease_end",
    "last_error",
    "wait_reason",
    "wait_since",
    "last_cost",
    "partition_id",
];

/// The table's indexes by name, and whether each can be used; without those that are being built.
const VALID_INDEXES: &str = "
SELECT relname::text AS name, indisvalid AND indisready AS valid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = 'outbox_event'::regclass
  AND NOT EXISTS (SELECT 1 FROM pg_stat_progress_create_index AS building WHERE building.index_relid = indexrelid)";

/// $1 tables, $2 rights, pair by pair.
const MISSING_RIGHTS: &str = "
SELECT wanted.name AS name, wanted.granted AS granted FROM unnest($1::text[], $2::text[]) AS wanted (name, granted)
WHERE to_regclass(wanted.name) IS NOT NULL AND NOT has_table_privilege(to_regclass(wanted.name), wanted.granted)";

/// The policies that apply to this user, and the user; no row if row-level security does not apply to it.
const ROW_SECURITY: &str = "
SELECT (SELECT coalesce(string_agg(quote_ident(polname), ', ' ORDER BY polname), '') FROM pg_policy
        WHERE polrelid = 'outbox_event'::regclass
          AND EXISTS (SELECT FROM unnest(polroles) AS granted (role_id) WHERE role_id = 0 OR pg_has_role(role_id, 'USAGE'))) AS policies,
       quote_ident(current_user) AS name
WHERE row_security_active('outbox_event'::regclass::oid)";

/// Every row of the statistics, or none on a server that does not count.
const BLOAT: &str = "
SELECT n_dead_tup AS dead, n_live_tup AS live,
       coalesce(to_char(greatest(last_autovacuum, last_vacuum), 'YYYY-MM-DD HH24:MI TZ'), 'never') AS cleaned
FROM pg_stat_all_tables WHERE relid = 'outbox_event'::regclass";

/// What keeps dead rows from being cleaned: transactions, prepared transactions, replication slots.
const HORIZON: &str = "
SELECT coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::bigint FROM pg_stat_activity
                 WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()), 0) AS oldest,
       (SELECT pid FROM pg_stat_activity
        WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        ORDER BY xact_start LIMIT 1) AS pid,
       (SELECT min(gid) FROM pg_prepared_xacts WHERE prepared < now() - interval '10 minutes') AS prepared,
       (SELECT min(slot_name)::text FROM pg_replication_slots
        WHERE greatest(age(xmin), age(catalog_xmin)) > 1000000) AS slot";

/// Dead rows below this number are the daily bread of a queue.
const DEAD_ROWS: i64 = 50_000;
/// A transaction that is open for longer keeps the table from being cleaned, in seconds.
const LONG: i64 = 600;

/// A table of that name that somebody else made.
pub(super) async fn columns(store: &PostgresStore) -> Result<Option<Finding>, StoreError> {
    let statement = store.statement(MISSING_COLUMNS).bind(COLUMNS.to_vec());
    let missing = store.read_all("look at the table's columns", statement, |row| row.string("name")).await?;
    Ok((!missing.is_empty()).then(|| {
        Finding::fault(
            "columns",
            format!("there is a table {} that outbox did not make: it lacks {}", store.table, missing.join(", ")),
            "give the outbox another table name, or rename that table",
        )
    }))
}

/// Indexes, rights, policies, dead rows and sequences.
pub(super) async fn table(store: &PostgresStore) -> Result<Vec<Finding>, StoreError> {
    let mut findings = indexes(store).await?;
    findings.push(rights(store).await?);
    findings.push(row_security(store).await?);
    findings.extend(bloat(store).await?);
    Ok(findings)
}

async fn indexes(store: &PostgresStore) -> Result<Vec<Finding>, StoreError> {
    let index = |row: &PgRow| Ok((row.string("name")?, row.try_get("valid")?));
    let found: Vec<(String, bool)> = store.read_all("look for the indexes", store.statement(VALID_INDEXES), index).await?;
    let mut findings = Vec::new();
    for index in [Index::Aggregate, Index::Ordered, Index::OrderedByAggregate] {
        let name = store.index_name(index);
        if found.iter().any(|(known, is_valid)| *known == name && !is_valid) {
            let fix = format!("outbox migrate add-index {}", index.as_str());
            findings.push(Finding::fault(
                "indexes",
                format!("the index {name} was not built to its end, so no statement uses it"),
                fix,
            ));
        }
    }
    for index in INDEXES {
        let name = store.table.unqualified(index).to_ascii_lowercase();
        match found.iter().find(|(known, _)| *known == name) {
            Some((_, true)) => {}
            Some((_, false)) => findings.push(Finding::fault(
                "indexes",
                format!("the index {name} was not built to its end, so the host reads the whole table again and again"),
                format!("REINDEX INDEX CONCURRENTLY {name}"),
            )),
            None => findings.push(missing_index(&name)),
        }
    }
    let all_there = || vec![Finding::good("indexes", format!("all {} are there", INDEXES.len()))];
    Ok(if findings.is_empty() { all_there() } else { findings })
}

/// What this user may not do, though a host does it.
pub(super) async fn rights(store: &PostgresStore) -> Result<Finding, StoreError> {
    let pairs = RIGHTS
        .iter()
        .flat_map(|(table, rights)| rights.iter().map(|right| (store.table.sql(table).as_str().to_owned(), *right)));
    let (tables, rights): (Vec<String>, Vec<&str>) = pairs.unzip();
    let statement = sqlx::query(MISSING_RIGHTS).bind(tables).bind(rights);
    let missing = |row: &PgRow| Ok(format!("{} on {}", row.string("granted")?, row.string("name")?));
    let missing = store.read_all("look at the rights of this user", statement, missing).await?;
    Ok(if missing.is_empty() {
        Finding::good("grants", "this user has every right that a host needs")
    } else {
        let found = format!("this user lacks {}; a program that only writes needs less", missing.join(", "));
        Finding::fault("grants", found, GRANT)
    })
}

/// Whether policies may hide rows from this user, or keep it from changing them.
async fn row_security(store: &PostgresStore) -> Result<Finding, StoreError> {
    const CHECK: &str = "row_security";
    let policies = |row: &PgRow| Ok((row.string("policies")?, row.string("name")?));
    let statement = store.statement(ROW_SECURITY);
    let found: Option<(String, String)> = store.read_optional("look for row-level policies", statement, policies).await?;
    let Some((policies, user)) = found else {
        return Ok(Finding::good(CHECK, "no row-level policy of the table applies to this user"));
    };
    let found = if policies.is_empty() {
        format!("row-level security is active on {} for the user {user}, and no policy lets it see a row", store.table)
    } else {
        format!(
            "row-level security is active on {} for the user {user} (policies: {policies}): a host of this user delivers only the events \
             that it may see, and stores no outcome of an event that it may not change",
            store.table
        )
    };
    Ok(Finding::warning(
        CHECK,
        found,
        format!("ALTER ROLE {user} BYPASSRLS, as a superuser; or let each policy admit all rows to it"),
    ))
}

async fn bloat(store: &PostgresStore) -> Result<Option<Finding>, StoreError> {
    let bloat = |row: &PgRow| Ok((row.count("dead")?, row.count("live")?, row.string("cleaned")?));
    let found: Option<(i64, i64, String)> = store.read_optional("look for dead rows", store.statement(BLOAT), bloat).await?;
    let Some((dead, live, cleaned)) = found else { return Ok(None) };
    let found = format!("{dead} dead row versions beside {live} live ones, last cleaned: {cleaned}");
    Ok(Some(if dead > DEAD_ROWS && dead > live / 2 {
        Finding::warning("bloat", found, format!("see the finding `horizon`, then run: VACUUM (ANALYZE) {}", store.table))
    } else {
        Finding::good("bloat", found)
    }))
}

/// What keeps dead rows from being cleaned.
pub(super) async fn server(store: &PostgresStore) -> Result<Vec<Finding>, StoreError> {
    let action = "look for old snapshots";
    let row = match store.one(action, sqlx::query(HORIZON)).await {
        Ok(row) => row,
        Err(StoreError::Forbidden { .. }) => {
            let found = "this user may not see what keeps dead rows from being cleaned";
            return Ok(vec![Finding::warning("horizon", found, "GRANT pg_monitor TO CURRENT_USER, as a user who may")]);
        }
        Err(error) => return Err(error),
    };
    let failed = |error| store.failed(action, error);
    let oldest: i64 = row.try_get("oldest").map_err(failed)?;
    let mut findings = Vec::new();
    let mut warn = |found: String, fix: String| findings.push(Finding::warning("horizon", found, fix));
    if oldest > LONG {
        let pid: Option<i32> = row.try_get("pid").map_err(failed)?;
        let pid = pid.unwrap_or_default();
        warn(
            format!("a transaction has been open for {oldest} s (process {pid}), so no row that died since is cleaned"),
            format!("let its program end it, or run: SELECT pg_terminate_backend({pid})"),
        );
    }
    if let Some(gid) = row.try_get::<Option<String>, _>("prepared").map_err(failed)? {
        warn(
            format!("the prepared transaction '{gid}' waits, so no row that died since is cleaned"),
            format!("COMMIT PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'"),
        );
    }
    if let Some(slot) = row.try_get::<Option<String>, _>("slot").map_err(failed)? {
        warn(
            format!("the replication slot {slot} lags far behind, so dead rows are kept for it"),
            format!("let its consumer catch up, or run: SELECT pg_drop_replication_slot('{slot}')"),
        );
    }
    let good = || vec![Finding::good("horizon", format!("the oldest open transaction began {oldest} s ago"))];
    Ok(if findings.is_empty() { good() } else { findings })
}
