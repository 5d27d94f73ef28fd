//! A row whose claim, renewal or return the database refuses. It hurts nothing but itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::{NewRow, Node, Ownership, PARTITIONS};
use outbox::{DispatchResult, Envelope, Event, EventId, Mode, Outbox, Registration, Status, TransactionalStore};
use support::{Database, Harness, Postgres, Recorder, eventually, in_time};

use crate::bulk::long_lease;
use crate::common::{HOUR, ROUTE, at_rest, commit, done, drowsy, eager, order, orders, outbox, reaches, row};
use crate::refused::{BAD, EVENTS, allow, disconnect, refuse, refuse_each};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_ends_its_connection_holds_up_no_other_on_postgres() {
    let db = Postgres::fresh().await;
    let (recorder, gone) = (Recorder::done(), OwnerId::generate("gone"));
    let envelopes = orders(EVENTS);
    let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: true }).collect();
    db.store().write(&rows, &Ownership { owner: gone, lease: HOUR }).await.expect("writes");
    db.let_pass(HOUR * 2).await;
    disconnect(&db).await;

    let host = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    done(&db, u64::from(EVENTS) - 1).await;
    let bad = envelopes[BAD].id();
    assert!(!recorder.ids().contains(&bad), "it is not delivered without a claim");
    allow(&db).await;
    reaches(&db, bad, Status::Done).await;
    let calls = recorder.ids();
    assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "nothing was delivered twice");
    host.shutdown().await;
}

/// Claims are renewed many at a time: one that the database refuses must not end the claims of events that wait for a worker.
pub(crate) async fn a_claim_that_cannot_be_renewed_ends_no_other<D: Database>(db: &D) {
    // Longer than a busy machine lets a host stand still: a lease that ends is no fault.
    const LEASE: Duration = Duration::from_secs(4);
    let config = DispatcherConfig { lease: LEASE, deadline: LEASE * 9 / 10, workers: 1, ..DispatcherConfig::default() };
    let called = Arc::<Mutex<Vec<EventId>>>::default();
    let slow = {
        let called = called.clone();
        move |event: Arc<Event>| {
            called.lock().expect("not poisoned").push(event.id());
            async {
                tokio::time::sleep(LEASE / 4).await;
                Ok(DispatchResult::Done)
            }
        }
    };
    let host = outbox(db).poller(drowsy()).dispatcher(config).listener(ROUTE, slow).start().await.expect("starts");
    refuse(db, "UPDATE").await;
    let bad = u32::try_from(BAD).expect("small");

    let ids = commit(&host, (bad..bad + 12).map(order).collect()).await;

    done(db, 11).await;
    assert_eq!(*called.lock().expect("not poisoned"), ids, "each was called once");
    assert_eq!(host.metrics().counts().leases_lost, 0);
    host.shutdown().await;
}

/// So many claims that other statements would not try the rows after them.
pub(crate) async fn many_claims_that_cannot_be_renewed_end_no_other<D: Database>(db: &D) {
    const MANY: u32 = 40;
    const OTHERS: u32 = 11;
    // Longer than a busy machine lets a host stand still: a lease that ends is no fault.
    const LEASE: Duration = Duration::from_secs(4);
    let config = DispatcherConfig { lease: LEASE, deadline: LEASE * 9 / 10, workers: 1, ..DispatcherConfig::default() };
    let called = Arc::<Mutex<Vec<EventId>>>::default();
    let slow = {
        let called = called.clone();
        move |event: Arc<Event>| {
            called.lock().expect("not poisoned").push(event.id());
            let number = event.payload::<u32>().expect("a number");
            async move {
                if number >= MANY {
                    tokio::time::sleep(LEASE / 4).await;
                }
                Ok(DispatchResult::Done)
            }
        }
    };
    let host = outbox(db).poller(drowsy()).dispatcher(config).listener(ROUTE, slow).start().await.expect("starts");
    let bad: Vec<usize> = (0..MANY as usize).collect();
    refuse_each(db, "UPDATE", &bad).await;

    let ids = commit(&host, orders(MANY + OTHERS)).await;

    done(db, u64::from(OTHERS)).await;
    assert_eq!(*called.lock().expect("not poisoned"), ids, "each was called once");
    assert_eq!(host.metrics().counts().leases_lost, 0);
    host.shutdown().await;
}

