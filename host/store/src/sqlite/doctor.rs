//! What `outbox doctor` looks at in a SQLite file.

use async_trait::async_trait;
use outbox_event::chain::chain;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Row};

use super::error::failed;
use super::{Run, SqliteStore, TransactionalStore};
use crate::doctor::{index, lease, missing_index, partitions, schema};
use crate::row::Named;
use crate::{DoctorStore, Expectations, Finding, SchemaStore, StoreError};

const INDEXES: [&str; 6] = [
    "outbox_event_due",
    "outbox_event_done",
    "outbox_event_dead",
    "outbox_event_parked",
    "outbox_event_behind",
    "outbox_event_retry",
];

/// Below it, a rare race between a checkpoint and a writer can damage the file.
const SAFE_VERSION: (u32, u32, u32) = (3, 51, 3);
/// Beyond it, some reader has been open too long: the write-ahead log cannot be moved into the file.
const LARGE_WAL: u64 = 256 << 20;

#[async_trait]
impl DoctorStore for SqliteStore {
    async fn diagnose(&self, expectations: &Expectations) -> Result<Vec<Finding>, StoreError> {
        let mut connection = self.writing(|error| failed("look at the database", error)).await?;
        let mut findings = vec![Finding::good("connection", format!("the file {} is open", self.file))];
        findings.push(version(&text(&mut connection, "SELECT sqlite_version()").await?));
        findings.push(journal(&text(&mut connection, "PRAGMA journal_mode").await?));
        findings.push(synchronous(number(&mut connection, "PRAGMA synchronous").await?));
        findings.push(wal(self));
        findings.push(free_pages(&mut connection).await?);
        drop(connection);
        findings.push(writable(&self.file, commit_nothing(self).await)?);
        let known = schema(self.check_schema().await)?;
        let there = known.fix.is_none();
        findings.push(known);
        if there {
            findings.push(partitions(self).await?);
            findings.extend(indexes(self).await?);
            findings.extend(index(self, expectations).await?);
        }
        findings.push(lease(expectations));
        Ok(findings)
    }
}

fn version(found: &str) -> Finding {
    let mut parts = found.split('.').map(|part| part.parse().unwrap_or(0));
    let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if number >= SAFE_VERSION {
        Finding::good("version", format!("SQLite {found}"))
    } else {
        Finding::fault(
            "version",
            format!("SQLite {found} can damage a file in WAL mode under a rare race"),
            "build outbox with the SQLite that it brings (3.51.3 or later)",
        )
    }
}

fn journal(mode: &str) -> Finding {
    if mode.eq_ignore_ascii_case("wal") {
        Finding::good("journal_mode", "WAL: readers never wait for the writer")
    } else {
        Finding::fault(
            "journal_mode",
            format!("the journal mode is {mode}, so readers and the writer lock each other out"),
            "move the file to a local file system that has shared memory; the mode is WAL there by itself",
        )
    }
}

fn synchronous(level: i64) -> Finding {
    if level >= 2 {
        Finding::good("synchronous", "FULL: a commit survives a power cut")
    } else {
        Finding::fault(
            "synchronous",
            "commits are not waited for, so a power cut can lose events that were committed",
            "do not set PRAGMA synchronous on the connection of the outbox",
        )
    }
}

fn wal(store: &SqliteStore) -> Finding {
    let bytes = std::fs::metadata(format!("{}-wal", store.file)).map_or(0, |file| file.len());
    let found = format!("the write-ahead log holds {} MiB", bytes >> 20);
    if bytes < LARGE_WAL {
        Finding::good("wal", found)
    } else {
        Finding::warning(
            "wal",
            found,
            "find the program that keeps a read transaction open on the file, and end it; or run: PRAGMA wal_checkpoint(TRUNCATE)",
        )
    }
}

