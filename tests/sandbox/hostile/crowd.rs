//! All that does harm at once, beside a good plugin and a native listener.

use std::collections::BTreeMap;
use std::time::Duration;

use outbox::listener::Cause;
use outbox::poller::PollerConfig;
use outbox::store::{Filter, Record};
use outbox::wasm::PluginsConfig;
use outbox::{DispatchResult, Outbox, SqliteStore, Status, Store};
use support::eventually;

use super::LIMITS;
use super::calls::{Evil, all};
use crate::common::{Directory, commit, database, event, sample};

/// Events of each guest: fewer than open its breaker.
const EACH: usize = 6;
const GOOD: usize = 600;

fn limits() -> String {
    LIMITS.replace("deadline = \"400ms\"", "deadline = \"250ms\"") + "\n[retry]\nmax_attempts = 1\n"
}

/// All guests but those of which one is enough: whoever waits keeps a worker.
fn corpus() -> Vec<(String, Evil)> {
    let route = |(number, mut evil): (usize, Evil)| {
        let name = format!("Evil{number}");
        evil.guest = evil.guest.routes(&[("Evil", &name)]);
        (name, evil)
    };
    all().into_iter().enumerate().map(route).collect()
}

async fn host(store: &SqliteStore, directory: &Directory) -> Outbox<SqliteStore> {
    let never = Duration::from_secs(3_600);
    Outbox::single_node(store.clone())
        .poller(PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() })
        .plugins_config(PluginsConfig {
            dir: directory.path().to_owned(),
            rescan_interval: never,
            debounce: never,
            ..PluginsConfig::default()
        })
        .listener(("Native", "Good"), async |_| Ok(DispatchResult::Done))
        .start()
        .await
        .expect("starts")
}

/// Writes good events a few at a time, and tells how long each took from its commit to its end, sorted, in microseconds.
async fn good_events(outbox: &Outbox<SqliteStore>, store: &SqliteStore) -> Vec<u64> {
    let mut took = Vec::new();
    for _ in 0..GOOD / 20 {
        let batch = (0..20).map(|n| if n % 2 == 0 { event("Bench", "Noop", "1") } else { event("Native", "Good", "1") });
        let ids = commit(outbox, batch.collect()).await;
        for id in ids {
            let row = async || store.get(id).await.expect("reads").expect("the row is there");
            eventually("a good event is done", async || row().await.status == Status::Done).await;
            let row = row().await;
            assert_eq!((row.attempts, row.claim_seq, row.last_error), (0, 1, None), "at once, once, and undisturbed");
            took.push(row.done_at.map_or(0, |done| u64::try_from(done.since(row.created_at).as_micros()).unwrap_or(0)));
        }
    }
    took.sort_unstable();
    took
}

fn percentile(sorted: &[u64], of_hundred: usize) -> u64 {
    sorted[(sorted.len() * of_hundred / 100).min(sorted.len() - 1)]
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_evil_at_once_hurts_no_neighbour_and_each_has_its_reason() {
    let directory = Directory::new();
    directory.put("noop.wasm", &sample("noop"));
    let corpus = corpus();
    for (name, evil) in &corpus {
        directory.put(&format!("{name}.toml"), limits().as_bytes());
        directory.put(&format!("{name}.wasm"), &evil.guest.build());
    }
    let (_db, store) = database().await;
    let outbox = host(&store, &directory).await;
    let loaded = outbox.plugins().expect("it has a directory").list();
    assert!(loaded.iter().all(|plugin| plugin.error.is_none()), "{loaded:?}");

    let alone = good_events(&outbox, &store).await;
    let before = resident();
    let mut evil_events = Vec::new();
    for _ in 0..EACH {
        evil_events.extend(corpus.iter().map(|(name, _)| event("Evil", name, "{\"a\": 1}")));
    }
    let evil_ids = commit(&outbox, evil_events).await;
    let beside = good_events(&outbox, &store).await;
    let mut ended: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for id in evil_ids {
        let row = async || store.get(id).await.expect("reads").expect("the row is there");
        eventually("an evil event is dead", async || row().await.status == Status::Dead).await;
        let row = row().await;
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
    let (p50, p99) = (percentile(&alone, 50), percentile(&alone, 99));
    let (p50_beside, p99_beside) = (percentile(&beside, 50), percentile(&beside, 99));
    println!(
        "{} evil plugins, {} evil events: a neighbour's event took p50 {p50} µs, p99 {p99} µs alone; p50 {p50_beside} µs, \
         p99 {p99_beside} µs beside them (p99 × {:.1}); resident memory {} MiB before, {} MiB after",
        corpus.len(),
        corpus.len() * EACH,
        p99_beside as f64 / p99.max(1) as f64,
        before >> 10,
        after >> 10,
    );
    outbox.shutdown().await;
}
