//! Receipts whose owner says nothing, or late.

use std::time::{Duration, Instant};

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::{NewRow, Ownership};
use outbox::writer::{HookError, WriterHook};
use outbox::{Envelope, Outbox, Status, TransactionalStore};
use support::{Database, Recorder, Sqlite, eventually};

use crate::bulk::long_lease;
use crate::common::{HOUR, ROUTE, commit, commit_one, done, drowsy, order, orders, outbox, reaches, row, rows};

pub(crate) async fn receipts_dropped_before_their_commits_hold_nobody_up(db: &impl Database) {
    let recorder = Recorder::done();
    let outbox = outbox(db)
        .poller(drowsy())
        .dispatcher(long_lease())
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");

    let mut open = Vec::new();
    for number in 0..4 {
        let mut own = db.typed().begin().await.expect("begins");
        drop(outbox.writer().write(own.as_mut(), order(number)).await.expect("writes"));
        open.push(own);
        // While they are open, the outcomes of others are stored.
        commit_one(&outbox).await;
        done(db, u64::from(number) + 1).await;
    }
    assert_eq!(outbox.metrics().counts().db_errors, 0, "no statement waited for an open transaction");
    commit_all(db, open).await;

    // A claim holds for an hour: they are given back before.
    done(db, 8).await;
    let counts = outbox.metrics().counts();
    assert_eq!((recorder.count(), counts.fenced_outcomes, counts.db_errors), (8, 0, 0));
    outbox.shutdown().await;
}

async fn commit_all<D: Database>(_: &D, open: Vec<<D::Store as TransactionalStore>::Transaction>) {
    for own in open {
        D::Store::commit(own).await.expect("commits");
    }
}

pub(crate) async fn a_receipt_that_was_dropped_takes_back_nothing_from_the_poller(db: &impl Database) {
    let recorder = Recorder::held();
    let config = DispatcherConfig { hot_queue: 1, ..long_lease() };
    let outbox = outbox(db).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    // The first finds room in the hot queue; the second waits for the poller.
    let mut own = db.typed().begin().await.expect("begins");
    let receipt = outbox.writer().write_all(own.as_mut(), orders(2)).await.expect("writes");
    let [first, second] = receipt.ids()[..] else { panic!("two were written") };
    drop(receipt);
    tokio::time::sleep(Duration::from_millis(500)).await; // looked for more and more rarely, while the poller looks often
    commit_all(db, vec![own]).await;

    let mut started = [recorder.started().await.id(), recorder.started().await.id()];
    started.sort_unstable();
    let mut written = [first, second];
    written.sort_unstable();
    assert_eq!(started, written, "the poller takes one, and the other once its claim is given back");
    recorder.finish(2);
    done(db, 2).await;
    assert_eq!((recorder.count(), outbox.metrics().counts().fenced_outcomes), (2, 0));
    outbox.shutdown().await;
}

/// Keeps a committed event from its listener for so long that its row is looked for meanwhile, twice and more.
struct SlowAfterCommit;

impl WriterHook for SlowAfterCommit {
    fn after_commit(&self, _: &[&Envelope]) -> Result<(), HookError> {
        std::thread::sleep(Duration::from_millis(600));
        Ok(())
    }
}

pub(crate) async fn an_event_that_is_written_again_after_a_rollback_nobody_told_of_is_delivered_once(db: &impl Database) {
    let recorder = Recorder::held();
    let config = DispatcherConfig { workers: 1, cold_queue: 1, ..long_lease() };
    let builder = outbox(db).dispatcher(config).hook(SlowAfterCommit);
    let outbox = builder.listener(ROUTE, recorder.listener()).start().await.expect("starts");
    // One event is at work, one waits for the worker, and the poller has no room for more.
    let other = db.typed();
    let ownership = Ownership { owner: OwnerId::generate("other"), lease: HOUR };
    let mut rows = other.begin().await.expect("begins");
    for envelope in &orders(3) {
        other.insert(rows.as_mut(), &[NewRow { envelope, claimed: false }], &ownership).await.expect("inserts");
    }
    commit_all(db, vec![rows]).await;
    recorder.started().await;
    eventually("the poller is full", async || outbox.queue_depth() == (0, 1)).await;

    let envelope = order(4);
    let mut own = db.typed().begin().await.expect("begins");
    drop(outbox.writer().write(own.as_mut(), envelope.clone()).await.expect("writes"));
    roll_back(db, own).await;
    let id = commit(&outbox, vec![envelope]).await[0];
    recorder.finish(4);

    done(db, 4).await;
    assert_eq!(row(db, id).await.status, Status::Done);
    assert_eq!((recorder.count(), outbox.metrics().counts().fenced_outcomes), (4, 0));
    outbox.shutdown().await;
}

