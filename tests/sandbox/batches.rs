//! `on-events`: events that are with a listener at the same time go into one call.

use std::fs;

use outbox::store::{Filter, InspectStore, Record};
use outbox::{Envelope, Outbox, SqliteStore, Status};
use support::{Sqlite, eventually, sample_languages};
use tokio::time::Instant;

use crate::common::{Directory, commit, database, event, host, sample};

const MANIFEST: &str = r#"
emit = true
isolation = "batch"
[retry]
policy = "fixed"
base = "10ms"
max_attempts = 2
"#;

struct Batches {
    db: Sqlite,
    store: SqliteStore,
    _directory: Directory,
    outbox: Outbox<SqliteStore>,
}

impl Batches {
    async fn with(manifest: &str) -> Self {
        Self::of(&sample("batches"), manifest).await
    }

    /// The same plugin in Go, by its SDK.
    async fn in_go() -> Self {
        let file = sample_languages().join("batches-go.wasm");
        let component = fs::read(&file).unwrap_or_else(|error| panic!("{} is not there: {error}", file.display()));
        Self::of(&component, MANIFEST).await
    }

    async fn of(component: &[u8], manifest: &str) -> Self {
        let directory = Directory::new();
        directory.put("batches.toml", manifest.as_bytes());
        directory.put("batches.wasm", component);
        let (db, store) = database().await;
        let outbox = host(store.clone(), &directory).await;
        Self { db, store, _directory: directory, outbox }
    }

    /// Commits events with these payloads together, and returns their rows once all have ended.
    async fn ended(&self, payloads: &[&str]) -> Vec<Record> {
        self.all_ended(payloads.iter().map(|payload| with_payload(payload)).collect()).await
    }

    /// Commits these events together, and returns their rows once all have ended.
    async fn all_ended(&self, envelopes: Vec<Envelope>) -> Vec<Record> {
        let ids = commit(&self.outbox, envelopes).await;
        let mut rows = Vec::new();
        for id in ids {
            let row = || async { self.store.get(id).await.expect("reads").expect("the row is there") };
            eventually("the event has ended", async || matches!(row().await.status, Status::Done | Status::Dead)).await;
            rows.push(row().await);
        }
        rows
    }

    async fn stop(self) {
        self.outbox.shutdown().await;
        drop(self.db);
    }
}

fn with_payload(payload: &str) -> Envelope {
    event("Batches", "Do", &format!("\"{payload}\""))
}

fn reason(row: &Record) -> &str {
    row.last_error.as_deref().unwrap_or_default()
}

