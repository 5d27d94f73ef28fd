//! The files of SQLite's sessions.

use std::path::PathBuf;

use outbox::event::OwnerId;
use outbox::sqlx::sqlite::SqlitePoolOptions;
use outbox::store::{SchemaStore, SessionStore};
use outbox::{SqliteStore, StoreError};
use support::{Harness, Sqlite};

use super::{free, held, names, serving};
use crate::common::{LEASE, MOMENT, owner};

/// Where a session of this owner has its file.
fn file(db: &Sqlite, owner: &OwnerId) -> PathBuf {
    let (_, id) = owner.as_str().rsplit_once('/').expect("a label and an id");
    let mut path = db.file().canonicalize().expect("the database is there").into_os_string();
    path.push(format!("-session-{id}"));
    path.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_a_sqlite_session_goes_with_it() {
    let db = Sqlite::fresh().await;
    let (one, two) = (owner("one"), owner("two"));
    let (ended, dropped) = (held(&db.sqlite(), &one).await, held(&db.sqlite(), &two).await);
    assert!(file(&db, &one).is_file() && file(&db, &two).is_file());

    ended.end().await;
    drop(dropped);

    assert!(!file(&db, &one).exists() && !file(&db, &two).exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_session_is_seen_through_a_link_to_the_database() {
    let db = Sqlite::fresh().await;
    let elsewhere = tempfile::tempdir().expect("a directory");
    let link = elsewhere.path().join("link.db");
    std::os::unix::fs::symlink(db.file(), &link).expect("a link");
    let linked = SqliteStore::open(&format!("sqlite:{}", link.display())).await.expect("opens");
    let one = serving(&db.sqlite(), "one", 2).await;

    let session = held(&linked, &one).await;

    assert!(free(&db.sqlite()).await.is_empty());
    assert!(file(&db, &one).is_file());
    session.end().await;
    assert_eq!(free(&db.sqlite()).await, names(&[&one]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_of_a_killed_host_is_free_and_removed_when_it_is_abandoned() {
    let db = Sqlite::fresh().await;
    let store = db.sqlite();
    let gone = serving(&store, "gone", 2).await;
    // What the process leaves: its file, without the lock, which the system took back.
    std::fs::write(file(&db, &gone), "").expect("writes");
    assert_eq!(free(&store).await, names(&[&gone]));
    assert!(file(&db, &gone).exists(), "looking removes nothing");
    let holding = std::fs::File::open(file(&db, &gone)).expect("opens");
    holding.lock().expect("locks");
    assert!(free(&store).await.is_empty());
    assert!(!store.abandon(gone.as_str()).await.expect("looks"), "it is held");
    drop(holding);

    assert!(store.abandon(gone.as_str()).await.expect("abandons"));

    assert!(!file(&db, &gone).exists());
    assert!(db.file().exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_lease_has_ended_and_whose_process_holds_its_file_is_named() {
    let db = Sqlite::fresh().await;
    let store = db.sqlite();
    let one = serving(&store, "one", 2).await;
    serving(&store, "gone", 2).await;
    let without_lease = async || store.held_without_lease().await.expect("looks");
    let session = held(&store, &one).await;
    assert!(without_lease().await.is_empty(), "its lease has not ended");

    db.let_pass(LEASE + MOMENT).await;

    assert_eq!(without_lease().await, names(&[&one]));
    session.end().await;
    assert!(without_lease().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_session_of_ours_is_neither_opened_nor_removed() {
    let db = Sqlite::fresh().await;
    let store = db.sqlite();
    let gone = serving(&store, "gone", 2).await;
    let elsewhere = tempfile::tempdir().expect("a directory");
    let precious = elsewhere.path().join("precious");
    std::fs::write(&precious, "kept").expect("writes");
    let path = file(&db, &gone);
    std::os::unix::fs::symlink(&precious, &path).expect("a link");

    assert!(free(&store).await.is_empty(), "what cannot be told is not free");
    assert!(!store.abandon(gone.as_str()).await.expect("looks"));
    let error = store.hold_session(&gone).await.err().expect("something stands there");
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    assert!(path.is_symlink());
    assert_eq!(std::fs::read_to_string(&precious).expect("reads"), "kept");
    std::fs::remove_file(&path).expect("removes");
    std::fs::create_dir(&path).expect("a directory");
    assert!(free(&store).await.is_empty() && !store.abandon(gone.as_str()).await.expect("looks") && path.is_dir());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_session_whose_file_was_taken_away_is_not_proven() {
    let db = Sqlite::fresh().await;
    let store = db.sqlite();
    let one = serving(&store, "one", 2).await;
    let mut session = held(&store, &one).await;
    session.prove().await.expect("it is there");

    std::fs::remove_file(file(&db, &one)).expect("removes");

    let error = session.prove().await.expect_err("others find nothing");
    assert!(matches!(&error, StoreError::SessionLost { why } if why.contains("outbox.db-session-")), "{error:?}");
    let mut another = held(&store, &one).await;
    session.prove().await.expect_err("it is another one's");
    session.end().await;
    another.prove().await.expect("the end of the first one touches nothing of it");
    assert!(free(&store).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_written_by_hand_leads_to_no_other_file() {
    let db = Sqlite::fresh().await;
    let store = db.sqlite();
    serving(&store, "one", 2).await;
    db.execute("UPDATE outbox_event_node SET owner = 'one/../outbox.db'").await;
    db.execute("UPDATE outbox_event_partition SET owner = 'one/../outbox.db' WHERE owner IS NOT NULL").await;

    assert!(free(&store).await.is_empty(), "its lease decides");
    assert!(!store.abandon("one/../outbox.db").await.expect("looks"));
    assert!(db.file().exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_in_memory_has_no_sessions() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.expect("opens");
    let store = SqliteStore::new(pool);
    store.migrate_up().await.expect("migrates");
    let one = serving(&store, "one", 2).await;

    assert!(store.hold_session(&one).await.expect("asks").is_none());
    assert!(free(&store).await.is_empty());
    assert!(!store.abandon(one.as_str()).await.expect("looks"));
}
