//! All that does harm at once, beside a good plugin and a native listener.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outbox::listener::Cause;
use outbox::poller::PollerConfig;
use outbox::store::{Filter, InspectStore, Record};
use outbox::{DispatchResult, Envelope, Event, EventId, Outbox, SqliteStore, Status};
use support::eventually;

use super::LIMITS;
use super::calls::{Evil, all};
use super::fuzz::tell;
use crate::common::{Directory, commit, database, event, sample};

/// Events of each guest: fewer than open its breaker.
const EACH: usize = 6;
const GOOD: usize = 600;
const BATCH: usize = 20;

/// A guest that waits meets its deadline soon; one that computes has the time to come to its own end beside all the others.
fn limits(cause: Cause) -> String {
    let deadline = if cause == Cause::Deadline { "250ms" } else { "5s" };
    LIMITS.replace("deadline = \"1s\"", &format!("deadline = \"{deadline}\"")) + "\n[retry]\nmax_attempts = 1\n"
}

/// All guests, each with a route of its own.
fn corpus() -> Vec<(String, Evil)> {
    let route = |(number, mut evil): (usize, Evil)| {
        let name = format!("Evil{number}");
        evil.guest = evil.guest.routes(&[("Evil", &name)]);
        (name, evil)
    };
    all().into_iter().enumerate().map(route).collect()
}

/// When the native listener was called, for each event.
type Called = Arc<Mutex<HashMap<EventId, Instant>>>;

async fn host(store: &SqliteStore, directory: &Directory, called: &Called) -> Outbox<SqliteStore> {
    let called = called.clone();
    Outbox::single_node(store.clone())
        .poller(PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() })
        .plugins_config(directory.config_without_watch())
        .listener(("Native", "Good"), move |event: Arc<Event>| {
            called.lock().expect("nobody panics").insert(event.id(), Instant::now());
            async { Ok(DispatchResult::Done) }
        })
        .start()
        .await
        .expect("starts")
}

/// How long good events took, in microseconds; sorted.
#[derive(Default)]
struct Took {
    /// From the end of a commit to the call of the native listener.
    to_the_call: Vec<u64>,
    /// From the row to its end, and in which round.
    to_the_end: Vec<(u64, usize)>,
}

/// Writes good events a few at a time, and others with them.
async fn good_events(
    outbox: &Outbox<SqliteStore>,
    store: &SqliteStore,
    called: &Called,
    mut others: impl Iterator<Item = Vec<Envelope>>,
) -> Took {
    let micros = |took: Duration| u64::try_from(took.as_micros()).expect("it is short");
    let mut took = Took::default();
    for round in 0..GOOD / BATCH {
        if let Some(others) = others.next() {
            commit(outbox, others).await;
        }
        let good = (0..BATCH).map(|n| if n % 2 == 0 { event("Bench", "Noop", "1") } else { event("Native", "Good", "1") });
        let ids = commit(outbox, good.collect()).await;
        let committed = Instant::now();
        for id in ids {
            let row = async || store.get(id).await.expect("reads").expect("the row is there");
            eventually("a good event is done", async || row().await.status == Status::Done).await;
            let row = row().await;
            assert_eq!((row.attempts, row.claim_seq, row.last_error), (0, 2, None), "at once, once, and undisturbed");
            let end = row.done_at.expect("it is done");
            took.to_the_end.push((micros(end.since(row.created_at)), round));
            if let Some(at) = called.lock().expect("nobody panics").remove(&id) {
                took.to_the_call.push(micros(at.saturating_duration_since(committed)));
            }
        }
    }
    took.to_the_end.sort_unstable();
    took.to_the_call.sort_unstable();
    took
}

fn percentile(mut sorted: impl ExactSizeIterator<Item = u64>, of_hundred: usize) -> u64 {
    let count = sorted.len();
    sorted.nth((count * of_hundred / 100).min(count - 1)).expect("there is one")
}

