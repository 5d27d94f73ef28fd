//! What a host shows of itself: metrics for Prometheus, and whether it is ready.

use std::io::Write;
use std::time::{Duration, Instant};

use outbox::dispatcher::DispatcherConfig;
use outbox::metrics::MetricsConfig;
use outbox::readiness::UnreadyCode;
use outbox::{DispatchResult, Envelope, Failure, Outbox, Status};
use support::{Database, Harness, Recorder, Scrape, Sqlite, eventually, promtool};

use crate::common::{HOUR, at_rest, commit, done, order, orders, outbox, reaches, row, without_grace};

/// Looks at the table as often as is allowed.
fn often() -> MetricsConfig {
    MetricsConfig { interval: Duration::from_secs(1), ..MetricsConfig::default() }
}

/// Answers as the payload says.
fn obedient() -> Recorder {
    Recorder::answering(|event| match event.payload::<String>().expect("a text").as_str() {
        "fail" => Err(Failure::retryable("as asked")),
        "dead" => Ok(DispatchResult::Dead(Some("as asked".to_owned()))),
        "later" => Ok(DispatchResult::RetryAfter(HOUR)),
        _ => Ok(DispatchResult::Done),
    })
}

fn asking(event_type: &str, what: &str) -> Envelope {
    Envelope::new(event_type).aggregate("Order", "1").json(&what).expect("good")
}

