//! Spans of writes and deliveries, and what becomes of them when the collector does not want them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::{TraceContextExt, Tracer, TracerProvider};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use outbox::event::TRACEPARENT;
use outbox::metrics::MetricsConfig;
use outbox::telemetry::{CollectorConfig, Sampling, Telemetry, TelemetryConfig};
use outbox::{Answer, Done, Envelope, Event, Outbox, SqliteStore, Status};
use support::{Collector, Harness, Manner, PATIENCE, Received, Recorder, Scrape, Sqlite, eventually};
use tracing_subscriber::layer::SubscriberExt;

use crate::common::{HOUR, ROUTE, commit, done, order, orders, outbox, reaches, row};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn sampled() -> String {
    format!("00-{TRACE}-{PARENT}-01")
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// `traceparent` as it names this span.
fn naming(span: &Received) -> String {
    format!("00-{}-{}-01", hex(&span.span.trace_id), hex(&span.span.span_id))
}

fn is_error(span: &Received) -> bool {
    span.span.status.as_ref().is_some_and(|status| status.code == StatusCode::Error as i32)
}

fn header(event: &Event) -> Option<String> {
    event.headers().get(TRACEPARENT).map(str::to_owned)
}

async fn traced(db: &Sqlite, telemetry: &Telemetry, recorder: &Recorder) -> Outbox<SqliteStore> {
    let builder = outbox(db).telemetry(telemetry);
    builder.listener(ROUTE, recorder.listener()).start().await.expect("starts")
}

async fn has(collector: &Collector, name: &str, count: usize) -> Vec<Received> {
    eventually(&format!("{count} spans {name} have come"), async || collector.named(name).len() >= count).await;
    let spans = collector.named(name);
    assert_eq!(spans.len(), count, "{spans:#?}");
    spans
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_and_its_delivery_are_one_trace_and_nothing_of_the_payload_is_in_it() {
    let (db, collector, recorder) = (Sqlite::fresh().await, Collector::start(), Recorder::done());
    let config = TelemetryConfig {
        service_name: "shop".to_owned(),
        resource: vec![("deployment.environment.name".to_owned(), "test".to_owned())],
        ..collector.of_traces()
    };
    let telemetry = Telemetry::start(&config).expect("good");
    let outbox = traced(&db, &telemetry, &recorder).await;

    let secret = Envelope::new("OrderPlaced").aggregate("Order", "1").header("x-key", "s3cret").json("s3cret").expect("good");
    let id = commit(&outbox, vec![secret]).await[0];
    done(&db, 1).await;

    let send = has(&collector, "send", 1).await.remove(0);
    let process = has(&collector, "process", 1).await.remove(0);
    assert_eq!((send.span.kind, process.span.kind), (SpanKind::Producer as i32, SpanKind::Consumer as i32));
    assert_eq!(
        (hex(&process.span.trace_id), hex(&process.span.parent_span_id)),
        (hex(&send.span.trace_id), hex(&send.span.span_id))
    );
    let linked: Vec<_> = process.span.links.iter().map(|link| link.span_id.clone()).collect();
    assert_eq!(linked, std::slice::from_ref(&send.span.span_id));
    let event = recorder.calls().remove(0);
    assert_eq!(header(&event), Some(naming(&send)), "it is stored with the event");
    assert_eq!(event.traceparent(), Some(naming(&process).as_str()), "what the listener does belongs to the delivery");
    for span in [&send, &process] {
        let told = |key: &str| span.attribute(key).unwrap_or_default();
        assert_eq!(told("messaging.system"), "outbox");
        assert_eq!(
            (told("messaging.operation.name"), told("messaging.operation.type")),
            (span.span.name.clone(), span.span.name.clone())
        );
        assert_eq!(told("messaging.destination.name"), "Order/OrderPlaced");
        assert_eq!(told("messaging.message.id"), id.to_string());
        assert_eq!(span.of_resource("service.name").as_deref(), Some("shop"));
        assert_eq!(span.of_resource("deployment.environment.name").as_deref(), Some("test"));
        assert!(!is_error(span) && !format!("{span:?}").contains("s3cret"), "{span:#?}");
    }
    assert_eq!(process.attribute("outbox.outcome").as_deref(), Some("success"));
    assert_eq!(process.attribute("outbox.listener").as_deref(), Some("native code"));
    outbox.shutdown().await;
    telemetry.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attempt_has_a_span_of_its_own_that_says_how_it_ended() {
    let (db, collector) = (Sqlite::fresh().await, Collector::start());
    let recorder = Recorder::answering(|event| match event.attempt() {
        1 => Err(outbox::Failure::retryable("the shop is closed")),
        2 => panic!("no \u{1b}[31mgood"),
        _ => Ok(outbox::DispatchResult::Dead(Some("hopeless".to_owned()))),
    });
    let telemetry = Telemetry::start(&collector.of_traces()).expect("good");
    let outbox = traced(&db, &telemetry, &recorder).await;

    let id = commit(&outbox, vec![order(1)]).await[0];
    for attempt in 1..=2 {
        eventually("the failure is counted", async || row(&db, id).await.attempts == attempt).await;
        db.let_pass(HOUR).await;
    }
    reaches(&db, id, Status::Dead).await;

    let send = has(&collector, "send", 1).await.remove(0);
    let attempts = has(&collector, "process", 3).await;
    assert!(attempts.iter().all(|span| span.span.parent_span_id == send.span.span_id && is_error(span)), "{attempts:#?}");
    let told = |key: &str| attempts.iter().map(|span| span.attribute(key).unwrap_or_default()).collect::<Vec<_>>();
    assert_eq!(told("outbox.attempt"), ["1", "2", "3"]);
    assert_eq!(told("outbox.outcome"), ["failure", "failure", "dead"]);
    assert_eq!(told("error.type"), ["listener", "panic", "dead"]);
    let why: Vec<String> = attempts.iter().filter_map(|span| Some(span.span.status.as_ref()?.message.clone())).collect();
    assert_eq!(why[0], "the shop is closed");
    assert!(why[1].contains("good") && !why[1].contains('\u{1b}'), "{why:?}");
    outbox.shutdown().await;
    telemetry.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_brings_its_trace_keeps_it_and_what_is_no_trace_hurts_nobody() {
    let (db, collector, recorder) = (Sqlite::fresh().await, Collector::start(), Recorder::done());
    let telemetry = Telemetry::start(&collector.of_traces()).expect("good");
    let outbox = traced(&db, &telemetry, &recorder).await;
    let bad = ["00-1".to_owned(), "é".repeat(20_000), sampled().to_uppercase(), format!("{}x", sampled()), String::new()];
    let with = |header: &str| order(1).with(|event| event.header(TRACEPARENT, header)).expect("good");
    let renamed =
        |header: &str| Envelope::new("OrderPlaced").aggregate("Order", "1").header(TRACEPARENT, header).json(&1).expect("good");

    commit(&outbox, vec![with(&sampled()).with(|event| event.header("tracestate", "vendor=1")).expect("good")]).await;
    let process = has(&collector, "process", 1).await.remove(0);
    let send = has(&collector, "send", 1).await.remove(0);
    for span in [&send, &process] {
        assert_eq!((hex(&span.span.trace_id), hex(&span.span.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
        assert_eq!(span.span.trace_state, "vendor=1");
    }
    assert_eq!(header(&recorder.calls()[0]), Some(sampled()), "it is not written over");

    commit(&outbox, bad.iter().map(|header| renamed(header)).collect()).await;
    done(&db, 1 + u64::try_from(bad.len()).expect("few")).await;

    let processes = has(&collector, "process", 1 + bad.len()).await;
    assert!(
        processes[1..].iter().all(|span| span.span.parent_span_id.is_empty() && span.span.links.is_empty()),
        "{processes:#?}"
    );
    let mut headers: Vec<_> = recorder.calls()[1..].iter().filter_map(|event| header(event)).collect();
    headers.sort();
    let mut expected = bad.to_vec();
    expected.sort();
    assert_eq!(headers, expected, "they are the writer's, and stay");
    outbox.shutdown().await;
    telemetry.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_sampled_is_not_sent_and_those_behind_it_are_told() {
    let (db, collector, recorder) = (Sqlite::fresh().await, Collector::start(), Recorder::done());
    let none = Sampling { ratio: 0.0, follows_parent: true };
    let telemetry = Telemetry::start(&TelemetryConfig { sampling: none, ..collector.of_traces() }).expect("good");
    let outbox = traced(&db, &telemetry, &recorder).await;
    let kept = order(2).with(|event| event.header(TRACEPARENT, sampled())).expect("good");

    commit(&outbox, vec![order(1)]).await;
    commit(&outbox, vec![kept]).await;
    done(&db, 2).await;
    outbox.shutdown().await;
    telemetry.shutdown().await;

    let traces: Vec<String> = collector.spans().iter().map(|span| hex(&span.span.trace_id)).collect();
    assert_eq!(traces, [TRACE, TRACE], "send and process of the one whose parent was kept");
    let left_out = recorder.calls().iter().find_map(|event| header(event).filter(|header| !header.contains(TRACE)));
    assert!(left_out.as_ref().is_some_and(|header| header.ends_with("-00")), "{left_out:?}");
    let counts = telemetry.spans().expect("spans are exported");
    assert_eq!((counts.exported.get(), counts.dropped.get()), (2, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_events_of_one_write_have_one_span_and_each_its_own_delivery() {
    let (db, collector, recorder) = (Sqlite::fresh().await, Collector::start(), Recorder::done());
    let telemetry = Telemetry::start(&collector.of_traces()).expect("good");
    let outbox = traced(&db, &telemetry, &recorder).await;

    commit(&outbox, orders(700)).await;
    done(&db, 700).await;
    commit(&outbox, Vec::new()).await;

    let processes = has(&collector, "process", 700).await;
    let send = has(&collector, "send", 1).await.remove(0);
    assert!(processes.iter().all(|span| span.span.parent_span_id == send.span.span_id));
    assert_eq!(send.attribute("messaging.batch.message_count").as_deref(), Some("700"));
    assert_eq!(send.attribute("messaging.message.id"), None);
    outbox.shutdown().await;
    telemetry.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_the_database_refuses_is_told_and_one_that_is_rolled_back_leaves_no_delivery() {
    let (db, collector, recorder) = (Sqlite::fresh().await, Collector::start(), Recorder::done());
    let telemetry = Telemetry::start(&collector.of_traces()).expect("good");
    let outbox = traced(&db, &telemetry, &recorder).await;
    let twice = order(1);
    commit(&outbox, vec![twice.clone()]).await;
    done(&db, 1).await;

    let mut transaction = outbox.begin().await.expect("begins");
    transaction.write(twice).await.expect_err("its id is taken");
    transaction.write(order(2)).await.expect("writes");
    transaction.rollback().await.expect("rolls back");
    outbox.shutdown().await;
    telemetry.shutdown().await;

    let sends = collector.named("send");
    assert_eq!(sends.iter().map(is_error).collect::<Vec<_>>(), [false, true, false], "{sends:#?}");
    assert_eq!(collector.named("process").len(), 1);
}

/// The collectors that must not be felt: nobody there, refusing, silent.
fn troubled() -> Vec<(&'static str, Collector, TelemetryConfig)> {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port is free");
    let mut troubled = Vec::new();
    for (what, manner) in [("away", None), ("refuses", Some(Manner::Refuses(503))), ("silent", Some(Manner::IsSilent))] {
        let collector = Collector::start();
        collector.set(manner.unwrap_or(Manner::Takes));
        let usual = collector.of_traces();
        let mut to = usual.traces.clone().expect("it has traces");
        if manner.is_none() {
            to = CollectorConfig::at(format!("http://{nobody}/v1/traces"));
        }
        let to = CollectorConfig { timeout: HOUR, ..to };
        troubled.push((what, collector, TelemetryConfig { traces: Some(to), queue_size: 100, batch_size: 10, ..usual }));
    }
    troubled
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_refuses_or_is_silent_costs_spans_and_no_delivery() {
    for (what, collector, config) in troubled() {
        let (db, recorder) = (Sqlite::fresh().await, Recorder::done());
        let telemetry = Telemetry::start(&config).expect("good");
        let outbox = traced(&db, &telemetry, &recorder).await;

        commit(&outbox, orders(300)).await;
        done(&db, 300).await;

        let counts = telemetry.spans().expect("spans are exported");
        assert!(counts.dropped.get() >= 180, "{what}: the queue has room for 100, and 10 are on their way");
        let shown = Scrape::of(&outbox.prometheus()).value("outbox_spans_total{result=\"dropped\"}");
        assert!(shown >= Some(180.0), "{what}: {shown:?}");
        let stopping = async {
            outbox.shutdown().await;
            telemetry.shutdown().await;
        };
        tokio::time::timeout(PATIENCE, stopping).await.unwrap_or_else(|_| panic!("{what}: a stop waits for ever"));
        assert_eq!((counts.exported.get(), counts.dropped.get()), (0, 301), "{what}: each is counted, once");
        assert_eq!(collector.spans().len(), 0, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_go_again_once_the_collector_is_back() {
    let (db, collector, recorder) = (Sqlite::fresh().await, Collector::start(), Recorder::done());
    collector.set(Manner::Refuses(400));
    let telemetry = Telemetry::start(&collector.of_traces()).expect("good");
    let outbox = traced(&db, &telemetry, &recorder).await;
    let counts = telemetry.spans().expect("spans are exported");
    commit(&outbox, vec![order(1)]).await;
    eventually("both spans are dropped, since nobody would take them later", async || counts.dropped.get() == 2).await;

    collector.set(Manner::Takes);
    commit(&outbox, vec![order(2)]).await;

    has(&collector, "process", 1).await;
    outbox.shutdown().await;
    telemetry.shutdown().await;
    assert_eq!((counts.exported.get(), counts.dropped.get()), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_asks_for_a_pause_gets_the_same_spans_again() {
    let (db, collector, recorder) = (Sqlite::fresh().await, Collector::start(), Recorder::done());
    collector.set(Manner::Refuses(503));
    let telemetry = Telemetry::start(&collector.of_traces()).expect("good");
    let outbox = traced(&db, &telemetry, &recorder).await;

    commit(&outbox, vec![order(1)]).await;
    eventually("the spans were refused", async || collector.requests() > 0).await;
    collector.set(Manner::Takes);

    has(&collector, "process", 1).await;
    has(&collector, "send", 1).await;
    assert_eq!(telemetry.spans().expect("spans are exported").dropped.get(), 0);
    outbox.shutdown().await;
    telemetry.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_those_of_the_page_for_prometheus() {
    let (db, collector, recorder) = (Sqlite::fresh().await, Collector::start(), Recorder::done());
    let to = CollectorConfig::at(format!("{}/v1/metrics", collector.origin()));
    let config =
        TelemetryConfig { metrics: Some(to), metric_interval: Duration::from_millis(20), ..TelemetryConfig::default() };
    let telemetry = Telemetry::start(&config).expect("good");
    assert!(telemetry.spans().is_none(), "nobody asked for spans");
    let builder = outbox(&db)
        .telemetry(&telemetry)
        .metrics(MetricsConfig { interval: Duration::from_secs(1), ..MetricsConfig::default() });
    let outbox = builder.listener(ROUTE, recorder.listener()).start().await.expect("starts");

    commit(&outbox, orders(3)).await;
    done(&db, 3).await;
    assert_eq!(header(&recorder.calls()[0]), None, "without traces nothing is said of them");
    eventually("the table was looked at", async || collector.sum("outbox.records", Some(("status", "done"))) == Some(3)).await;
    outbox.shutdown().await;
    let page = Scrape::of(&outbox.prometheus());
    telemetry.shutdown().await;

    let metrics = collector.metrics();
    let names: Vec<String> = metrics.iter().map(|metric| metric.name.replace('.', "_")).collect();
    for name in page.names() {
        let without = ["_bucket", "_sum", "_count", "_total"]
            .iter()
            .fold(name.as_str(), |name, end| name.strip_suffix(end).unwrap_or(name));
        let without = ["_seconds", "_bytes"].iter().fold(without, |name, end| name.strip_suffix(end).unwrap_or(name));
        // A metric without a number is left out.
        let has_numbers = page.sum(&name) > 0.0;
        assert!(!has_numbers || names.iter().any(|known| known == without), "{name} is not among {names:?}");
    }
    assert_eq!(collector.sum("outbox.events_written", None), Some(3));
    assert_eq!(collector.sum("outbox.dispatch", Some(("outcome", "success"))), Some(3));
    let duration = metrics.iter().find(|metric| metric.name == "outbox.dispatch_duration").expect("it is there");
    assert_eq!(duration.unit, "s");
    let Some(opentelemetry_proto::tonic::metrics::v1::metric::Data::Histogram(histogram)) = &duration.data else {
        panic!("{duration:?}")
    };
    let points = histogram.data_points.iter().filter(|point| point.count > 0).collect::<Vec<_>>();
    let [point] = points[..] else { panic!("{points:?}") };
    assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (3, 3));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert!(point.start_time_unix_nano > 0 && point.start_time_unix_nano < point.time_unix_nano);
}

/// Keeps the spans of a service that has OpenTelemetry set up by itself.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Kept {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().expect("nobody panics with it").push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Kept {
    fn provider(&self) -> SdkTracerProvider {
        SdkTracerProvider::builder().with_span_processor(self.clone()).build()
    }

    async fn has(&self, name: &str) -> SpanData {
        let find = || self.0.lock().expect("nobody panics with it").iter().find(|span| span.name == name).cloned();
        eventually(&format!("the span {name} has ended"), async || find().is_some()).await;
        find().expect("it was there")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_with_a_provider_of_its_own_has_the_same_spans_below_its_own() {
    let (db, kept, recorder) = (Sqlite::fresh().await, Kept::default(), Recorder::done());
    let provider = kept.provider();
    let own = provider.tracer("shop");
    let inside = own.clone();
    let listener = move |_: Arc<Event>| {
        inside.start("reserve");
        async { Ok(outbox::DispatchResult::Done) }
    };
    let builder =
        outbox(&db).tracer_provider(&provider).listener(ROUTE, listener).listener(("Order", "Paid"), recorder.listener());
    let outbox = builder.start().await.expect("starts");

    let context = Context::new().with_span(own.start("checkout"));
    let id = {
        let writing = commit(&outbox, vec![order(1)]);
        opentelemetry::trace::FutureExt::with_context(writing, context.clone()).await[0]
    };
    reaches(&db, id, Status::Done).await;
    context.span().end();

    let (checkout, send) = (kept.has("checkout").await, kept.has("send").await);
    let (process, reserve) = (kept.has("process").await, kept.has("reserve").await);
    assert_eq!(send.parent_span_id, checkout.span_context.span_id());
    assert_eq!(process.parent_span_id, send.span_context.span_id());
    assert_eq!(reserve.parent_span_id, process.span_context.span_id(), "the listener runs within its delivery");
    outbox.shutdown().await;
}

// One thread: the subscriber is that of the thread.
#[tokio::test]
async fn a_service_that_uses_tracing_has_the_same_spans_below_its_own() {
    let (db, kept) = (Sqlite::fresh().await, Kept::default());
    let provider = kept.provider();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let on_order = |_: u32, _: outbox::Context<()>| async {
        let _within = tracing::info_span!("reserve").entered();
        Answer::Ok(Done)
    };
    let outbox = outbox(&db).tracer_provider(&provider).listener_json("Order", "OrderPlaced", on_order);
    let outbox = outbox.start().await.expect("starts");

    tracing::Instrument::instrument(commit(&outbox, vec![order(1)]), tracing::info_span!("checkout")).await;
    done(&db, 1).await;

    let (checkout, send) = (kept.has("checkout").await, kept.has("send").await);
    let (process, reserve) = (kept.has("process").await, kept.has("reserve").await);
    assert_eq!(send.parent_span_id, checkout.span_context.span_id());
    assert_eq!(process.parent_span_id, send.span_context.span_id());
    assert_eq!(reserve.parent_span_id, process.span_context.span_id());
    outbox.shutdown().await;
}
