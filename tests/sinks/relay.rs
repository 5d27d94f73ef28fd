//! Events that go to a sink without any plugin.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use outbox::dispatcher::DispatcherConfig;
use outbox::event::{OwnerId, Route};
use outbox::listener::{BreakerConfig, Fixed};
use outbox::poller::PollerConfig;
use outbox::sink::{Message, Sink, SinkError, Sinks};
use outbox::store::{NewRow, Ownership, WriteStore};
use outbox::{DispatchResult, Envelope, Event, EventId, Mode, Outbox, OutboxBuilder, RelayConfig, SqliteStore, Status};
use serde_json::json;
use servers::Broker;
use support::{Harness, Sqlite, eventually, in_time};

use crate::broker::{kill, own, resume, shared};
use crate::common::sinks;
use crate::hostile_nats::{Flood, flooding_nats, nats_within};
use crate::nats::Stream;

const HOUR: Duration = Duration::from_secs(3_600);

fn order(number: usize) -> Envelope {
    Envelope::new("OrderPlaced").aggregate("Order", (number % 50).to_string()).json(&number).expect("a good envelope")
}

fn outbox(store: SqliteStore) -> OutboxBuilder<SqliteStore> {
    let poller = PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() };
    Outbox::single_node(store).poller(poller).retry(Fixed(HOUR)).workers(128)
}

async fn commit(outbox: &Outbox<SqliteStore>, envelopes: Vec<Envelope>) -> Vec<EventId> {
    let mut transaction = outbox.begin().await.expect("begins");
    let ids = transaction.write_all(envelopes).await.expect("writes");
    transaction.commit().await.expect("commits");
    ids
}

async fn done(db: &Sqlite, count: u64) {
    eventually(&format!("{count} events are DONE"), async || db.store().stats().await.expect("counts").done == count).await;
}

