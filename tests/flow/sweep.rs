//! Turns of the poller that meet much, or what they cannot change: what is due is claimed in between, and a stop is heard.

use std::sync::Arc;

use outbox::event::OwnerId;
use outbox::store::{NewRow, Ownership, WriteStore};
use outbox::{DispatchResult, Envelope, Event, Outbox, Status};
use sqlx::AssertSqlSafe;
use support::{Database, Harness, MySql, Postgres, Recorder, Sqlite, eventually, in_time};

use crate::common::{HOUR, ROUTE, done, eager, order, orders, reaches, row};

/// Inserts events that anybody may claim. Returns the number of the last.
async fn insert<D: Database>(db: &D, envelopes: &[Envelope]) -> u64 {
    let ownership = Ownership { owner: OwnerId::generate("writer"), lease: HOUR };
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    db.another().await.write(&rows, &ownership).await.expect("writes").pop().flatten().expect("it is new")
}

/// A host in a mode that keeps no order meets an event that waits behind another, and whose row is locked.
async fn a_locked_row<D: Database>(db: &D, waiting: u64) {
    let recorder = Recorder::done();
    let host = Outbox::multi_node(db.another().await).poller(eager()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");
    let free = order(2);
    insert(db, std::slice::from_ref(&free)).await;

    reaches(db, free.id(), Status::Done).await;

    assert_eq!(recorder.count(), 1, "the locked one ({waiting}) waits");
    in_time("the host stops", host.shutdown()).await;
}

fn lock(sequence: u64) -> AssertSqlSafe<String> {
    AssertSqlSafe(format!("SELECT seq FROM outbox_event WHERE seq = {sequence} FOR UPDATE"))
}

/// One event that waits behind another that is long gone.
async fn left_behind<D: Database>(db: &D) -> (Envelope, u64) {
    let waiting = order(1);
    let sequence = insert(db, std::slice::from_ref(&waiting)).await;
    db.execute("UPDATE outbox_event SET behind = 1000000, due_at = NULL").await;
    (waiting, sequence)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_that_waits_behind_another_holds_up_neither_claims_nor_a_stop_on_postgres() {
    let db = Postgres::fresh().await;
    let (waiting, sequence) = left_behind(&db).await;
    let mut other = sqlx::PgPool::connect(db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(lock(sequence)).execute(&mut *other).await.expect("locks");

    a_locked_row(&db, sequence).await;

    other.rollback().await.expect("lets it go");
    goes_on_later(&db, &waiting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_row_that_waits_behind_another_holds_up_neither_claims_nor_a_stop_on_mysql() {
    let db = MySql::fresh().await;
    let (waiting, sequence) = left_behind(&db).await;
    let mut other = sqlx::MySqlPool::connect(&db.url()).await.expect("connects").begin().await.expect("begins");
    sqlx::query(lock(sequence)).execute(&mut *other).await.expect("locks");

    a_locked_row(&db, sequence).await;

    other.rollback().await.expect("lets it go");
    goes_on_later(&db, &waiting).await;
}

/// Once nobody locks it.
async fn goes_on_later<D: Database>(db: &D, waiting: &Envelope) {
    let recorder = Recorder::done();
    let host = Outbox::multi_node(db.another().await).poller(eager()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");
    reaches(db, waiting.id(), Status::Done).await;
    host.shutdown().await;
}

pub(crate) async fn a_long_queue_whose_blocker_is_gone_goes_on_to_its_end<D: Database>(db: &D) {
    insert(db, &orders(1_200)).await;
    db.execute("UPDATE outbox_event SET behind = 1000000, due_at = NULL").await;
    let recorder = Recorder::done();

    let host = Outbox::multi_node(db.another().await).poller(eager()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");

    done(db, 1_200).await;
    host.shutdown().await;
}

pub(crate) async fn events_are_claimed_while_many_others_are_unparked<D: Database>(db: &D) {
    for _ in 0..3 {
        insert(db, &orders(1_000)).await;
    }
    db.execute("UPDATE outbox_event SET parked = 'no listener', due_at = NULL").await;
    let recorder = Recorder::held();

    let host = Outbox::multi_node(db.another().await).poller(eager()).listener(ROUTE, recorder.listener());
    let host = host.start().await.expect("starts");

    recorder.started().await;
    let parked = db.store().stats().await.expect("counts").parked;
    assert!(parked > 0, "the first is delivered before all are unparked");
    recorder.finish(3_000);
    eventually("all are unparked in the end", async || db.store().stats().await.expect("counts").parked == 0).await;
    in_time("the host stops", host.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_keeps_no_partition_closed() {
    let db = Sqlite::fresh().await;
    // This database keeps any bytes as text, and this row waits behind another.
    db.execute(
        "INSERT INTO outbox_event (event_type, aggregate_type, aggregate_id, payload, due_at, behind)
         VALUES ('OrderPlaced', CAST(x'ff' AS TEXT), '1', '1', NULL, 1000000)",
    )
    .await;
    let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
    let host = Outbox::ordered_by_aggregate(db.another().await).poller(eager()).listener(ROUTE, listener);
    let host = host.start().await.expect("starts");
    let readable = order(2);
    insert(&db, std::slice::from_ref(&readable)).await;

    reaches(&db, readable.id(), Status::Done).await;

    assert_eq!(row(&db, readable.id()).await.attempts, 0);
    in_time("the host stops", host.shutdown()).await;
}