/// SQLite notices only at the first write that this user may not write to the file, and only at a COMMIT that the disk is full.
fn writable(file: &str, committed: Result<(), StoreError>) -> Result<Finding, StoreError> {
    const CHECK: &str = "writable";
    match committed {
        Ok(()) => Ok(Finding::good(CHECK, "this user may write to the file, and commits succeed")),
        Err(StoreError::ReadOnly { .. }) => Ok(Finding::fault(
            CHECK,
            format!("this user may not write to {file}, so no event can be written or delivered"),
            "give this user write access to the file and its directory, or run the host as their owner",
        )),
        Err(StoreError::Locked { .. }) => Ok(Finding::warning(
            CHECK,
            format!("another program holds the lock of {file}, so writing could not be tried"),
            "find the program that keeps a transaction open on the file, and end it",
        )),
        Err(StoreError::Full { .. }) => Ok(Finding::fault(
            CHECK,
            format!("no space is left for {file}, so no event can be written or delivered"),
            "free space on its disk; the hosts continue by themselves",
        )),
        Err(error @ StoreError::Failed { source: sqlx::Error::Database(_), .. }) => Ok(Finding::fault(
            CHECK,
            format!("nothing can be committed to {file}, so no event can be written or delivered: {}", chain(&error)),
            "look for a fault of the disk, a quota, or a limit of file sizes; the hosts continue by themselves",
        )),
        Err(error) => Err(error),
    }
}

/// Commits a number in the header of the file as it is. Nothing changes, but SQLite writes it as it writes an event.
async fn commit_nothing(store: &SqliteStore) -> Result<(), StoreError> {
    let mut transaction = store.begin().await?;
    let version = number(&mut transaction, "PRAGMA user_version").await?;
    let unchanged = sqlx::raw_sql(AssertSqlSafe(format!("PRAGMA user_version = {version}")));
    unchanged.execute(&mut *transaction).await.map_err(|error| failed("look at the database", error))?;
    store.finish(transaction).await
}

async fn free_pages(connection: &mut SqliteConnection) -> Result<Finding, StoreError> {
    let free = number(connection, "PRAGMA freelist_count").await?;
    let all = number(connection, "PRAGMA page_count").await?;
    let found = format!("{free} of {all} pages are free");
    // Free pages are used again by the next events: only a file that will never be so full again is worth the work.
    Ok(if free > 25_000 && free > all / 2 {
        Finding::warning("bloat", found, "when the file should become smaller, stop the hosts and run: VACUUM")
    } else {
        Finding::good("bloat", found)
    })
}

async fn indexes(store: &SqliteStore) -> Result<Vec<Finding>, StoreError> {
    let mut missing = Vec::new();
    for index in INDEXES {
        let name = index.replace("outbox_event", store.table.as_str());
        let statement = sqlx::query(super::index::EXISTS).bind(&name);
        if store.read_one("look for the indexes", statement, |row| row.number(0)).await? == 0 {
            missing.push(missing_index(&name));
        }
    }
    Ok(if missing.is_empty() { vec![Finding::good("indexes", format!("all {} are there", INDEXES.len()))] } else { missing })
}

async fn text(connection: &mut SqliteConnection, sql: &'static str) -> Result<String, StoreError> {
    let row = sqlx::query(sql).fetch_one(connection).await;
    row.and_then(|row| row.try_get(0)).map_err(|error| failed("look at the database", error))
}

async fn number(connection: &mut SqliteConnection, sql: &'static str) -> Result<i64, StoreError> {
    let row = sqlx::query(sql).fetch_one(connection).await;
    row.and_then(|row| row.try_get(0)).map_err(|error| failed("look at the database", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_found_and_a_database_that_does_not_answer_is_an_error() {
        let full = StoreError::Full { action: "commit", source: sqlx::Error::RowNotFound };
        let finding = writable("outbox.db", Err(full)).expect("it is a finding");
        assert!(finding.fix.is_some() && finding.found.contains("no space is left for outbox.db"), "{finding:?}");

        let silent = StoreError::Failed { action: "commit", source: sqlx::Error::PoolTimedOut };
        assert!(writable("outbox.db", Err(silent)).is_err());
    }
}