/// Claims of a dropped receipt are given back many at a time.
pub(crate) async fn a_claim_that_cannot_be_given_back_keeps_no_other<D: Database>(db: &D) {
    const OTHERS: u32 = 11;
    let recorder = Recorder::done();
    let builder = outbox(db).poller(drowsy()).dispatcher(long_lease()).listener(ROUTE, recorder.listener());
    let host = builder.start().await.expect("starts");
    refuse(db, "UPDATE").await;
    let bad = u32::try_from(BAD).expect("small");

    let mut own = db.typed().begin().await.expect("begins");
    let envelopes: Vec<Envelope> = (bad..=bad + OTHERS).map(order).collect();
    let receipt = host.writer().write_all(own.as_mut(), envelopes).await.expect("writes");
    let ids = receipt.ids();
    D::Store::commit(own).await.expect("commits");
    drop(receipt);

    // A claim holds for an hour: the others are given back before.
    done(db, u64::from(OTHERS)).await;
    let (called, others) = (recorder.ids(), &ids[1..]);
    assert_eq!(called.iter().collect::<BTreeSet<_>>(), others.iter().collect::<BTreeSet<_>>());
    assert_eq!(called.len(), others.len(), "nothing was delivered twice");
    host.shutdown().await;
}

/// As by a pooler that ends the connection of a statement that takes too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_ends_its_connection_ends_no_other_claim_on_postgres() {
    let db = Postgres::fresh().await;
    let recorder = Recorder::held();
    // Longer than a busy machine lets a host stand still: a lease that ends is no fault.
    let lease = Duration::from_secs(6);
    let config = DispatcherConfig { lease, deadline: lease / 2, ..DispatcherConfig::default() };
    let long = Registration::new(ROUTE.try_into().expect("good names"), recorder.listener()).deadline(HOUR);
    let host = outbox(&db).poller(drowsy()).dispatcher(config).registration(long).start().await.expect("starts");
    let bad = u32::try_from(BAD).expect("small");
    let ids = commit(&host, (bad..bad + 5).map(order).collect()).await;
    for _ in &ids {
        recorder.started().await;
    }
    let first_end = row(&db, ids[1]).await.lease_end.expect("it is claimed");

    disconnect(&db).await;

    for id in &ids[1..] {
        eventually("the claim is renewed time and again", async || {
            row(&db, *id).await.lease_end > Some(first_end.plus(lease * 2))
        })
        .await;
    }
    recorder.finish(ids.len());
    for id in &ids[1..] {
        reaches(&db, *id, Status::Done).await;
    }
    let calls = recorder.ids();
    assert!(ids[1..].iter().all(|id| calls.iter().filter(|called| *called == id).count() == 1), "each was called once");
    host.shutdown().await;
}

/// How a host left its events.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    UnderClaims,
    /// It had read their partitions, and may have begun calls.
    InItsPartitions,
}

