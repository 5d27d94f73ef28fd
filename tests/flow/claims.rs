//! Claims that end, are lost, or are kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::{Fence, OwnerId};
use outbox::store::{LeaseStore, NodeRecord, StuckReason, WriteStore};
use outbox::time::Timestamp;
use outbox::why::ReasonCode;
use outbox::{DispatchResult, Event, EventId, Outbox, Registration, Status, TransactionalStore};
use sqlx::{AssertSqlSafe, Executor};
use support::{Database, Harness, MySql, Postgres, Recorder, Sqlite, eventually};
use tokio::sync::Semaphore;

use crate::common::{
    HOUR, ROUTE, at_rest, commit, commit_one, done, drowsy, one_worker, order, orders, outbox, reaches, row, start_rested,
};

/// Whether another host gets an event.
async fn takes_one(db: &Sqlite, owner: &OwnerId, lease: Duration) -> Option<Fence> {
    support::claim_due(&db.sqlite(), owner, lease, 1).await.expect("claims").first().map(|claimed| claimed.fence)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_keeps_stopping_its_host_dies() {
    let db = Sqlite::fresh().await;
    let envelope = order(1);
    let row = outbox::store::NewRow { envelope: &envelope, claimed: false };
    let dying = |label| OwnerId::generate(label);
    let ownership = outbox::store::Ownership { owner: dying("writer"), lease: HOUR };
    db.sqlite().write(&[row], &ownership).await.expect("writes");
    // Five hosts started it, with no other event at work, and were never heard of again.
    for _ in 0..5 {
        let fence = takes_one(&db, &dying("host"), Duration::from_secs(30)).await.expect("it is due");
        assert!(db.sqlite().count_start(fence).await.expect("counts"));
        db.let_pass(Duration::from_secs(31)).await;
    }

    let recorder = Recorder::done();
    let outbox = outbox(&db).listener(ROUTE, recorder.listener()).start().await.expect("starts");

    let record = reaches(&db, envelope.id(), Status::Dead).await;
    assert!(record.last_error.as_deref().is_some_and(|error| error.contains("stopped 5 times")), "{:?}", record.last_error);
    assert_eq!((recorder.count(), record.attempts), (0, 0), "the sixth host does not try");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outcome_of_a_lost_claim_is_fenced_off_and_counted() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let outbox = start_rested(&db, outbox(&db).poller(drowsy()).listener(ROUTE, recorder.listener())).await;
    let id = commit_one(&outbox).await;
    recorder.started().await;

    // By the database's clock the lease is over, and another host takes the row while our listener is at work.
    db.let_pass(Duration::from_secs(31)).await;
    let other = OwnerId::generate("other");
    assert!(takes_one(&db, &other, HOUR).await.is_some());
    recorder.finish(1);

    eventually("the outcome is fenced off", async || outbox.metrics().counts().fenced_outcomes == 1).await;
    let record = row(&db, id).await;
    assert_eq!((record.status, record.locked_by.as_deref()), (Status::New, Some(other.as_str())));
    at_rest(&outbox).await;
    outbox.shutdown().await;
    assert_eq!(row(&db, id).await.locked_by.as_deref(), Some(other.as_str()), "a stop does not touch it either");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_claim_was_taken_is_cut_off() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let lease = Duration::from_secs(1);
    let config = DispatcherConfig { lease, deadline: Duration::from_millis(900), ..one_worker() };
    let slow = Registration::new(ROUTE.try_into().expect("good names"), recorder.listener()).deadline(HOUR);
    let outbox = outbox(&db).poller(drowsy()).dispatcher(config).registration(slow).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;

    db.let_pass(lease * 2).await;
    let other = OwnerId::generate("other");
    // Our own renewal may come first; then its new lease must end before another host can take the row.
    eventually("another node takes the row", async || {
        let taken = takes_one(&db, &other, HOUR).await.is_some();
        db.let_pass(lease * 2).await;
        taken
    })
    .await;

    eventually("the worker notices", async || outbox.metrics().counts().leases_lost == 1).await;
    at_rest(&outbox).await;
    assert_eq!(row(&db, id).await.locked_by.as_deref(), Some(other.as_str()));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_call_keeps_its_claim_by_renewal() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    // Renewed every three seconds: a machine may stand still for six more before the host gives the claim up.
    let lease = Duration::from_secs(9);
    let config = DispatcherConfig { lease, deadline: lease / 2, ..one_worker() };
    let slow = Registration::new(ROUTE.try_into().expect("good names"), recorder.listener()).deadline(HOUR);
    let outbox = outbox(&db).dispatcher(config).registration(slow).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;

    // By the database's clock, which the test moves, more than a lease passes.
    let other = OwnerId::generate("other");
    for _ in 0..2 {
        db.let_pass(lease * 2 / 3).await;
        assert!(takes_one(&db, &other, HOUR).await.is_none(), "it is ours");
        let renewed = db.now().await.plus(lease);
        eventually("the claim is renewed", async || row(&db, id).await.lease_end == Some(renewed)).await;
    }
    recorder.finish(1);

    let record = reaches(&db, id, Status::Done).await;
    assert_eq!((recorder.count(), record.claim_seq), (1, 2), "one claim and its outcome: nobody else ever had it");
    outbox.shutdown().await;
}

/// The poller of this host reads the row, as it does once a claim could not be renewed in time.
pub(crate) async fn a_hot_event_whose_claim_has_ended_is_not_claimed_by_its_own_host<D: Database>(db: &D) {
    let recorder = Recorder::held();
    let outbox = outbox(db).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let reads = || {
        let counts = outbox.metrics().counts();
        counts.reads_full + counts.reads_partial + counts.reads_empty
    };
    let id = commit_one(&outbox).await;
    recorder.started().await;
    db.execute("UPDATE outbox_event SET lease_end = locked_at").await;

    let before = reads();
    eventually("the poller reads several times", async || reads() > before + 3).await;
    // Enough for a second call, which must not begin.
    recorder.finish(2);

    let record = reaches(db, id, Status::Done).await;
    at_rest(&outbox).await;
    assert_eq!((recorder.count(), record.claim_seq), (1, 2), "one claim and its outcome");
    assert_eq!(outbox.metrics().counts().fenced_outcomes, 0);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_are_stored_when_a_locked_database_is_free_again_and_no_listener_is_called_twice() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let store = db.impatient_store().await;
    let outbox = Outbox::single_node(store).listener(ROUTE, recorder.listener()).start().await.expect("starts");
    let id = commit_one(&outbox).await;
    recorder.started().await;
    let mut other = db.other_program().acquire().await.expect("a connection");
    sqlx::query("BEGIN EXCLUSIVE").execute(&mut *other).await.expect("locks");

    recorder.finish(10);
    eventually("the failure is noticed", async || outbox.metrics().counts().db_errors > 0).await;
    sqlx::query("COMMIT").execute(&mut *other).await.expect("unlocks");
    drop(other);

    assert_eq!(reaches(&db, id, Status::Done).await.attempts, 0);
    assert_eq!(recorder.count(), 1);
    outbox.shutdown().await;
}

/// A host with three events at their listeners, one of whose rows somebody is about to lock.
struct Beside<'d, D: Database> {
    db: &'d D,
    outbox: Outbox<D::Store>,
    ids: Vec<EventId>,
    /// Lets the listeners of the first two go, and that of the third.
    gates: [Arc<Semaphore>; 2],
    calls: Arc<AtomicUsize>,
    first_end: Timestamp,
}

