//! A host that cannot deliver what another can: it stands aside, and the other delivers its events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::listener::BreakerConfig;
use outbox::purge::{OnDone, PurgeConfig};
use outbox::sink::{Message, Sink, SinkError, Sinks};
use outbox::store::{NewRow, NodeRecord, NodeStore as _, Ownership, WriteStore as _};
use outbox::{DispatchResult, Event, Failure, Mode, Outbox, OutboxBuilder, PostgresStore, RelayConfig, TransactionalStore};
use support::{Database, Harness, Postgres, Recorder, Sqlite, eventually};

use crate::common::{HOUR, ROUTE, commit_one, done, eager, orders};

/// A broker as one host sees it.
#[derive(Default)]
struct Broker {
    is_unreachable: AtomicBool,
}

impl Broker {
    fn reachable(&self, is_reachable: bool) {
        self.is_unreachable.store(!is_reachable, Ordering::SeqCst);
    }
}

#[async_trait]
impl Sink for Broker {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let down = || SinkError::Down {
            reason: "no route to host".to_owned(),
            retry_after: Duration::from_millis(100),
            tried_ago: Duration::ZERO,
        };
        let answer = || if self.is_unreachable.load(Ordering::SeqCst) { Err(down()) } else { Ok(()) };
        messages.iter().map(|_| answer()).collect()
    }
}

/// A broker with two topics, as one host sees it: it may reach the broker, but not the leader of the odd topic.
#[derive(Default)]
struct Topics {
    is_odd_unreachable: AtomicBool,
}

/// Whether a message goes to the odd topic.
fn is_odd(message: &Message) -> bool {
    message.body.last().is_some_and(|digit| digit % 2 == 1)
}

#[async_trait]
impl Sink for Topics {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let is_unreachable = |message| self.is_odd_unreachable.load(Ordering::SeqCst) && is_odd(message);
        let unavailable = || SinkError::Unavailable {
            reason: "the odd topic has no leader".to_owned(),
            retry_after: None,
            tried_ago: Duration::ZERO,
        };
        messages.iter().map(|message| if is_unreachable(message) { Err(unavailable()) } else { Ok(()) }).collect()
    }

    fn destination(&self, message: &Message) -> Option<u64> {
        Some(u64::from(is_odd(message)))
    }
}

/// A host that relays its events to this broker.
fn relays<S: TransactionalStore + Clone>(store: S, mode: Mode, label: &str, broker: &Arc<impl Sink>) -> OutboxBuilder<S> {
    let sinks = Sinks::default().with("orders", broker.clone());
    Outbox::builder(store).mode(mode).label(label).poller(eager()).sinks(sinks).relay(("Order", "*"), RelayConfig::to("orders"))
}

/// Inserts events that only a poller can find.
async fn insert(db: &impl Database, count: u32) {
    let envelopes = orders(count);
    let rows: Vec<_> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    let nobody = Ownership { owner: OwnerId::generate("producer"), lease: HOUR };
    db.another().await.write(&rows, &nobody).await.expect("writes");
}

/// The row of the host with this label, once it is there.
async fn node(db: &impl Database, label: &str) -> NodeRecord {
    let (store, mut found) = (db.another().await, None);
    eventually("the host has a row", async || {
        let nodes = store.nodes().await.expect("lists");
        found = nodes.into_iter().find(|node| node.label.starts_with(label));
        found.is_some()
    })
    .await;
    found.expect("it was found")
}

async fn shares_the_table(db: &impl Database, labels: [&str; 2]) {
    eventually("both hold their share", async || {
        node(db, labels[0]).await.partitions == 128 && node(db, labels[1]).await.partitions == 128
    })
    .await;
}

