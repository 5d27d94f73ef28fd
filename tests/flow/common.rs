//! Short ways to say what the facts are about.

use std::sync::Arc;
use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::listener::Fixed;
use outbox::poller::PollerConfig;
use outbox::store::Record;
use outbox::{
    DispatchResult, Envelope, Event, EventId, Outbox, OutboxBuilder, Registration, Route, SqliteStore, Status, Store,
};
use support::{Harness, Sqlite, eventually};

pub(crate) const ROUTE: (&str, &str) = ("Order", "OrderPlaced");
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A poller that looks often, so that moving the clock shows at once.
pub(crate) fn eager() -> PollerConfig {
    PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() }
}

/// A poller that looks once at the start, and then only when it is woken.
pub(crate) fn drowsy() -> PollerConfig {
    PollerConfig { interval: HOUR, ..PollerConfig::default() }
}

/// An outbox on the test's database. Failed events are tried again an hour later, by the test's clock.
pub(crate) fn outbox(db: &Sqlite) -> OutboxBuilder<SqliteStore> {
    Outbox::single_node(db.sqlite()).poller(eager()).retry(Fixed(HOUR))
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
pub(crate) async fn commit(outbox: &Outbox<SqliteStore>, envelopes: Vec<Envelope>) -> Vec<EventId> {
    let mut transaction = outbox.begin().await.expect("begins");
    let ids = transaction.write_all(envelopes).await.expect("writes");
    transaction.commit().await.expect("commits");
    ids
}

pub(crate) async fn commit_one(outbox: &Outbox<SqliteStore>) -> EventId {
    commit(outbox, vec![order(42)]).await[0]
}

pub(crate) async fn row(db: &Sqlite, id: EventId) -> Record {
    db.sqlite().get(id).await.expect("reads").expect("the row is there")
}

/// Waits until an event has this status.
pub(crate) async fn reaches(db: &Sqlite, id: EventId, status: Status) -> Record {
    eventually(&format!("the event is {status}"), async || row(db, id).await.status == status).await;
    row(db, id).await
}

/// Waits until so many events are DONE.
pub(crate) async fn done(db: &Sqlite, count: u64) {
    eventually(&format!("{count} events are DONE"), async || db.sqlite().stats().await.expect("counts").done == count).await;
}

pub(crate) async fn rows(db: &Sqlite) -> i64 {
    db.number("SELECT count(*) FROM outbox_event").await
}

/// A later event that was delivered proves that an earlier one was not.
pub(crate) async fn nothing_else_is_delivered(db: &Sqlite, outbox: &Outbox<SqliteStore>) {
    let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
    let route = Route::try_from("Sentinel").expect("a good name");
    outbox.listeners().replace("sentinel", vec![Registration::new(route, listener)]).expect("the route is free");
    let now = db.now().await;
    let id = EventId::generate(now);
    // Through the table, not the hot queue, and due now: whatever is due comes before it.
    db.execute(&format!(
        "INSERT INTO outbox_event (event_id, event_type, payload, due_at) VALUES ('{id}', 'Sentinel', '0', {})",
        now.as_micros()
    ))
    .await;
    reaches(db, id, Status::Done).await;
}

/// Waits until no event is in this process's hands: a mark is let go a moment after its outcome is stored.
pub(crate) async fn at_rest(outbox: &Outbox<SqliteStore>) {
    eventually("every mark is let go", async || outbox.in_flight() == 0).await;
}