impl<'d, D: Database> Beside<'d, D> {
    async fn start(db: &'d D) -> Self {
        let gates = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        let calls = Arc::<AtomicUsize>::default();
        let listener = {
            let (gates, calls) = (gates.clone(), calls.clone());
            move |event: Arc<Event>| {
                calls.fetch_add(1, Ordering::SeqCst);
                let gate = gates[usize::from(event.aggregate_id() == Some("2"))].clone();
                async move {
                    gate.acquire().await.expect("open").forget();
                    Ok(DispatchResult::Done)
                }
            }
        };
        let lease = Duration::from_secs(15);
        let config = DispatcherConfig { lease, deadline: lease / 2, workers: 3, ..DispatcherConfig::default() };
        let slow = Registration::new(ROUTE.try_into().expect("good names"), listener).deadline(HOUR);
        let outbox = outbox(db).poller(drowsy()).dispatcher(config).registration(slow).start().await.expect("starts");
        let ids = commit(&outbox, orders(3)).await;
        eventually("all are with their listeners", async || calls.load(Ordering::SeqCst) == 3).await;
        let first_end = row(db, ids[2]).await.lease_end.expect("claimed");
        Self { db, outbox, ids, gates, calls, first_end }
    }

    /// What somebody runs who locks the row of the first.
    fn lock(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("SELECT seq FROM outbox_event WHERE event_id = '{}' FOR UPDATE", self.ids[0]))
    }

    /// The row is locked now.
    async fn the_others_go_on(&self) {
        self.gates[0].add_permits(2);
        eventually("the second is stored and the third renewed beside the locked row", async || {
            let renewed = row(self.db, self.ids[2]).await.lease_end > Some(self.first_end.plus(Duration::from_secs(1)));
            renewed && row(self.db, self.ids[1]).await.status == Status::Done
        })
        .await;
        assert_eq!(row(self.db, self.ids[0]).await.status, Status::New, "it is locked still");
    }

    /// The row is free again.
    async fn all_are_done(self) {
        self.gates[1].add_permits(1);
        done(self.db, 3).await;
        let counts = self.outbox.metrics().counts();
        assert_eq!((self.calls.load(Ordering::SeqCst), counts.fenced_outcomes, counts.leases_lost), (3, 0, 0));
        at_rest(&self.outbox).await;
        self.outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_locks_holds_up_no_other_on_postgres() {
    let db = Postgres::fresh().await;
    let beside = Beside::start(&db).await;
    let mut other = db.postgres().begin().await.expect("begins");
    other.execute(beside.lock()).await.expect("locks");
    beside.the_others_go_on().await;
    other.rollback().await.expect("unlocks");
    beside.all_are_done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_somebody_locks_holds_up_no_other_on_mysql() {
    let db = MySql::fresh().await;
    let beside = Beside::start(&db).await;
    let mut other = db.mysql().begin().await.expect("begins");
    other.execute(beside.lock()).await.expect("locks");
    beside.the_others_go_on().await;
    other.rollback().await.expect("unlocks");
    beside.all_are_done().await;
}

/// A host with one event, whose row another transaction locks before its listener has answered.
struct LockedOutcome<'d, D: Database> {
    db: &'d D,
    outbox: Outbox<D::Store>,
    id: EventId,
    gate: Arc<Semaphore>,
}

impl<'d, D: Database> LockedOutcome<'d, D> {
    async fn start(db: &'d D) -> Self {
        let gate = Arc::new(Semaphore::new(0));
        let listener = {
            let gate = gate.clone();
            move |_: Arc<Event>| {
                let gate = gate.clone();
                async move {
                    gate.acquire().await.expect("open").forget();
                    Ok(DispatchResult::Done)
                }
            }
        };
        let outbox = outbox(db).listener(ROUTE, listener).start().await.expect("starts");
        let id = commit(&outbox, orders(1)).await[0];
        Self { db, outbox, id, gate }
    }

    fn lock(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("SELECT seq FROM outbox_event WHERE event_id = '{}' FOR UPDATE", self.id))
    }

    /// Whether the row of the host names the event.
    async fn is_reported(&self) -> bool {
        let nodes = self.db.store().nodes().await.expect("lists");
        let stuck = NodeRecord::stuck_at_live(&nodes, StuckReason::OutcomeLocked);
        stuck.is_some_and(|stuck| stuck.first.iter().any(|one| one.event_id == Some(self.id)))
    }

    /// The row is locked now.
    async fn it_is_reported(&self) {
        self.gate.add_permits(1);
        eventually("the host names the locked row", async || self.is_reported().await).await;
        let why = outbox::why::explain(&*self.db.store(), self.id, Vec::new()).await.expect("explains").expect("is there");
        assert_eq!(why.reason, ReasonCode::OutcomeLocked, "{}", why.sentence);
    }

    /// The row is free again.
    async fn it_is_done(self) {
        done(self.db, 1).await;
        eventually("the host names it no more", async || !self.is_reported().await).await;
        self.outbox.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_waits_for_a_locked_row_is_reported_on_postgres() {
    let db = Postgres::fresh().await;
    let outcome = LockedOutcome::start(&db).await;
    let mut other = db.postgres().begin().await.expect("begins");
    other.execute(outcome.lock()).await.expect("locks");
    outcome.it_is_reported().await;
    other.rollback().await.expect("unlocks");
    outcome.it_is_done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_waits_for_a_locked_row_is_reported_on_mysql() {
    let db = MySql::fresh().await;
    let outcome = LockedOutcome::start(&db).await;
    let mut other = db.mysql().begin().await.expect("begins");
    other.execute(outcome.lock()).await.expect("locks");
    outcome.it_is_reported().await;
    other.rollback().await.expect("unlocks");
    outcome.it_is_done().await;
}