pub(crate) async fn a_host_that_cannot_reach_a_sink_stands_aside_for_one_that_can<D: Database>(db: &D) {
    let [healthy_broker, sick_broker] = [(); 2].map(|()| Arc::new(Broker::default()));
    let healthy = relays(db.another().await, Mode::MultiNode, "healthy", &healthy_broker).start().await.expect("starts");
    let sick = relays(db.another().await, Mode::MultiNode, "sick", &sick_broker).start().await.expect("starts");
    shares_the_table(db, ["healthy", "sick"]).await;
    sick_broker.reachable(false);

    insert(db, 300).await;
    done(db, 300).await;

    let row = node(db, "sick").await;
    assert_eq!((row.room, row.partitions), (0, 0), "{row:?}");
    let stalled = &row.listeners.stalled[0];
    assert_eq!((stalled.route.as_str(), stalled.listener.as_str()), ("Order/*", "the sink orders"));
    assert!(stalled.reason.contains("no route to host"), "{}", stalled.reason);
    assert_eq!(db.number("SELECT count(*) FROM outbox_event WHERE attempts > 0").await, 0, "the outage costs no attempt");
    let row = node(db, "healthy").await;
    assert_eq!((row.listeners.stalled, row.partitions), (vec![], 256));

    // No other host is left, so it works again, whatever it can deliver.
    healthy.shutdown().await;
    insert(db, 20).await;
    eventually("it takes all partitions", async || node(db, "sick").await.partitions == 256).await;
    sick_broker.reachable(true);
    done(db, 320).await;
    eventually("it reports no stall", async || node(db, "sick").await.listeners.stalled.is_empty()).await;
    sick.shutdown().await;
}