pub(crate) async fn every_outcome_is_counted_for_its_route_and_every_number_of_the_table_is_shown(db: &impl Database) {
    let recorder = obedient();
    let builder = outbox(db).dispatcher(without_grace()).metrics(often());
    let builder = builder.listener(("Order", "Placed"), recorder.listener()).listener(("Order", "Paid"), recorder.listener());
    let outbox = builder.start().await.expect("starts");

    let ids = commit(
        &outbox,
        vec![
            asking("Placed", "done"),
            asking("Placed", "fail"),
            asking("Placed", "dead"),
            asking("Placed", "later"),
            asking("Paid", "done"),
            asking("Nobodys", "x"),
        ],
    )
    .await;
    done(db, 2).await;
    for id in [ids[2], ids[5]] {
        reaches(db, id, Status::Dead).await;
    }
    reaches(db, ids[1], Status::Retry).await;
    eventually("the listener has asked for later", async || row(db, ids[3]).await.deferrals == 1).await;
    at_rest(&outbox).await;
    // All of them at once: a look that came too early would show some of these numbers, too.
    let in_the_table = [("new", 1.0), ("retry", 1.0), ("done", 2.0), ("dead", 2.0), ("parked", 0.0), ("blocked", 0.0)];
    eventually("the table was looked at since", async || {
        let scrape = Scrape::of(&outbox.prometheus());
        let records = |status| scrape.value(&format!("outbox_records{{status=\"{status}\"}}"));
        in_the_table.iter().all(|(status, count)| records(status) == Some(*count))
    })
    .await;

    let text = outbox.prometheus();
    let scrape = Scrape::of(&text);
    let counted = |event_type: &str, outcome: &str| {
        let of = format!("outbox_dispatch_total{{aggregate_type=\"Order\",event_type=\"{event_type}\",outcome=\"{outcome}\"}}");
        scrape.value(&of)
    };
    for outcome in ["success", "failure", "dead", "deferred"] {
        assert_eq!(counted("Placed", outcome), Some(1.0), "{outcome}:\n{text}");
        assert_eq!(counted("Paid", outcome), Some(f64::from(u8::from(outcome == "success"))), "{outcome}:\n{text}");
    }
    assert_eq!(counted("Nobodys", "dead"), None, "what nobody answers takes up no labels");
    let other = "outbox_dispatch_total{aggregate_type=\"other\",event_type=\"other\",outcome=\"dead\"}";
    assert_eq!(scrape.value(other), Some(1.0), "{text}");
    let of_placed = |name: &str| scrape.value(&format!("outbox_{name}{{aggregate_type=\"Order\",event_type=\"Placed\"}}"));
    assert_eq!(of_placed("dispatch_duration_seconds_count"), Some(4.0), "{text}");
    assert_eq!(of_placed("delivery_lag_seconds_count"), Some(1.0), "only what was delivered has a lag:\n{text}");
    for cause in ["waits_for_host", "given_back", "no_listener"] {
        let age = scrape.value(&format!("outbox_oldest_pending_seconds{{cause=\"{cause}\"}}"));
        assert_eq!(age, Some(0.0), "nothing that is due waits:\n{text}");
    }
    assert_eq!(scrape.value("outbox_sample_success"), Some(1.0));
    assert_eq!(scrape.value("outbox_events_written_total"), Some(6.0));
    assert_eq!(scrape.value("outbox_enqueued_total{path=\"hot\"}"), Some(6.0), "{text}");
    let build = format!(
        "outbox_build_info{{version=\"{}\",database=\"{}\",mode=\"single_node\"}}",
        env!("CARGO_PKG_VERSION"),
        db.store().kind()
    );
    assert_eq!(scrape.value(&build), Some(1.0), "{text}");
    assert!(outbox.readiness().is_ready(), "{:?}", outbox.readiness());
    promtool(&["check", "metrics"], &text);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_totals_of_the_routes_are_those_of_the_host_also_of_events_that_no_listener_saw() {
    let db = Sqlite::fresh().await;
    db.execute("INSERT INTO outbox_event (event_id, event_type, payload, headers) VALUES ('bad', 'X', '1', '{broken')").await;
    let recorder = obedient();
    let builder = outbox(&db).metrics(MetricsConfig { max_routes: 1, ..often() });
    let builder = builder.listener(("Order", "Placed"), recorder.listener()).listener(("Order", "Paid"), recorder.listener());
    let outbox = builder.start().await.expect("starts");

    commit(&outbox, vec![asking("Placed", "done")]).await;
    done(&db, 1).await;
    commit(&outbox, vec![asking("Paid", "done"), asking("Paid", "dead"), asking("Placed", "done")]).await;
    done(&db, 3).await;
    reaches(&db, "bad".parse().expect("an id"), Status::Dead).await;
    eventually("both are dead", async || db.store().stats().await.expect("counts").dead == 2).await;
    at_rest(&outbox).await;

    let scrape = Scrape::of(&outbox.prometheus());
    let counted = |route: &str, outcome: &str| {
        let (aggregate_type, event_type) = route.split_once('/').expect("two halves");
        let labels = format!("aggregate_type=\"{aggregate_type}\",event_type=\"{event_type}\",outcome=\"{outcome}\"");
        scrape.value(&format!("outbox_dispatch_total{{{labels}}}"))
    };
    assert_eq!(counted("Order/Placed", "success"), Some(2.0), "the first to have an event has labels of its own");
    assert_eq!(counted("Order/Paid", "success"), None);
    assert_eq!((counted("other/other", "success"), counted("other/other", "dead")), (Some(1.0), Some(2.0)));
    let counts = outbox.metrics().counts();
    assert_eq!((counts.dispatch_success, counts.dispatch_dead), (3, 2), "the same as the sums of the routes");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_series_of_a_registered_route_is_there_before_its_first_event() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let routes = 500;
    let builder = outbox(&db).metrics(MetricsConfig { max_routes: routes, ..MetricsConfig::default() });
    let builder = (0..routes)
        .fold(builder, |builder, number| builder.listener((format!("Order{number}"), "OrderPlaced"), recorder.listener()));
    let outbox = builder.start().await.expect("starts");

    let began = Instant::now();
    let text = outbox.prometheus();
    let took = began.elapsed();

    // Prometheus sees an increase only of a series that it has seen before.
    let scrape = Scrape::of(&text);
    for number in [0, 1, routes - 1] {
        for outcome in ["success", "failure", "dead", "deferred"] {
            let labels = format!("aggregate_type=\"Order{number}\",event_type=\"OrderPlaced\",outcome=\"{outcome}\"");
            assert_eq!(scrape.value(&format!("outbox_dispatch_total{{{labels}}}")), Some(0.0), "{labels}");
        }
    }
    assert_eq!(scrape.sum("outbox_dispatch_total"), 0.0);
    assert!(scrape.series() > 42 * routes, "only {} series", scrape.series());
    let _ = writeln!(
        std::io::stderr(),
        "a page of {routes} routes: {} series, {} kB, {took:?}",
        scrape.series(),
        text.len() / 1_000
    );
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_written_to_break_the_page_stays_inside_its_label() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::done();
    let evil = "a\"} 1 # \\ {x=\"";
    let builder = outbox(&db).metrics(MetricsConfig { prefix: "shop_outbox".to_owned(), ..MetricsConfig::default() });
    let outbox = builder.listener((evil, evil), recorder.listener()).start().await.expect("starts");

    commit(&outbox, vec![Envelope::new(evil).aggregate(evil, "1").json(&1).expect("good")]).await;
    done(&db, 1).await;

    let text = outbox.prometheus();
    let scrape = Scrape::of(&text);
    assert!(scrape.names().iter().all(|name| name.starts_with("shop_outbox_")), "{:?}", scrape.names());
    assert_eq!(scrape.sum("shop_outbox_delivery_lag_seconds_count"), 1.0, "{text}");
    promtool(&["check", "metrics"], &text);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_table_is_looked_at_for_metrics_that_nobody_asked_for() {
    let db = Sqlite::fresh().await;
    let outbox = outbox(&db).start().await.expect("starts");
    commit(&outbox, vec![order(1)]).await;

    let scrape = Scrape::of(&outbox.prometheus());

    assert_eq!(scrape.value("outbox_events_written_total"), Some(1.0), "what is counted in memory is there");
    assert_eq!((scrape.value("outbox_sample_success"), scrape.sum("outbox_records")), (None, 0.0));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_gone_is_shown_as_nothing_and_not_as_empty_and_the_host_is_not_ready() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let outbox = outbox(&db).metrics(often()).listener(("Order", "OrderPlaced"), recorder.listener());
    let outbox = outbox.start().await.expect("starts");
    commit(&outbox, orders(3)).await;
    let seen = || Scrape::of(&outbox.prometheus()).value("outbox_records{status=\"new\"}");
    eventually("three are counted", async || seen() == Some(3.0)).await;

    db.execute("ALTER TABLE outbox_event RENAME TO away").await;

    eventually("nothing is shown of a table that is not there", async || seen().is_none()).await;
    let scrape = Scrape::of(&outbox.prometheus());
    assert_eq!((scrape.value("outbox_sample_success"), scrape.sum("outbox_records")), (Some(0.0), 0.0));
    assert_eq!(scrape.value("outbox_oldest_pending_seconds{cause=\"waits_for_host\"}"), None);
    assert!(scrape.sum("outbox_db_errors_total") > 0.0);
    eventually("the poller is told to be stuck", async || {
        outbox.readiness().reasons().iter().any(|reason| reason.code == UnreadyCode::PollerStuck)
    })
    .await;
    db.execute("ALTER TABLE away RENAME TO outbox_event").await;
    eventually("the host is ready again", async || outbox.readiness().is_ready()).await;
    eventually("three are counted again", async || seen() == Some(3.0)).await;
    recorder.finish(3);
    done(&db, 3).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_stops_says_so_to_whoever_kept_its_monitor() {
    let db = Sqlite::fresh().await;
    let recorder = Recorder::held();
    let config = DispatcherConfig { drain_timeout: HOUR, ..DispatcherConfig::default() };
    let outbox = outbox(&db).dispatcher(config).listener(("Order", "OrderPlaced"), recorder.listener());
    let outbox = outbox.start().await.expect("starts");
    commit(&outbox, vec![order(1)]).await;
    recorder.started().await;
    let monitor = outbox.monitor();
    assert!(monitor.readiness().is_ready(), "{:?}", monitor.readiness());

    let stopping = tokio::spawn(outbox.shutdown());
    let stops =
        || monitor.readiness().reasons().iter().map(|reason| reason.code).collect::<Vec<_>>() == [UnreadyCode::Stopping];
    eventually("it says that it stops while it drains", async || stops()).await;
    recorder.finish(1);
    stopping.await.expect("it ends well");

    assert!(stops(), "and afterwards");
    let counted = Scrape::of(&monitor.prometheus()).value("outbox_in_flight");
    assert_eq!(counted, Some(0.0), "what was counted can still be read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_only_writes_is_ready_and_asks_nothing_of_the_table() {
    let db = Sqlite::fresh().await;
    let outbox = Outbox::writer_only(db.typed()).metrics(often()).start().await.expect("starts");
    commit(&outbox, orders(2)).await;

    let scrape = Scrape::of(&outbox.prometheus());

    assert!(outbox.readiness().is_ready(), "{:?}", outbox.readiness());
    assert_eq!(scrape.value("outbox_events_written_total"), Some(2.0));
    assert_eq!(scrape.value("outbox_sample_success"), None, "it may lack the right to read");
    outbox.shutdown().await;
}
