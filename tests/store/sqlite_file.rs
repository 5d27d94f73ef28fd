//! What can be wrong with a file. Only SQLite has one.
use std::path::{Path, PathBuf};
use std::task::Poll;

use outbox::event::Status;
use outbox::store::sqlite::SqliteOptions;
use outbox::store::{DoctorStore, InspectStore, NewRow, PurgeRequest, PurgeTarget, SchemaStore, Severity};
use outbox::time::Timestamp;
use outbox::{Outbox, SqliteStore, StoreError, TransactionalStore};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor};
use support::{Harness, Sqlite};

use crate::common::{claim, claim_due, expectations, ownership, plain, plains, write, write_one};

/// The error that names the file and says why.
async fn refused(options: SqliteOptions) -> (String, String) {
    match SqliteStore::open_with(options).await.expect_err("cannot be opened") {
        StoreError::Unreachable { database, why, .. } => (database, why),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_is_not_made_by_mistake() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("mispelt.db");

    let (database, why) = refused(SqliteOptions::new(&file)).await;

    assert!(database.ends_with("mispelt.db") && why.contains("does not exist"), "{database}: {why}");
    assert!(!file.exists());
}

#[tokio::test]
async fn a_directory_is_no_database() {
    let directory = tempfile::tempdir().expect("a temporary directory");

    let (_, why) = refused(SqliteOptions::new(directory.path()).create(true)).await;

    assert!(why.contains("it is a directory"), "{why}");
}

#[tokio::test]
async fn a_file_in_a_directory_that_is_not_there_says_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");

    let (_, why) = refused(SqliteOptions::new(directory.path().join("no/such/outbox.db")).create(true)).await;

    assert!(why.contains("no/such does not exist"), "{why}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_as_it_is() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("letter.txt");
    let letter = "Dear Sir or Madam, ".repeat(500);
    std::fs::write(&file, &letter).expect("written");

    let (_, why) = refused(SqliteOptions::new(&file)).await;

    assert!(why.contains("not a SQLite database"), "{why}");
    assert_eq!(std::fs::read_to_string(&file).expect("read"), letter);
}

#[test]
fn an_address_says_what_is_wrong_with_it() {
    for (url, hint) in [
        ("postgres://localhost/x", "sqlite:outbox.db"),
        ("sqlite::memory:", "would lose its events"),
        ("sqlite:", "would lose its events"),
        ("sqlite:x.db?mode=memory", "mode=rw"),
    ] {
        let error = SqliteOptions::from_url(url).err().expect("refused").to_string();
        assert!(error.contains(hint), "{url}: {error}");
    }
    let options = SqliteOptions::from_url("sqlite:///var/lib/outbox.db?mode=rwc").expect("good");
    assert_eq!((options.file.to_str(), options.create), (Some("/var/lib/outbox.db"), true));
}

#[tokio::test]
async fn a_file_whose_text_is_utf_16_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("shop.db");
    let connect = SqliteConnectOptions::new().filename(&file).create_if_missing(true).pragma("encoding", "'UTF-16'");
    let mut shop = connect.connect().await.expect("opens");
    shop.execute("CREATE TABLE shop (name TEXT)").await.expect("creates");
    shop.close().await.expect("closes");
    let store = SqliteStore::open_with(SqliteOptions::new(&file)).await.expect("opens");

    for refused in [store.check_schema().await, store.migrate_up().await.map(drop)] {
        let error = refused.expect_err("its text is UTF-16");
        assert!(matches!(&error, StoreError::Unreachable { why, .. } if why.contains("UTF-16")), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_another_program_is_transient_and_everything_works_after_it() {
    let db = Sqlite::fresh().await;
    let id = write_one(&db).await;
    let store = db.impatient_store().await;
    let mut other = db.other_program().acquire().await.expect("a connection");
    other.execute("BEGIN EXCLUSIVE").await.expect("locks");

    let error = claim_due(&store, 1).await.expect_err("locked");

    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    assert!(error.is_transient());
    assert!(error.to_string().contains("locked by another program"), "{error}");
    assert!(outbox::store::InspectStore::get(&store, id).await.expect("reading goes on").is_some());
    assert!(store.begin().await.is_err(), "no transaction begins either");
    other.execute("COMMIT").await.expect("unlocks");
    assert_eq!(claim_due(&store, 1).await.expect("works again").len(), 1);
    assert!(SqliteStore::is_in_transaction(store.begin().await.expect("works again").as_mut()));
}

/// The store has one connection that writes, so what is set on it holds for every later write.
async fn set_on_the_writer(store: &SqliteStore, pragma: &'static str) {
    let mut transaction = store.begin().await.expect("begins");
    let connection: &mut sqlx::SqliteConnection = transaction.as_mut();
    connection.execute(pragma).await.expect("set");
    SqliteStore::commit(transaction).await.expect("commits");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_takes_no_writes_says_so_and_is_still_read() {
    let db = Sqlite::fresh().await;
    let id = write_one(&db).await;
    set_on_the_writer(&db.sqlite(), "PRAGMA query_only = ON").await;

    let error = claim_due(&*db.store(), 1).await.expect_err("read-only");

    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    assert!(error.is_transient() && error.to_string().contains("make the file and its directory writable"), "{error}");
    assert!(db.store().get(id).await.expect("reading goes on").is_some());
    assert_eq!(db.store().stats().await.expect("counting goes on").new, 1);
    let found = db.store().diagnose(&expectations()).await.expect("looks");
    let writable = found.iter().find(|finding| finding.check == "writable").expect("it is looked at");
    assert!(writable.severity == Severity::Fault && writable.found.contains("may not write to"), "{writable:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_changes_nothing_to_find_whether_it_may_write() {
    let db = Sqlite::fresh().await;
    db.execute("PRAGMA user_version = 7").await;

    let found = db.store().diagnose(&expectations()).await.expect("looks");

    assert!(found.iter().any(|finding| finding.check == "writable" && finding.severity == Severity::Good), "{found:?}");
    assert_eq!(db.number("SELECT user_version FROM pragma_user_version").await, 7);
    let locked = db.sqlite().begin().await.expect("begins");
    let found = db.impatient_store().await.diagnose(&expectations()).await.expect("looks");
    drop(locked);
    assert!(found.iter().any(|finding| finding.check == "writable" && finding.severity == Severity::Warning), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_a_write_whole_and_works_again_after() {
    let db = Sqlite::fresh().await;
    write_one(&db).await;
    // The pages that it has now, and no more: what SQLite says of a full disk.
    set_on_the_writer(&db.sqlite(), "PRAGMA max_page_count = 1").await;
    let envelopes = plains(&db, 2_000).await;
    let rows: Vec<_> = envelopes.iter().map(|envelope| outbox::store::NewRow { envelope, claimed: false }).collect();

    let error = db.store().write(&rows, &crate::common::ownership()).await.expect_err("full");

    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(error.is_transient() && error.to_string().contains("no space is left"), "{error}");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 1, "all or nothing");
    set_on_the_writer(&db.sqlite(), "PRAGMA max_page_count = 1000000").await;
    write(&db, &envelopes).await;
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 2_001);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_a_task_that_is_cut_off_does_not_poison_the_store() {
    let db = Sqlite::fresh().await;
    let store = db.sqlite();

    for (polls, when) in (1..).flat_map(|polls| [(polls, CutOff::AtOnce), (polls, CutOff::WhenWoken)]) {
        let begun = cut_off_after(polls, when, store.begin()).await.is_some();
        let id = support::in_time("the store goes on", write_one(&db)).await;
        assert_eq!(support::in_time("claims go on", claim(&db, 10)).await.len(), 1, "cut off {when:?} after {polls} polls");
        let mut transaction = support::in_time("begins", store.begin()).await.expect("begins");
        assert!(SqliteStore::is_in_transaction(transaction.as_mut()));
        let connection: &mut sqlx::SqliteConnection = transaction.as_mut();
        connection.execute("DELETE FROM outbox_event").await.expect("deletes");

        let committed = cut_off_after(polls, when, SqliteStore::commit(transaction)).await;
        assert!(committed.as_ref().is_none_or(Result::is_ok), "{committed:?}");

        // Whether its caller waited for it or not, the commit goes to its end.
        support::eventually("the row is gone", async || {
            outbox::store::InspectStore::get(&store, id).await.expect("reads").is_none()
        })
        .await;
        if begun && committed.is_some() {
            assert!(polls > 1, "both wait at least once, so that something was cut off");
            break;
        }
    }
}

/// When a future is dropped after its last poll.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CutOff {
    /// While it waits.
    AtOnce,
    /// When what it waited for is there, which nobody will take.
    WhenWoken,
}

/// Polls a future this many times at most, then drops it: `None` when it had not ended by then.
async fn cut_off_after<T>(polls: u32, when: CutOff, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (Box::pin(future), polls);
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 && when == CutOff::AtOnce => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_store_says_so() {
    let db = Sqlite::fresh().await;
    db.store().close().await;

    let error = claim_due(&*db.store(), 1).await.expect_err("closed");

    assert!(matches!(error, StoreError::Closed { .. }), "{error:?}");
    assert!(!error.is_transient());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_were_committed_are_there_for_the_next_process() {
    let db = Sqlite::fresh().await;
    let id = write_one(&db).await;

    let next = db.second_store(db.clock().clone()).await;

    assert!(outbox::store::InspectStore::get(&next, id).await.expect("reads").is_some());
}

/// A service that only writes has no host that would notice.
#[tokio::test]
async fn nothing_is_written_to_a_file_that_was_deleted_or_moved() {
    let db = Sqlite::fresh().await;
    let elsewhere = db.file().with_file_name("elsewhere.db");
    std::fs::rename(db.file(), &elsewhere).expect("moved");

    let written = db.store().write(&[NewRow { envelope: &plain(&db).await, claimed: false }], &ownership()).await;

    assert!(
        matches!(&written, Err(StoreError::Moved { why, .. }) if why.contains("moved, deleted or replaced")),
        "{written:?}"
    );
    let finished = PurgeTarget::Finished { status: Status::Done, finished_before: Timestamp::from_micros(i64::MAX) };
    let all = PurgeRequest::first(finished, 10);
    assert!(matches!(db.store().purge(&all).await, Err(StoreError::Moved { .. })), "nor is anything deleted");
    std::fs::rename(&elsewhere, db.file()).expect("put back");
    write_one(&db).await;
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 1);
}

#[tokio::test]
async fn nothing_is_committed_to_a_file_that_was_moved_since_the_transaction_began() {
    let db = Sqlite::fresh().await;
    let elsewhere = db.file().with_file_name("elsewhere.db");
    let store = SqliteStore::open_with(SqliteOptions::new(db.file())).await.expect("opens");
    let outbox = Outbox::writer_only(store).start().await.expect("starts");
    let mut transaction = outbox.writer().begin().await.expect("begins");
    transaction.write_json("Moved", &1).await.expect("it stands there still");

    std::fs::rename(db.file(), &elsewhere).expect("moved");
    let error = transaction.commit().await.expect_err("nobody would see it").to_string();

    assert!(error.contains("moved, deleted or replaced"), "{error}");
    std::fs::rename(&elsewhere, db.file()).expect("put back");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event").await, 0, "it was rolled back");
}

/// A connection to the other file would stay in the pool.
#[tokio::test]
async fn a_file_that_stood_there_for_a_while_is_not_read_when_the_first_one_is_back() {
    let (db, other) = (Sqlite::fresh().await, Sqlite::fresh().await);
    write_one(&db).await;
    let store = SqliteStore::open_with(SqliteOptions::new(db.file())).await.expect("opens");
    let files = |of: &Path| ["", "-wal", "-shm"].map(|suffix| PathBuf::from(format!("{}{suffix}", of.display())));
    let (here, elsewhere) = (files(db.file()), files(&db.file().with_file_name("elsewhere.db")));
    here.iter().zip(&elsewhere).for_each(|(from, to)| std::fs::rename(from, to).expect("moved"));
    for (to, from) in here.iter().zip(&files(other.file())) {
        std::fs::copy(from, to).expect("copied");
    }
    // Each at the same time needs a connection of its own.
    let counts = || async { tokio::join!(store.stats(), store.stats(), store.stats(), store.stats()) };

    let (a, b, c, d) = counts().await;

    assert!([a, b, c, d].iter().all(|stats| matches!(stats, Err(StoreError::Moved { .. }))));
    for file in &here {
        std::fs::remove_file(file).expect("removed");
    }
    here.iter().zip(&elsewhere).for_each(|(to, from)| std::fs::rename(from, to).expect("put back"));
    let (a, b, c, d) = counts().await;
    assert_eq!([a, b, c, d].map(|stats| stats.expect("counts").new), [1; 4]);
}

#[tokio::test]
async fn no_file_is_made_beside_the_log_of_one_that_was_moved_away() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (file, moved) = (directory.path().join("outbox.db"), directory.path().join("moved.db"));
    let running = SqliteStore::open_with(SqliteOptions::new(&file).create(true)).await.expect("opens");
    running.migrate_up().await.expect("migrates");
    std::fs::rename(&file, &moved).expect("moved under a host");

    for options in [SqliteOptions::new(&file), SqliteOptions::new(&file).create(true)] {
        let (_, why) = refused(options).await;
        assert!(why.contains("outbox.db-wal does") && why.contains("put the file back"), "{why}");
    }

    assert!(!file.exists());
    std::fs::rename(&moved, &file).expect("put back");
    let again = SqliteStore::open_with(SqliteOptions::new(&file)).await.expect("nothing is lost");
    again.check_schema().await.expect("what was in the log is there");
}