pub(crate) async fn a_host_that_cannot_reach_one_topic_stands_aside_for_one_that_can<D: Database>(db: &D) {
    let [healthy_topics, sick_topics] = [(); 2].map(|()| Arc::new(Topics::default()));
    let healthy = relays(db.another().await, Mode::MultiNode, "healthy", &healthy_topics).start().await.expect("starts");
    let sick = relays(db.another().await, Mode::MultiNode, "sick", &sick_topics).start().await.expect("starts");
    shares_the_table(db, ["healthy", "sick"]).await;
    sick_topics.is_odd_unreachable.store(true, Ordering::SeqCst);

    insert(db, 300).await;
    done(db, 300).await;

    let row = node(db, "sick").await;
    assert_eq!((row.room, row.partitions), (0, 0), "{row:?}");
    assert!(row.listeners.stalled[0].reason.contains("the odd topic has no leader"), "{row:?}");
    assert_eq!(db.number("SELECT count(*) FROM outbox_event WHERE attempts > 0").await, 0, "the outage costs no attempt");
    tokio::join!(healthy.shutdown(), sick.shutdown());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_of_a_host_has_times_by_the_databases_clock() {
    let db = Sqlite::fresh().await;
    db.let_pass(HOUR).await;
    let broker = Arc::new(Broker::default());
    broker.reachable(false);
    let host = relays(db.typed(), Mode::MultiNode, "web", &broker).start().await.expect("starts");
    insert(&db, 1).await;

    eventually("its row names the difference of the clocks", async || {
        outbox::node::clock_difference(&node(&db, "web").await).is_some()
    })
    .await;
    eventually("the outage began by the database's clock", async || {
        let (sinks, now) = (outbox::node::sinks(&node(&db, "web").await), db.now().await);
        let since = sinks.first().and_then(|sink| sink.outage.as_ref()).map(|outage| outage.since);
        since.is_some_and(|since| now.since(since).max(since.since(now)) < HOUR / 2)
    })
    .await;
    host.shutdown().await;
}

pub(crate) async fn a_host_whose_listener_keeps_breaking_stands_aside<D: Database>(db: &D) {
    // Events that it gave back do not rest for so long.
    let breaker = BreakerConfig { pause: HOUR, ..BreakerConfig::default() };
    let host = |store, label: &str| Outbox::multi_node(store).label(label).poller(eager()).breaker(breaker);
    let good = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
    let bad = |event: Arc<Event>| async move {
        assert!(event.attempt() > 1_000, "it breaks");
        Ok::<_, Failure>(DispatchResult::Done)
    };
    let healthy = host(db.another().await, "healthy").listener(ROUTE, good).start().await.expect("starts");
    let sick = host(db.another().await, "sick").listener(ROUTE, bad).start().await.expect("starts");
    shares_the_table(db, ["healthy", "sick"]).await;

    insert(db, 300).await;
    done(db, 300).await;

    let row = node(db, "sick").await;
    assert_eq!((row.room, row.partitions), (0, 0), "{row:?}");
    assert!(row.listeners.stalled[0].reason.contains("the circuit breaker of its listener native code is open"), "{row:?}");
    tokio::join!(healthy.shutdown(), sick.shutdown());
}

pub(crate) async fn no_host_stands_aside_while_none_can_reach_the_sink<D: Database>(db: &D) {
    let broker = Arc::new(Broker::default());
    let first = relays(db.another().await, Mode::MultiNode, "first", &broker).start().await.expect("starts");
    let second = relays(db.another().await, Mode::MultiNode, "second", &broker).start().await.expect("starts");
    shares_the_table(db, ["first", "second"]).await;
    broker.reachable(false);

    insert(db, 100).await;
    eventually("both report it", async || {
        !node(db, "first").await.listeners.stalled.is_empty() && !node(db, "second").await.listeners.stalled.is_empty()
    })
    .await;

    shares_the_table(db, ["first", "second"]).await;
    for _ in 0..2 {
        let seen = node(db, "first").await.alive_until;
        eventually("there is another beat", async || node(db, "first").await.alive_until > seen).await;
        for label in ["first", "second"] {
            let row = node(db, label).await;
            assert!(row.room > 0 && row.partitions == 128, "{row:?}");
        }
    }
    shares_the_table(db, ["first", "second"]).await;
    broker.reachable(true);
    done(db, 100).await;
    tokio::join!(first.shutdown(), second.shutdown());
}

pub(crate) async fn a_standby_takes_over_from_a_host_that_cannot_deliver<D: Database>(db: &D) {
    let [first_broker, second_broker] = [(); 2].map(|()| Arc::new(Broker::default()));
    let first = relays(db.another().await, Mode::Ordered, "first", &first_broker).start().await.expect("starts");
    eventually("it holds all", async || node(db, "first").await.partitions == 256).await;
    let second = relays(db.another().await, Mode::Ordered, "second", &second_broker).start().await.expect("starts");
    insert(db, 20).await;
    done(db, 20).await;
    first_broker.reachable(false);

    insert(db, 20).await;
    done(db, 40).await;

    assert_eq!(node(db, "second").await.partitions, 256);
    assert_eq!(node(db, "first").await.room, 0);
    tokio::join!(first.shutdown(), second.shutdown());
}

/// As by a user that lost the right to change one column: reads, claims and heartbeats work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_cannot_store_outcomes_stands_aside_for_one_that_can() {
    stands_aside_without(OnDone::Keep, "UPDATE OF done_at").await;
}

/// As by a user that lost the right to delete rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_cannot_delete_what_is_done_stands_aside_for_one_that_can() {
    stands_aside_without(OnDone::Delete, "DELETE").await;
}

