//! The plugin that fails in all the ways.

use std::time::Duration;

use outbox::store::{Filter, InspectStore, Record};
use outbox::{Envelope, EventId, Outbox, SqliteStore, Status};
use support::eventually;

use crate::common::{Directory, commit, database, event, host, sample};

/// Two attempts and short limits, so that a test need not wait for the default ones.
const MANIFEST: &str = r#"
[limits]
deadline = "700ms"
memory = "16MiB"
host_calls = 500

[retry]
policy = "fixed"
base = "10ms"
max_attempts = 2
"#;

/// What an event of the route `Trouble` comes to in the end: its state, its counted attempts, the beginning of its last error.
const ENDINGS: [(&str, &str, Status, u32, &str); 20] = [
    ("Done", "1", Status::Done, 0, ""),
    ("Dead", "1", Status::Dead, 0, "as asked"),
    ("Unrecoverable", "1", Status::Dead, 0, "as asked"),
    ("Retryable", "1", Status::Dead, 2, "as asked"),
    ("RetryableAfter", r#"{"ms":1}"#, Status::Dead, 2, "as asked"),
    ("FlakyUntil", r#"{"attempt":2}"#, Status::Done, 1, "attempt 1 of 2"),
    ("Panic", "1", Status::Dead, 2, "trap: panicked: as asked; at "),
    ("Loop", "1", Status::Dead, 2, "fuel:"),
    ("Sleep", "1", Status::Dead, 2, "deadline:"),
    ("Memory", "1", Status::Dead, 2, "memory:"),
    ("Recurse", "1", Status::Dead, 2, "stack:"),
    ("LogFlood", "1", Status::Dead, 2, "host-calls:"),
    ("StdoutFlood", "1", Status::Dead, 2, "host-calls:"),
    ("ClockFlood", "1", Status::Dead, 2, "host-calls:"),
    ("BigAnswer", "1", Status::Dead, 2, "output:"),
    ("StdoutLine", "1", Status::Dead, 2, "host-calls:"),
    ("Files", "1", Status::Dead, 0, "reached nothing"),
    ("Sockets", "1", Status::Dead, 0, "reached nothing"),
    ("Names", "1", Status::Dead, 0, "reached nothing"),
    ("Environment", "1", Status::Dead, 0, "reached nothing"),
];

async fn record(store: &SqliteStore, id: EventId) -> Record {
    store.get(id).await.expect("reads").expect("the row is there")
}

async fn trouble() -> (support::Sqlite, SqliteStore, Directory, Outbox<SqliteStore>) {
    let directory = Directory::new();
    directory.put("trouble.toml", MANIFEST.as_bytes());
    directory.put("trouble.wasm", &sample("trouble"));
    directory.put("noop.wasm", &sample("noop"));
    let (db, store) = database().await;
    let outbox = host(store.clone(), &directory).await;
    (db, store, directory, outbox)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_way_to_fail_has_its_own_reason_and_walks_its_retries() {
    let (_db, store, _directory, outbox) = trouble().await;
    for (event_type, payload, status, attempts, error) in ENDINGS {
        let id = commit(&outbox, vec![event("Trouble", event_type, payload)]).await[0];

        eventually(&format!("{event_type} is {status}"), async || record(&store, id).await.status == status).await;

        let row = record(&store, id).await;
        assert_eq!(row.attempts, attempts, "{event_type}");
        let last_error = row.last_error.unwrap_or_default();
        assert!(last_error.starts_with(error), "{event_type}: {last_error:?} does not begin with {error:?}");
        assert!(last_error.chars().count() <= 4_000, "{event_type}");
    }
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_for_later_counts_no_attempt() {
    let (_db, store, _directory, outbox) = trouble().await;
    let id = commit(&outbox, vec![event("Trouble", "RetryAfter", r#"{"ms":60000}"#)]).await[0];

    eventually("the event is put off", async || record(&store, id).await.deferrals == 1).await;

    let row = record(&store, id).await;
    assert_eq!((row.status, row.attempts), (Status::New, 0));
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_failing_events_hurts_no_other_plugin() {
    let (_db, store, _directory, outbox) = trouble().await;
    let bad = [("Loop", "fuel:"), ("Panic", "trap:"), ("Memory", "memory:"), ("Recurse", "stack:"), ("BigAnswer", "output:")];
    // By turns, so that every good event comes right after one that breaks.
    let (trouble, good) = (0..200).map(|n| (event("Trouble", bad[n % bad.len()].0, "1"), event("Bench", "Noop", "1"))).unzip();
    let (trouble, good): (Vec<Envelope>, Vec<Envelope>) = (trouble, good);
    let ids = commit(&outbox, trouble.into_iter().zip(good).flat_map(|(bad, good)| [bad, good]).collect()).await;

    for (number, pair) in ids.chunks(2).enumerate() {
        let [bad, good] = pair else { panic!("they were written in pairs") };
        eventually("a good event is done", async || record(&store, *good).await.status == Status::Done).await;
        let row = record(&store, *good).await;
        assert_eq!((row.attempts, row.claim_seq, row.last_error), (0, 2, None), "number {number}: at once, undisturbed");
        assert_ne!(record(&store, *bad).await.status, Status::Done, "number {number}");
    }
    for (event_type, error) in bad {
        let of_type = Filter { event_type: Some(event_type.to_owned()), error: Some(error.to_owned()), ..Filter::default() };
        eventually(&format!("{event_type} broke its instance"), async || {
            let broken = store.list(&of_type, 10).await.expect("lists");
            broken.iter().any(|row| row.last_error.as_deref().is_some_and(|text| text.starts_with(error)))
        })
        .await;
    }
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_instance_has_nothing_of_an_earlier_event() {
    let (_db, store, _directory, outbox) = trouble().await;

    let ids = commit(&outbox, (0..20).map(|_| event("Trouble", "Counter", "1")).collect()).await;

    for id in ids {
        eventually("the event is dead", async || record(&store, id).await.status == Status::Dead).await;
        assert_eq!(record(&store, id).await.last_error.as_deref(), Some("count 1"));
    }
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_a_guest_that_sleeps_longer_than_the_drain() {
    let (_db, store, directory, outbox) = trouble().await;
    outbox.shutdown().await;
    directory.put("trouble.toml", b"[limits]\ndeadline = \"15s\"\n");
    let outbox = Outbox::single_node(store.clone())
        .dispatcher(outbox::dispatcher::DispatcherConfig { drain_timeout: Duration::from_millis(200), ..Default::default() })
        .plugins_config(directory.config())
        .start()
        .await
        .expect("starts");
    let id = commit(&outbox, vec![event("Trouble", "Sleep", "1")]).await[0];
    eventually("the guest sleeps", async || outbox.in_flight() == 1 && outbox.queue_depth() == (0, 0)).await;

    support::in_time("the stop ends", outbox.shutdown()).await;

    let row = record(&store, id).await;
    assert_eq!((row.status, row.attempts, row.claims, row.locked_by), (Status::New, 0, 0, None), "given back, not counted");
}
