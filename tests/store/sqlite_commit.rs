//! A COMMIT that fails on SQLite. As on a full disk, SQLite has then rolled back by itself.
use outbox::store::{DoctorStore, InspectStore, NewRow, SchemaStore, Severity, WriteStore};
use outbox::{Envelope, SqliteStore, StoreError, TransactionalStore};
use sqlx::sqlite::{SqliteConnection, SqlitePoolOptions};
use support::{Harness, Sqlite};

use crate::common::{expectations, ownership, plain};

/// Makes each later COMMIT of this connection fail.
async fn refuse_commits(connection: &mut SqliteConnection) {
    connection.lock_handle().await.expect("the connection is open").set_commit_hook(|| false);
}

/// Inserts an event in a transaction whose COMMIT fails.
async fn fail_a_commit(store: &SqliteStore, envelope: &Envelope) {
    let mut transaction = store.begin().await.expect("begins");
    refuse_commits(transaction.as_mut()).await;
    let rows = [NewRow { envelope, claimed: false }];
    store.insert(transaction.as_mut(), &rows, &ownership()).await.expect("inserts");

    let error = SqliteStore::commit(transaction).await.expect_err("the hook refuses it");

    assert!(matches!(error, StoreError::Failed { .. }), "{error:?}");
}

async fn write(store: &SqliteStore, envelope: &Envelope) {
    store.write(&[NewRow { envelope, claimed: false }], &ownership()).await.expect("writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_writes_again_after_a_failed_commit() {
    const COUNT: &str = "SELECT count(*) FROM outbox_event";
    let db = Sqlite::fresh().await;
    let stores = [db.sqlite(), SqliteStore::new(db.services_pool(1)), SqliteStore::new(db.services_pool(2))];
    for (store, rows) in stores.iter().zip(1..) {
        let envelope = plain(&db).await;
        fail_a_commit(store, &envelope).await;
        fail_a_commit(store, &envelope).await;
        assert_eq!(db.number(COUNT).await, rows - 1, "nothing was committed");

        write(store, &envelope).await;

        assert_eq!(db.number(COUNT).await, rows);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_in_memory_keeps_its_rows_after_a_failed_commit() {
    let options = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    let store = SqliteStore::new(options.connect("sqlite::memory:").await.expect("opens"));
    store.migrate_up().await.expect("migrates");
    let event = || Envelope::new("OrderPlaced").json(&1).expect("a good envelope");
    let (first, second) = (event(), event());
    write(&store, &first).await;
    fail_a_commit(&store, &second).await;

    write(&store, &second).await;

    assert_eq!(store.stats().await.expect("counts").new, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_finds_that_commits_fail() {
    let db = Sqlite::fresh().await;
    let store = db.sqlite();
    let mut transaction = store.begin().await.expect("begins");
    refuse_commits(transaction.as_mut()).await;
    SqliteStore::rollback(transaction).await.expect("rolls back");
    let writable = async || {
        let findings = store.diagnose(&expectations()).await.expect("looks");
        findings.into_iter().find(|finding| finding.check == "writable").expect("it is looked at")
    };

    let found = writable().await;

    assert!(found.severity == Severity::Fault && found.found.contains("nothing can be committed to"), "{found:?}");
    let found = writable().await;
    assert!(found.severity == Severity::Good, "the connection that refuses commits is replaced: {found:?}");
}