/// One of two hosts cannot do this, which its outcomes need.
async fn stands_aside_without(on_done: OnDone, change: &str) {
    let db = Postgres::fresh().await;
    let sick_name = format!("{}_sick", db.schema());
    let body = format!(
        "BEGIN IF current_setting('application_name') = '{sick_name}' THEN
           RAISE EXCEPTION 'permission denied to change outbox_event' USING ERRCODE = '42501';
         END IF; RETURN NULL; END"
    );
    db.execute(&format!("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")).await;
    let trigger = format!("CREATE TRIGGER refused BEFORE {change} ON outbox_event");
    db.execute(&format!("{trigger} FOR EACH STATEMENT EXECUTE FUNCTION refuse()")).await;
    let [healthy_calls, sick_calls] = [(); 2].map(|()| Recorder::done());
    let short = DispatcherConfig {
        lease: Duration::from_secs(4),
        deadline: Duration::from_secs(3),
        drain_timeout: Duration::from_secs(1),
        ..DispatcherConfig::default()
    };
    let host = |store: PostgresStore, label: &str, calls: &Recorder| {
        let builder = Outbox::multi_node(store).label(label).poller(eager()).dispatcher(short.clone());
        let builder = builder.purge(PurgeConfig { on_done, ..PurgeConfig::default() });
        builder.listener(ROUTE, calls.listener())
    };
    let healthy = host(db.another().await, "healthy", &healthy_calls).start().await.expect("starts");
    let sick_store = PostgresStore::connect(&format!("{}&application_name={sick_name}", db.url())).await.expect("connects");
    let sick = host(sick_store, "sick", &sick_calls).start().await.expect("starts");
    shares_the_table(&db, ["healthy", "sick"]).await;

    insert(&db, 300).await;
    eventually("it stands aside", async || node(&db, "sick").await.room == 0).await;
    let row = node(&db, "sick").await;
    let stalled = &row.listeners.stalled[0];
    assert!(stalled.is_all() && stalled.reason.contains("permission denied to change outbox_event"), "{stalled:?}");
    let all_are_done = async || db.number("SELECT count(*) FROM outbox_event WHERE status <> 1").await == 0;
    eventually("all are done", all_are_done).await;

    for calls in [&healthy_calls, &sick_calls] {
        let ids = calls.ids();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "no host delivered an event twice");
    }
    assert_eq!(db.number("SELECT count(*) FROM outbox_event WHERE attempts > 0").await, 0);

    // The event is not claimed by the host that could not store its outcome.
    let called = sick_calls.count();
    commit_one(&sick).await;
    eventually("it is done", all_are_done).await;
    assert_eq!(sick_calls.count(), called);
    tokio::join!(healthy.shutdown(), sick.shutdown());
}

/// As by a user that lost the right to read one column: heartbeats, outcomes and renewals work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_cannot_read_the_table_stands_aside_for_one_that_can() {
    let db = Postgres::fresh().await;
    let (user, url) = db.user("blind").await;
    let [healthy_calls, sick_calls] = [(); 2].map(|()| Recorder::done());
    let host = |store: PostgresStore, label: &str, calls: &Recorder| {
        Outbox::multi_node(store).label(label).poller(eager()).listener(ROUTE, calls.listener())
    };
    let healthy = host(db.another().await, "healthy", &healthy_calls).start().await.expect("starts");
    let sick_store = PostgresStore::connect(&url).await.expect("connects");
    let sick = host(sick_store, "sick", &sick_calls).start().await.expect("starts");
    shares_the_table(&db, ["healthy", "sick"]).await;
    // Nothing but reads and claims needs the payload.
    let columns = format!(
        "SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
         WHERE table_schema = '{}' AND table_name = 'outbox_event' AND column_name <> 'payload'",
        db.schema()
    );
    db.execute(&format!(
        "REVOKE SELECT ON outbox_event FROM {user};
         DO $$ BEGIN EXECUTE format('GRANT SELECT (%s) ON outbox_event TO {user}', ({columns})); END $$"
    ))
    .await;

    insert(&db, 300).await;
    eventually("it stands aside", async || node(&db, "sick").await.room == 0).await;
    let row = node(&db, "sick").await;
    let stalled = &row.listeners.stalled[0];
    assert!(stalled.is_all() && stalled.reason.contains("cannot read the table"), "{stalled:?}");
    done(&db, 300).await;

    assert_eq!((healthy_calls.count(), sick_calls.count()), (300, 0), "each was delivered once, by the host that can read");
    eventually("it gives its share up", async || node(&db, "healthy").await.partitions == 256).await;
    let seen = node(&db, "sick").await.alive_until;
    eventually("it has another heartbeat", async || node(&db, "sick").await.alive_until > seen).await;
    tokio::join!(healthy.shutdown(), sick.shutdown());
    db.drop_user(&user).await;
}