/// Events that a host left are claimed before they are delivered: here by one statement, of which one row is refused.
pub(crate) async fn a_claim_that_the_database_refuses_holds_up_no_other<D: Database>(db: &D) {
    for (mode, left) in [
        (Mode::MultiNode, Left::UnderClaims),
        (Mode::OrderedByAggregate, Left::UnderClaims),
        (Mode::MultiNode, Left::InItsPartitions),
    ] {
        let recorder = Recorder::done();
        let (store, gone) = (db.store(), OwnerId::generate("gone"));
        store.heartbeat(&Node::new(gone.clone(), "gone", "multi_node", "1"), HOUR).await.expect("writes");
        if left == Left::InItsPartitions {
            store.keep_partitions(&gone, PARTITIONS, PARTITIONS).await.expect("keeps");
        }
        let envelopes = orders(EVENTS);
        let claimed = left == Left::UnderClaims;
        let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed }).collect();
        store.write(&rows, &Ownership { owner: gone.clone(), lease: HOUR }).await.expect("writes");
        db.let_pass(HOUR * 2).await;
        db.execute("UPDATE outbox_event_node SET alive_until = started_at").await;
        refuse(db, "UPDATE").await;
        let host = Outbox::builder(db.typed()).mode(mode).poller(eager()).listener(ROUTE, recorder.listener());
        let host = host.start().await.expect("starts");

        done(db, u64::from(EVENTS) - 1).await;
        let later = commit(&host, (EVENTS..EVENTS + 20).map(order).collect()).await;
        eventually("later events are DONE", async || later.iter().all(|id| recorder.ids().contains(id))).await;
        eventually("it is refused again and again", async || host.metrics().counts().db_errors >= 3).await;
        let bad = envelopes[BAD].id();
        assert!(!recorder.ids().contains(&bad), "{mode:?}, {left:?}: it is not delivered without a claim");

        allow(db).await;
        reaches(db, bad, Status::Done).await;
        let calls = recorder.ids();
        assert_eq!(calls.iter().collect::<BTreeSet<_>>().len(), calls.len(), "nothing was delivered twice");
        at_rest(&host).await;
        host.shutdown().await;
        db.execute("DELETE FROM outbox_event").await;
        db.execute("DELETE FROM outbox_event_node").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_need_no_claim_are_read_while_the_database_takes_no_claim_on_postgres() {
    const OTHERS: u32 = 60;
    let db = Postgres::fresh().await;
    let (recorder, bad) = (Recorder::done(), order(u32::try_from(BAD).expect("small")));
    let gone = Ownership { owner: OwnerId::generate("gone"), lease: HOUR };
    db.store().write(&[NewRow { envelope: &bad, claimed: true }], &gone).await.expect("writes");
    db.let_pass(HOUR * 2).await;
    // As for a user without the right: no other row is tried.
    let body = "BEGIN RAISE EXCEPTION 'no right' USING ERRCODE = 'insufficient_privilege'; END";
    db.execute(&format!("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
    let when = format!("FOR EACH ROW WHEN (OLD.aggregate_id = '{BAD}') EXECUTE FUNCTION refuse()");
    db.execute(&format!("CREATE TRIGGER refused BEFORE UPDATE ON outbox_event {when}")).await;
    let host = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    eventually("the claim is refused", async || host.metrics().counts().db_errors > 0).await;

    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    in_time("the poller does not rest after each read", async {
        for number in 0..OTHERS {
            let envelope = order(1_000 + number);
            db.store().write(&[NewRow { envelope: &envelope, claimed: false }], &nobody).await.expect("writes");
            reaches(&db, envelope.id(), Status::Done).await;
        }
    })
    .await;

    assert!(!recorder.ids().contains(&bad.id()), "it is not delivered without a claim");
    assert_eq!(host.metrics().counts().reads_failed, 0, "a failed claim is not a failed read");
    allow(&db).await;
    reaches(&db, bad.id(), Status::Done).await;
    assert_eq!(recorder.count(), usize::try_from(OTHERS).expect("small") + 1, "nothing was delivered twice");
    host.shutdown().await;
}

/// More events than the poller reads within a second, after which a read usually returns to the front.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_behind_thousands_that_cannot_be_claimed_are_delivered_on_postgres() {
    const LEFT: u32 = 5_000;
    const OTHERS: u32 = 20;
    let (db, recorder) = (Postgres::fresh().await, Recorder::done());
    let gone = Ownership { owner: OwnerId::generate("gone"), lease: HOUR };
    let left = orders(LEFT);
    let rows: Vec<_> = left.iter().map(|envelope| NewRow { envelope, claimed: true }).collect();
    for some in rows.chunks(1_000) {
        db.store().write(some, &gone).await.expect("writes");
    }
    db.let_pass(HOUR * 2).await;
    let body = "BEGIN RAISE EXCEPTION 'no right' USING ERRCODE = 'insufficient_privilege'; END";
    db.execute(&format!("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
    let when = "FOR EACH ROW WHEN (length(OLD.aggregate_id) < 6) EXECUTE FUNCTION refuse()";
    db.execute(&format!("CREATE TRIGGER refused BEFORE UPDATE ON outbox_event {when}")).await;
    let others: Vec<Envelope> = (100_000..100_000 + OTHERS).map(order).collect();
    let rows: Vec<_> = others.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    db.store().write(&rows, &nobody).await.expect("writes");

    let host = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    done(&db, u64::from(OTHERS)).await;
    assert!(host.metrics().counts().db_errors > 0, "the claims are refused");
    assert_eq!(recorder.count(), usize::try_from(OTHERS).expect("small"), "no other event is delivered without a claim");
    allow(&db).await;
    done(&db, u64::from(LEFT + OTHERS)).await;
    assert_eq!(recorder.count(), usize::try_from(LEFT + OTHERS).expect("small"), "nothing was delivered twice");
    host.shutdown().await;
}