fn nats(url: &str, stream: &Stream) -> Sinks {
    let subject = format!("{}.{{aggregate_type}}.{{event_type}}", stream.name);
    sinks(json!({"kind": "nats", "url": url, "subject": subject, "timeout": "2s"}))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_committed_event_is_in_the_stream_once_and_no_other_is() {
    let (db, store) = Sqlite::on_system_clock().await;
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    let builder = outbox(store).sinks(nats(&url, &stream)).relay(("Order", "*"), RelayConfig::to("tested"));
    let outbox = builder.start().await.expect("starts");
    let mut undone = outbox.begin().await.expect("begins");
    undone.write_all((5_000..5_100).map(order).collect::<Vec<_>>()).await.expect("writes");
    undone.rollback().await.expect("rolls back");
    for chunk in 0..10 {
        commit(&outbox, (chunk * 100..chunk * 100 + 100).map(order).collect()).await;
    }
    done(&db, 1_000).await;
    let mut numbers: Vec<usize> = stream.payloads().await.iter().map(|text| text.parse().expect("a number")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
    assert_eq!(db.number("SELECT max(attempts) FROM outbox_event").await, 0);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_sink_is_down_no_attempt_is_burnt_and_after_its_return_every_event_arrives() {
    let (db, store) = Sqlite::on_system_clock().await;
    let mut server = own(Broker::Nats);
    let stream = Stream::make(&server.url(), json!({"sync_interval": 1})).await;
    kill(&mut server);
    let builder = outbox(store).sinks(nats(&server.url(), &stream)).relay(("*", "*"), RelayConfig::to("tested"));
    let outbox = builder.start().await.expect("a broker that is away is no reason not to start");
    commit(&outbox, (0..300).map(order).collect()).await;
    eventually("all were with the sink", async || outbox.metrics().counts().dispatch_released >= 300).await;
    assert_eq!(db.number("SELECT count(*) FROM outbox_event WHERE attempts > 0 OR status <> 0").await, 0);
    resume(&mut server);
    done(&db, 300).await;
    assert_eq!(db.number("SELECT max(attempts) FROM outbox_event").await, 0);
    assert_eq!(stream.count().await, 300);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_one_aggregate_arrive_in_their_order_where_that_is_asked_for() {
    let (db, store) = Sqlite::on_system_clock().await;
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    let builder = outbox(store).mode(Mode::OrderedByAggregate).sinks(nats(&url, &stream));
    let outbox = builder.relay(("Order", "OrderPlaced"), RelayConfig::to("tested")).start().await.expect("starts");
    commit(&outbox, (0..1_000).map(order).collect()).await;
    done(&db, 1_000).await;
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for payload in stream.payloads().await {
        let number: usize = payload.parse().expect("a number");
        let before = last.insert(number % 50, number);
        assert!(before.is_none_or(|before| before < number), "{number} after {before:?}");
    }
    assert_eq!(last.len(), 50);
    outbox.shutdown().await;
}

/// A sink that keeps what it is sent, and answers as it is told.
struct Kept {
    messages: Mutex<Vec<Message>>,
    answer: Mutex<Result<(), SinkError>>,
}

impl Kept {
    fn that(answer: Result<(), SinkError>) -> Arc<Self> {
        Arc::new(Self { messages: Mutex::default(), answer: Mutex::new(answer) })
    }

    fn subjects(&self) -> Vec<String> {
        self.messages.lock().expect("nobody panicked").iter().map(|message| message.subject.clone()).collect()
    }
}

#[async_trait]
impl Sink for Kept {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        self.messages.lock().expect("nobody panicked").extend_from_slice(messages);
        vec![self.answer.lock().expect("nobody panicked").clone(); messages.len()]
    }
}

/// A sink that answers nothing.
struct Silent;

#[async_trait]
impl Sink for Silent {
    async fn send(&self, _: &[Message]) -> Vec<Result<(), SinkError>> {
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_another_sink_are_sent_while_a_server_of_nats_sends_endlessly_and_its_own_lose_no_attempt() {
    let (db, store) = Sqlite::on_system_clock().await;
    let flood = Arc::new(Flood::default());
    let (address, mut ends) = flooding_nats("PING\r\n", flood.clone()).await;
    let sinks = sinks(nats_within("14s", &address)).with("kept", Kept::that(Ok(())));
    let outbox = outbox(store)
        .sinks(sinks)
        .relay(("Order", "OrderPlaced"), RelayConfig::to("tested"))
        .relay(("Order", "OrderPaid"), RelayConfig::to("kept"))
        .start()
        .await
        .expect("starts");
    commit(&outbox, (0..20).map(order).collect()).await;
    eventually("the server sends endlessly", async || flood.sent.load(Ordering::SeqCst) > 0).await;

    for round in 1..=20 {
        commit(&outbox, vec![of_type("OrderPaid")]).await;
        done(&db, round).await;
    }

    in_time("the connection is closed", ends.recv()).await.expect("the server runs");
    eventually("the events were given back", async || outbox.metrics().counts().dispatch_released >= 20).await;
    flood.is_over.store(true, Ordering::SeqCst);
    done(&db, 40).await;
    assert_eq!(db.number("SELECT max(attempts) FROM outbox_event").await, 0);
    outbox.shutdown().await;
}

/// The relay of a pattern has no one route that a read could leave out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_does_not_answer_leaves_half_of_the_workers_to_the_others() {
    for relayed in [("Order", "*"), ("Order", "OrderPaid")] {
        let (db, store) = Sqlite::on_system_clock().await;
        let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
        let config =
            DispatcherConfig { workers: 128, drain_timeout: Duration::from_millis(100), ..DispatcherConfig::default() };
        let outbox = outbox(store)
            .dispatcher(config)
            .sinks(Sinks::default().with("silent", Arc::new(Silent)))
            .relay(relayed, RelayConfig::to("silent"))
            .listener(("Order", "OrderShipped"), listener)
            .start()
            .await
            .expect("starts");

        commit(&outbox, (0..5_000).map(|_| of_type("OrderPaid")).collect()).await;
        eventually("the sink has its half", async || outbox.in_flight() > 64).await;
        for round in 1..=20 {
            commit(&outbox, vec![of_type("OrderShipped")]).await;
            done(&db, round).await;
        }
        outbox.shutdown().await;
    }
}

fn of_type(event_type: &str) -> Envelope {
    Envelope::new(event_type).aggregate("Order", "7").json(&1).expect("a good envelope")
}

#[tokio::test]
async fn a_listener_goes_before_every_relay_and_the_most_exact_relay_before_the_others() {
    let (db, store) = Sqlite::on_system_clock().await;
    let kept = Kept::that(Ok(()));
    let to = |subject: &str| RelayConfig { subject: Some(subject.parse().expect("valid")), ..RelayConfig::to("kept") };
    let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
    let outbox = outbox(store)
        .sinks(Sinks::default().with("kept", kept.clone()))
        .relay(("*", "*"), to("any"))
        .relay(("Order", "*"), to("order.{event_type}.{aggregate_id}"))
        .relay(("Order", "OrderPaid"), to("paid"))
        .listener(("Order", "OrderShipped"), listener)
        .start()
        .await
        .expect("starts");
    let elsewhere = Envelope::new("UserCreated").json(&1).expect("a good envelope");
    for envelope in [of_type("OrderShipped"), of_type("OrderPaid"), of_type("OrderPlaced"), elsewhere] {
        commit(&outbox, vec![envelope]).await;
    }
    done(&db, 4).await;
    let mut subjects = kept.subjects();
    subjects.sort();
    assert_eq!(subjects, ["any", "order.OrderPlaced.7", "paid"]);
    outbox.shutdown().await;
}

/// More routes than one step of the poller looks at; the poller does not come again by itself.
#[tokio::test]
async fn events_of_many_parked_routes_arrive_soon_after_a_relay_for_all_of_them() {
    let (db, store) = Sqlite::on_system_clock().await;
    let nobody = outbox(store.clone()).start().await.expect("starts");
    commit(&nobody, (0..100).map(|number| of_type(&format!("Order{number}"))).collect()).await;
    eventually("all are parked", async || db.store().stats().await.expect("counts").parked == 100).await;
    nobody.shutdown().await;
    let sinks = Sinks::default().with("kept", Kept::that(Ok(())));

    let seldom = PollerConfig { interval: HOUR, ..PollerConfig::default() };
    let host = outbox(store).poller(seldom).sinks(sinks).relay(("Order", "*"), RelayConfig::to("kept"));
    let host = host.start().await.expect("starts");

    done(&db, 100).await;
    host.shutdown().await;
}

#[tokio::test]
async fn a_refused_event_is_counted_and_waits_for_its_next_attempt() {
    let (db, store) = Sqlite::on_system_clock().await;
    let kept = Kept::that(Err(SinkError::Rejected { reason: "too large".to_owned() }));
    let outbox = outbox(store)
        .sinks(Sinks::default().with("kept", kept))
        .relay(("Order", "*"), RelayConfig::to("kept"))
        .start()
        .await
        .expect("starts");
    let id = commit(&outbox, vec![of_type("OrderPaid")]).await[0];
    let row = async || db.store().get(id).await.expect("reads").expect("is there");
    eventually("it waits for its next attempt", async || row().await.status == Status::Retry).await;
    let row = row().await;
    assert_eq!(row.attempts, 1);
    assert_eq!(row.last_error.as_deref(), Some("the sink kept refused the event: too large"));
    outbox.shutdown().await;
}

#[tokio::test]
async fn a_sink_that_fails_again_and_again_pauses_its_relay_and_burns_no_more_attempts() {
    let (db, store) = Sqlite::on_system_clock().await;
    let kept = Kept::that(Err(SinkError::Failed { reason: "500".to_owned() }));
    let outbox = outbox(store)
        .workers(1)
        .sinks(Sinks::default().with("kept", kept.clone()))
        .relay(("Order", "*"), RelayConfig::to("kept"))
        .start()
        .await
        .expect("starts");
    commit(&outbox, (0..100).map(|_| of_type("OrderPaid")).collect()).await;
    eventually("all but ten were given back", async || outbox.metrics().counts().dispatch_released >= 90).await;
    assert_eq!(kept.messages.lock().expect("nobody panicked").len(), 10, "the tenth failure opened the breaker");
    outbox.shutdown().await;
    assert_eq!(db.number("SELECT sum(attempts) FROM outbox_event").await, 10, "what was stored in the end");
}

/// A sink that cannot take events of the type `Bad`, for which it gives no time.
struct Choosy;

#[async_trait]
impl Sink for Choosy {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let is_bad = |message: &Message| message.event.as_ref().is_some_and(|event| event.event_type().as_str() == "Bad");
        let bad = || Err(SinkError::Failed { reason: "500".to_owned() });
        messages.iter().map(|message| if is_bad(message) { bad() } else { Ok(()) }).collect()
    }
}

#[tokio::test]
async fn events_that_a_sink_cannot_take_pause_no_other_route_of_their_pattern() {
    let (db, store) = Sqlite::on_system_clock().await;
    let outbox = outbox(store)
        .breaker(BreakerConfig { pause: HOUR, ..BreakerConfig::default() })
        .sinks(Sinks::default().with("choosy", Arc::new(Choosy)))
        .relay(("Order", "*"), RelayConfig::to("choosy"))
        .start()
        .await
        .expect("starts");
    commit(&outbox, (0..100).map(|_| of_type("Bad")).collect()).await;
    eventually("their route is paused", async || outbox.metrics().counts().dispatch_released > 0).await;

    commit(&outbox, (0..40).map(|_| of_type("Good")).collect()).await;

    done(&db, 40).await;
    outbox.shutdown().await;
}

#[tokio::test]
async fn an_event_that_is_parked_because_nobody_answered_goes_on_when_a_relay_covers_it() {
    let (db, store) = Sqlite::on_system_clock().await;
    let ownership = Ownership { owner: OwnerId::generate("test"), lease: HOUR };
    let nobody = outbox(store.clone()).start().await.expect("starts");
    let envelopes: Vec<Envelope> = (0..40).map(|number| of_type(&format!("Order{number}"))).collect();
    let rows: Vec<NewRow<'_>> = envelopes.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
    store.write(&rows, &ownership).await.expect("writes");
    eventually("they are parked", async || db.store().stats().await.expect("counts").parked == 40).await;
    nobody.shutdown().await;

    let relaying = outbox(store)
        .sinks(Sinks::default().with("kept", Kept::that(Ok(()))))
        .relay(("Order", "*"), RelayConfig::to("kept"))
        .start()
        .await
        .expect("starts");
    done(&db, 40).await;
    relaying.shutdown().await;
}

#[tokio::test]
async fn a_pattern_that_replaces_the_relay_of_a_route_takes_its_events() {
    let (db, store) = Sqlite::on_system_clock().await;
    let relaying = |event_type: &'static str| {
        let sinks = Sinks::default().with("kept", Kept::that(Ok(())));
        outbox(store.clone()).sinks(sinks).relay(("Order", event_type), RelayConfig::to("kept"))
    };
    let exact = relaying("OrderPlaced").start().await.expect("starts");
    commit(&exact, vec![of_type("OrderPlaced")]).await;
    done(&db, 1).await;
    exact.shutdown().await;

    let by_pattern = relaying("*").start().await.expect("starts");
    commit(&by_pattern, vec![of_type("OrderPlaced")]).await;
    done(&db, 2).await;
    by_pattern.shutdown().await;
}

#[tokio::test]
async fn a_host_without_the_relay_leaves_its_events_to_the_host_that_has_it() {
    let (db, store) = Sqlite::on_system_clock().await;
    let builder = |store: SqliteStore| outbox(store).mode(Mode::MultiNode);
    let relaying = builder(store.clone())
        .sinks(Sinks::default().with("kept", Kept::that(Ok(()))))
        .relay(("Order", "*"), RelayConfig::to("kept"))
        .start()
        .await
        .expect("starts");
    relaying.shutdown().await;
    let known: Vec<Route> = db.store().routes().await.expect("reads").into_iter().map(|known| known.route).collect();
    assert_eq!(known, [Route::new("Order", "*").expect("valid")]);

    let listener = |_: Arc<Event>| async { Ok(DispatchResult::Done) };
    let other = builder(store).listener(("User", "UserCreated"), listener).start().await.expect("starts");
    let id = commit(&other, vec![of_type("OrderPaid")]).await[0];
    eventually("it is parked, not dead", async || db.store().stats().await.expect("counts").parked == 1).await;
    assert_eq!(db.store().get(id).await.expect("reads").expect("is there").status, Status::New);
    other.shutdown().await;
}

#[tokio::test]
async fn a_relay_to_a_sink_that_is_not_there_is_a_fault_of_the_configuration() {
    let (_db, store) = Sqlite::on_system_clock().await;
    let started = outbox(store).relay(("Order", "*"), RelayConfig::to("orders")).start().await;
    let error = started.expect_err("refused").to_string();
    assert!(error.contains("routes.\"Order/*\".sink is `orders`; there are no sinks"), "{error}");
}
