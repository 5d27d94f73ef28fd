//! Tables that inherit from the table of events, and partitions of it.

use outbox::store::{PurgeRequest, PurgeTarget, Severity};
use outbox::{Status, StoreError};
use support::{Harness, Postgres};

use crate::common::{expectations, write_one};

const ARCHIVE: &str = "CREATE TABLE outbox_event_archive () INHERITS (outbox_event)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_deletes_no_event_that_has_the_ctid_of_a_row_in_a_child_table() {
    let db = Postgres::fresh().await;
    let id = write_one(&db).await;
    db.execute(ARCHIVE).await;
    db.execute(
        "INSERT INTO outbox_event_archive (seq, event_type, payload, status, due_at, done_at)
         VALUES (1000000, 'Archived', '', 1, NULL, now())",
    )
    .await;
    let same_ctid =
        "SELECT count(*) FROM ONLY outbox_event AS event, outbox_event_archive AS archived WHERE archived.ctid = event.ctid";
    assert_eq!(db.number(same_ctid).await, 1);
    let target = PurgeTarget::Finished { status: Status::Done, finished_before: db.now().await };

    let purged = db.store().purge(&PurgeRequest::first(target, 10)).await.expect("purges");

    assert_eq!(purged.count, 0);
    assert!(db.store().get(id).await.expect("looks").is_some(), "it was not delivered yet");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event_archive").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn table_with_child_tables_or_partitions_is_refused() {
    let db = Postgres::fresh().await;
    db.execute(ARCHIVE).await;

    let error = db.store().check_schema().await.expect_err("another table inherits from it");
    let findings = db.store().diagnose(&expectations()).await.expect("looks");

    assert!(matches!(&error, StoreError::ChildTables { table } if table == "outbox_event"), "{error:?}");
    let schema = findings.iter().find(|finding| finding.check == "schema").expect("it is looked at");
    assert_eq!(schema.severity, Severity::Fault, "{schema:?}");
    db.execute("ALTER TABLE outbox_event_archive NO INHERIT outbox_event").await;
    db.store().check_schema().await.expect("no table inherits from it");
    db.execute(
        "ALTER TABLE outbox_event RENAME TO outbox_event_ordinary;
         CREATE TABLE outbox_event (LIKE outbox_event_ordinary) PARTITION BY RANGE (created_at)",
    )
    .await;
    let error = db.store().check_schema().await.expect_err("it is partitioned");
    assert!(matches!(error, StoreError::ChildTables { .. }), "{error:?}");
}
