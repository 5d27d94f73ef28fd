//! Short ways to say what the facts are about.

use std::sync::Arc;
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::listener::Fixed;
use outbox::poller::PollerConfig;
use outbox::store::{NewRow, Ownership, Record, SharedStore};
use outbox::{
    DispatchResult, Envelope, Event, EventId, Outbox, OutboxBuilder, Registration, Route, Status, TransactionalStore,
};
use support::{Database, Harness, eventually};

pub(crate) const ROUTE: (&str, &str) = ("Order", "OrderPlaced");
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A poller that looks often, so that moving the clock shows at once.
pub(crate) fn eager() -> PollerConfig {
    PollerConfig { interval: Duration::from_millis(50), ..PollerConfig::default() }
}

/// A poller that looks once at the start, and then only when it is woken.
pub(crate) fn drowsy() -> PollerConfig {
    PollerConfig { interval: HOUR, ..PollerConfig::default() }
}

/// An outbox on the test's database. Failed events are tried again an hour later, by the test's clock.
pub(crate) fn outbox<D: Database>(db: &D) -> OutboxBuilder<D::Store> {
    Outbox::single_node(db.typed()).poller(eager()).retry(Fixed(HOUR))
}

/// Starts an outbox whose poller has had its first look when this returns: what a test lets become due afterwards, a poller that
/// sleeps does not see. One event more is DONE then.
pub(crate) async fn start_rested<D: Database>(db: &D, builder: OutboxBuilder<D::Store>) -> Outbox<D::Store> {
    let envelope = Envelope::new("First").now(db.now().await).json(&0).expect("a good envelope");
    let ownership = Ownership { owner: OwnerId::generate("first"), lease: HOUR };
    let row = NewRow { envelope: &envelope, claimed: false };
    db.store().write(&[row], &ownership).await.expect("writes");
    let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
    let outbox = builder.listener("First", listener).start().await.expect("starts");
    reaches(db, envelope.id(), Status::Done).await;
    outbox
}

/// No event waits for a listener that may come.
pub(crate) fn without_grace() -> DispatcherConfig {
    DispatcherConfig { unroutable_grace: Duration::ZERO, ..DispatcherConfig::default() }
}

pub(crate) fn one_worker() -> DispatcherConfig {
    DispatcherConfig { workers: 1, ..DispatcherConfig::default() }
}

pub(crate) fn order(number: u32) -> Envelope {
    Envelope::new("OrderPlaced").aggregate("Order", number.to_string()).json(&number).expect("a good envelope")
}

pub(crate) fn orders(count: u32) -> Vec<Envelope> {
    (0..count).map(order).collect()
}

/// Writes events in one transaction and commits it.
pub(crate) async fn commit<S: TransactionalStore + Clone>(outbox: &Outbox<S>, envelopes: Vec<Envelope>) -> Vec<EventId> {
    let mut transaction = outbox.begin().await.expect("begins");
    let ids = transaction.write_all(envelopes).await.expect("writes");
    transaction.commit().await.expect("commits");
    ids
}

pub(crate) async fn commit_one<S: TransactionalStore + Clone>(outbox: &Outbox<S>) -> EventId {
    commit(outbox, vec![order(42)]).await[0]
}

pub(crate) async fn row(db: &dyn Harness, id: EventId) -> Record {
    db.store().get(id).await.expect("reads").expect("the row is there")
}

/// Waits until an event has this status.
pub(crate) async fn reaches(db: &dyn Harness, id: EventId, status: Status) -> Record {
    eventually(&format!("the event is {status}"), async || row(db, id).await.status == status).await;
    row(db, id).await
}

/// Waits until this many events are DONE.
pub(crate) async fn done(db: &dyn Harness, count: u64) {
    eventually(&format!("{count} events are DONE"), async || db.store().stats().await.expect("counts").done == count).await;
}

pub(crate) async fn rows(db: &dyn Harness) -> i64 {
    db.number("SELECT count(*) FROM outbox_event").await
}

/// A later event that was delivered proves that an earlier one was not.
pub(crate) async fn nothing_else_is_delivered<S: SharedStore>(db: &dyn Harness, outbox: &Outbox<S>) {
    let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
    let route = Route::try_from("Sentinel").expect("a good name");
    outbox.listeners().replace("sentinel", vec![Registration::new(route, listener)]).expect("the route is free");
    // Through the table, not the hot queue, and due now: whatever is due comes before it.
    let envelope = Envelope::new("Sentinel").now(db.now().await).json(&0).expect("a good envelope");
    let ownership = Ownership { owner: OwnerId::generate("sentinel"), lease: HOUR };
    let row = NewRow { envelope: &envelope, claimed: false };
    db.store().write(&[row], &ownership).await.expect("writes");
    let id = envelope.id();
    reaches(db, id, Status::Done).await;
}

/// Waits until no event is in this process's hands: a mark is let go a moment after its outcome is stored.
pub(crate) async fn at_rest<S: SharedStore>(outbox: &Outbox<S>) {
    eventually("every mark is let go", async || outbox.in_flight() == 0).await;
}