/// The median and the 99th of a hundred, alone and beside others.
fn compared(what: &str, alone: impl Fn(usize) -> u64, beside: impl Fn(usize) -> u64) -> String {
    let factor = beside(99) as f64 / alone(99).max(1) as f64;
    let [p50, p99, p50_beside, p99_beside] = [alone(50), alone(99), beside(50), beside(99)];
    format!(
        "{what}: p50 {p50} µs, p99 {p99} µs alone; p50 {p50_beside} µs, p99 {p99_beside} µs beside them (p99 × {factor:.1})"
    )
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_attacks_at_once_hurt_no_other_plugin_and_each_has_its_reason() {
    let directory = Directory::new();
    directory.put("noop.wasm", &sample("noop"));
    let corpus = corpus();
    for (name, evil) in &corpus {
        directory.put(&format!("{name}.toml"), limits(evil.cause).as_bytes());
        directory.put(&format!("{name}.wasm"), &evil.guest.build());
    }
    let (_db, store) = database().await;
    let called = Called::default();
    let outbox = host(&store, &directory, &called).await;
    let loaded = outbox.plugins().expect("it has a directory").list();
    assert!(loaded.iter().all(|plugin| plugin.error.is_none()), "{loaded:?}");

    let alone = good_events(&outbox, &store, &called, std::iter::empty()).await;
    let before = resident();
    let evil: Vec<Envelope> =
        (0..EACH).flat_map(|_| corpus.iter().map(|(name, _)| event("Evil", name, "{\"a\": 1}"))).collect();
    let total = evil.len();
    // Spread over the good ones: a queue that others have filled is another matter.
    let each = total.div_ceil(GOOD / BATCH);
    let beside = good_events(&outbox, &store, &called, evil.chunks(each).map(<[Envelope]>::to_vec)).await;
    let of_evil = Filter { aggregate_type: Some("Evil".to_owned()), status: Some(Status::Dead), ..Filter::default() };
    let dead = async || store.list(&of_evil, 1_000).await.expect("lists");
    eventually("every evil event is dead", async || dead().await.len() == total).await;
    let mut ended: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for row in dead().await {
        ended.entry(row.event_type.clone()).or_default().push(row);
    }
    let after = resident();

    for (name, Evil { name: what, cause, .. }) in &corpus {
        let rows = &ended[name];
        assert_eq!(rows.len(), EACH);
        for row in rows {
            let error = row.last_error.clone().unwrap_or_default();
            // On a machine that has no time left, whatever computes may meet its deadline first.
            let late = error.starts_with(Cause::Deadline.code());
            assert!(error.starts_with(&format!("{}: ", cause.code())) || late, "a guest that {what}: {error}");
        }
        let right = rows.iter().filter(|row| row.last_error.as_deref().is_some_and(|error| error.starts_with(cause.code())));
        assert!(right.count() > 0, "a guest that {what} never had its own reason");
    }
    let emitted = Filter { event_type: Some("E".to_owned()), ..Filter::default() };
    assert!(store.list(&emitted, 10).await.expect("lists").is_empty(), "nothing that failed has emitted");
    let last = outbox.metrics().counts();
    assert_eq!(last.fenced_outcomes, 0, "nothing was delivered twice");
    let to_the_call = |took: &Took, of_hundred| percentile(took.to_the_call.iter().copied(), of_hundred);
    let to_the_end = |took: &Took, of_hundred| percentile(took.to_the_end.iter().map(|(took, _)| *took), of_hundred);
    tell(&format!(
        "{} evil plugins, {} evil events; a neighbour's event, {}; {}; resident memory {} MiB before, {} MiB after",
        corpus.len(),
        total,
        compared("from its commit to its call", |p| to_the_call(&alone, p), |p| to_the_call(&beside, p)),
        compared("from its row to its end", |p| to_the_end(&alone, p), |p| to_the_end(&beside, p)),
        before >> 10,
        after >> 10,
    ));
    let slowest = beside.to_the_end.last().map_or(0, |(_, round)| *round);
    let there: Vec<&str> = evil_in(slowest, each, &corpus);
    tell(&format!("in the slowest round, beside it were guests that: {}", there.join("; ")));
    outbox.shutdown().await;
}

/// What the evil events of a round do.
fn evil_in(round: usize, each: usize, corpus: &[(String, Evil)]) -> Vec<&'static str> {
    (round * each..(round + 1) * each).map(|index| corpus[index % corpus.len()].1.name).collect()
}