/// The number of events in the call of a dead event, from its reason; `None` if the reason has no number.
fn events_in_call(row: &Record) -> Option<usize> {
    reason(row).rsplit_once("one of ").and_then(|(_, size)| size.trim().parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_come_together_go_into_one_call_and_each_has_its_own_answer() {
    each_has_its_own_answer(Batches::with(MANIFEST).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_come_together_go_into_one_call_of_a_plugin_in_go_and_each_has_its_own_answer() {
    each_has_its_own_answer(Batches::in_go().await).await;
}

/// Many events together: those that fail say of how many they were one, and fail alone.
async fn each_has_its_own_answer(batches: Batches) {
    let payloads = [vec!["count"; 60], ["fail", "done"].repeat(20)].concat();
    let rows = batches.ended(&payloads).await;
    let mut together = Vec::new();
    for (row, payload) in rows.iter().zip(&payloads) {
        let said = reason(row);
        let size = events_in_call(row);
        match *payload {
            "done" => assert_eq!((row.status, row.attempts, said), (Status::Done, 0, "")),
            _ => {
                let size = size.unwrap_or_else(|| panic!("it came with others: {said}"));
                assert!(row.status == Status::Dead && size <= 100, "{said}");
                together.extend((size > 1).then_some(*payload));
            }
        }
    }
    for payload in ["count", "fail"] {
        assert!(together.contains(&payload), "some of those that {payload} were in a call with others: {together:?}");
    }
    batches.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_event_that_breaks_a_call_pays_for_it() {
    only_the_breaker_pays(Batches::with(MANIFEST).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_event_that_breaks_a_call_of_a_plugin_in_go_pays_for_it() {
    only_the_breaker_pays(Batches::in_go().await).await;
}

async fn only_the_breaker_pays(batches: Batches) {
    let mut payloads = vec!["done"; 40];
    payloads[17] = "trap";
    let rows = batches.ended(&payloads).await;
    for (row, payload) in rows.iter().zip(&payloads) {
        match *payload {
            "trap" => {
                assert_eq!((row.status, row.attempts), (Status::Dead, 2), "{}", reason(row));
                assert!(reason(row).starts_with("trap: "), "{}", reason(row));
            }
            _ => assert_eq!((row.status, row.attempts), (Status::Done, 0), "{}", reason(row)),
        }
    }
    batches.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_breaks_or_answers_too_little_is_made_again_one_event_at_a_time_and_costs_no_attempt() {
    let batches = Batches::with(MANIFEST).await;
    for spoiler in ["alone", "short"] {
        let mut payloads = vec!["done"; 20];
        payloads[7] = spoiler;
        for row in batches.ended(&payloads).await {
            assert_eq!((row.status, row.attempts), (Status::Done, 0), "{spoiler}: {}", reason(&row));
        }
    }
    batches.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_break_off_again_and_again_are_given_up_for_a_while_and_open_no_breaker() {
    let batches = Batches::with(MANIFEST).await;
    for _ in 0..12 {
        let rows = batches.ended(&["alone"]).await;
        assert_eq!((rows[0].status, rows[0].attempts), (Status::Done, 0), "{}", reason(&rows[0]));
    }
    let route = ("Batches", "Do").try_into().expect("a good route");
    let listener = batches.outbox.listeners().find(&route).expect("the plugin answers it");
    assert!(!listener.has_open_breaker(&listener.registration.route, Instant::now()), "each event was done");
    let counts = batches.outbox.metrics().calls.counts();
    let calls: u64 = counts.values().map(|counts| counts.calls).sum();
    assert_eq!(calls, 12 + 3, "each event alone, and three calls that broke off");
    batches.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_breaks_calls_opens_no_breaker_for_the_others() {
    let batches = Batches::with(MANIFEST).await;
    let route = ("Batches", "Do").try_into().expect("a good route");
    let listener = batches.outbox.listeners().find(&route).expect("the plugin answers it");
    for _ in 0..5 {
        let mut payloads = vec!["done"; 40];
        payloads[20] = "trap";
        let rows = batches.ended(&payloads).await;
        assert!(rows.iter().enumerate().all(|(place, row)| place == 20 || row.status == Status::Done));
    }
    assert!(!listener.has_open_breaker(&listener.registration.route, Instant::now()), "195 of 200 events are done");
    batches.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_that_belong_to_one_event_are_refused_in_a_call_for_several() {
    let batches = Batches::with(MANIFEST).await;
    let rows = batches.ended(&["emit"; 3]).await;
    for row in &rows {
        assert_eq!(row.status, Status::Dead);
        assert!(reason(row).ends_with("emit can be used in on-event only"), "{}", reason(row));
    }
    let emitted = Filter { event_type: Some("Emitted".to_owned()), ..Filter::default() };
    assert!(batches.store.list(&emitted, 10).await.expect("lists").is_empty());
    batches.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_count_for_the_size_of_a_call() {
    // Four of these events fit into one call, and five do not.
    const MAX_CALL_BYTES: usize = 1 << 20;
    const HEADER_BYTES: usize = 250_000;
    let batches = Batches::with(MANIFEST).await;
    let header = "x".repeat(HEADER_BYTES);
    let payloads = ["count", "done"].repeat(20);
    let with_header =
        |payload: &&str| with_payload(payload).with(|event| event.header("large", header.as_str())).expect("a good envelope");

    let rows = batches.all_ended(payloads.iter().map(with_header).collect()).await;

    let mut largest = 0;
    for (row, payload) in rows.iter().zip(&payloads) {
        if *payload == "done" {
            assert_eq!((row.status, row.attempts, reason(row)), (Status::Done, 0, ""));
            continue;
        }
        let events = events_in_call(row).unwrap_or_else(|| panic!("it came with others: {}", reason(row)));
        assert!(events * HEADER_BYTES <= MAX_CALL_BYTES, "{events} events in one call");
        largest = largest.max(events);
    }
    assert!(largest > 1, "some events were in a call with others");
    batches.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_batches_in_the_manifest_every_event_has_a_call_of_its_own() {
    let batches = Batches::with("emit = true").await;
    for row in batches.ended(&["count"; 20]).await {
        assert!(reason(&row).ends_with("alone"), "{}", reason(&row));
    }
    batches.stop().await;
}