pub(crate) async fn a_receipt_dropped_before_its_rollback_leaves_nothing_behind(db: &impl Database) {
    let recorder = Recorder::done();
    let outbox = outbox(db).dispatcher(long_lease()).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let mut own = db.typed().begin().await.expect("begins");
    drop(outbox.writer().write(own.as_mut(), order(1)).await.expect("writes"));
    roll_back(db, own).await;
    let id = commit_one(&outbox).await;

    reaches(db, id, Status::Done).await;
    let counts = outbox.metrics().counts();
    assert_eq!((recorder.ids(), counts.fenced_outcomes, rows(db).await), (vec![id], 0, 1));
    outbox.shutdown().await;
}

async fn roll_back<D: Database>(_: &D, own: <D::Store as TransactionalStore>::Transaction) {
    D::Store::rollback(own).await.expect("rolls back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_dropped_before_its_commit_waits_for_no_lease_on_sqlite() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let outbox = Outbox::single_node(db.impatient_store().await)
        .poller(drowsy())
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");
    // Whatever a start writes is written by now: our transaction is about to hold the lock.
    let first = commit_one(&outbox).await;
    reaches(&db, first, Status::Done).await;

    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");
    drop(outbox.writer().write(&mut own, order(1)).await.expect("writes"));
    eventually("the claim cannot be given back yet", async || outbox.metrics().counts().db_errors > 0).await;
    own.commit().await.expect("commits");

    // The clock of the database stands still, so a lease would never end.
    done(&db, 2).await;
    let counts = outbox.metrics().counts();
    assert_eq!((counts.hot_enqueued, counts.cold_enqueued, counts.fenced_outcomes), (1, 1, 0));
    outbox.shutdown().await;
}

/// The numbers of rows that were rolled back are given out again on this database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claim_of_a_row_that_was_rolled_back_is_not_taken_from_the_next_row_of_its_number() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let outbox = Outbox::single_node(db.impatient_store().await)
        .poller(drowsy())
        .listener(ROUTE, recorder.listener())
        .start()
        .await
        .expect("starts");
    // Whatever a start writes is written by now: our transaction is about to hold the lock.
    let first = commit_one(&outbox).await;
    recorder.started().await;
    recorder.finish(1);
    reaches(&db, first, Status::Done).await;

    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");
    drop(outbox.writer().write(&mut own, order(1)).await.expect("writes"));
    eventually("the claim cannot be given back yet", async || outbox.metrics().counts().db_errors > 0).await;
    own.rollback().await.expect("rolls back");
    let held = commit_one(&outbox).await;
    recorder.started().await;

    // Claims are given back in order: after this one, the first has had its turn.
    let mut own = db.other_program().begin().await.expect("a transaction that the caller owns");
    let receipt = outbox.writer().write(&mut own, order(2)).await.expect("writes");
    let later = receipt.ids()[0];
    own.commit().await.expect("commits");
    drop(receipt);
    assert_eq!(recorder.started().await.id(), later);
    assert_eq!(row(&db, held).await.claim_seq, 1, "its claim is its own still");
    recorder.finish(2);

    done(&db, 3).await;
    assert_eq!((recorder.count(), outbox.metrics().counts().fenced_outcomes), (3, 0));
    outbox.shutdown().await;
}

/// The database counts a lease from the beginning of the statement, which may then wait for another transaction.
pub(crate) async fn a_hot_copy_never_runs_under_a_lease_that_ended_during_the_insert(db: &impl Database) {
    let recorder = Recorder::done();
    let lease = Duration::from_secs(1);
    let config = DispatcherConfig { lease, deadline: lease / 2, ..DispatcherConfig::default() };
    let outbox = outbox(db).dispatcher(config).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let (contested, other) = (order(1), db.typed());
    let mut rival = other.begin().await.expect("begins");
    let ownership = Ownership { owner: OwnerId::generate("rival"), lease: HOUR };
    let row = NewRow { envelope: &contested, claimed: false };
    other.insert(rival.as_mut(), &[row], &ownership).await.expect("inserts");

    let mut own = outbox.begin().await.expect("begins");
    let started = Instant::now();
    let (written, ()) = tokio::join!(own.write(contested.clone()), async {
        // The insert waits for the rival with the same id meanwhile.
        tokio::time::sleep(lease + lease / 2).await;
        roll_back(db, rival).await;
    });
    written.expect("the id is free again");
    assert!(started.elapsed() > lease, "the insert waited for the rival");
    own.commit().await.expect("commits");

    done(db, 1).await;
    let counts = outbox.metrics().counts();
    assert_eq!((counts.hot_enqueued, counts.cold_enqueued, recorder.count()), (0, 1, 1), "the poller takes it");
    outbox.shutdown().await;
}
