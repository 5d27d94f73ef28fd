//! `plugins.memory`: what all guests of a host may have together.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use outbox::dispatcher::DispatcherConfig;
use outbox::sink::{Message, Sink, SinkError, Sinks};
use outbox::store::InspectStore;
use outbox::units::ByteSize;
use outbox::wasm::{Manifest, PluginHost, PluginsConfig};
use outbox::{Envelope, Event, Outbox, Status};
use support::eventually;
use tokio::sync::Semaphore;

use crate::common::{Directory, commit, database, event, sample};

const MANIFEST: &str = "publish.sinks = ['orders']";
const DEED: &str = r#"{"publish":["orders"],"then":"done"}"#;

/// Holds every message until it is let go, and counts how many it holds.
struct Holding {
    held: AtomicUsize,
    most: AtomicUsize,
    let_go: Semaphore,
    ids: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl Sink for Holding {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let held = self.held.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(held, Ordering::SeqCst);
        self.let_go.acquire().await.expect("never closed").forget();
        self.held.fetch_sub(1, Ordering::SeqCst);
        self.ids.lock().expect("not poisoned").extend(messages.iter().map(|message| message.id.clone()));
        messages.iter().map(|_| Ok(())).collect()
    }
}

/// What one call has at its end, in bytes.
async fn of_one_call() -> u64 {
    let manifest: Manifest = toml::from_str(MANIFEST).expect("a valid manifest");
    let host = PluginHost::from_bytes("effects", sample("effects"), manifest).await.expect("it loads");
    let deed = Envelope::new("Do").aggregate_type("Effects").json_text(DEED).expect("a good envelope");
    host.call(Event::of(deed).sequence(1).build()).await.used.memory_bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_beyond_the_memory_of_all_guests_wait_and_are_done_later_and_none_of_them_pays_for_it() {
    const EVENTS: usize = 12;
    let one = of_one_call().await;
    let directory = Directory::new();
    directory.put("effects.toml", MANIFEST.as_bytes());
    directory.put("effects.wasm", &sample("effects"));
    let sink = Arc::new(Holding {
        held: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
        let_go: Semaphore::new(0),
        ids: Mutex::default(),
    });
    let (_db, store) = database().await;
    // For two calls, and not for a third.
    let memory = ByteSize(2 * one + one / 2);
    let config = PluginsConfig { memory, ..directory.config() };
    let builder = Outbox::single_node(store.clone()).sinks(Sinks::default().with("orders", sink.clone()));
    let outbox = builder.plugins_config(config).start().await.expect("starts");
    let row = async |id| store.get(id).await.expect("reads").expect("the row is there");

    let ids = commit(&outbox, (0..EVENTS).map(|_| event("Effects", "Do", DEED)).collect()).await;

    eventually("two calls have all of the memory", async || sink.held.load(Ordering::SeqCst) == 2).await;
    let again = async || {
        let mut claimed_again = 0;
        for id in &ids {
            claimed_again += usize::from(row(*id).await.claim_seq > 2);
        }
        claimed_again
    };
    eventually("all others were let go and claimed again", async || again().await >= EVENTS - 2).await;
    assert_eq!(store.stats().await.expect("counts").done, 0);

    sink.let_go.add_permits(1_000);
    for id in &ids {
        eventually("the event is done", async || row(*id).await.status == Status::Done).await;
        let row = row(*id).await;
        assert_eq!((row.attempts, row.last_error), (0, None));
    }
    assert_eq!(sink.most.load(Ordering::SeqCst), 2);
    let sent = sink.ids.lock().expect("not poisoned").clone();
    assert_eq!(sent, ids.iter().map(|id| format!("{id}.1")).collect());
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_takes_all_memory_it_gets_and_sleeps_leaves_enough_for_another() {
    const HOARDING: usize = 64;
    // A plugin beside another one has a half of the memory, and each of its calls an eighth of that at most.
    const AT_LEAST: usize = 8;
    let (_db, store) = database().await;
    let directory = Directory::new();
    directory.put("trouble.toml", b"[limits]\ndeadline = \"60s\"\n");
    directory.put("trouble.wasm", &sample("trouble"));
    directory.put("noop.wasm", &sample("noop"));
    let config = DispatcherConfig { drain_timeout: Duration::from_millis(100), ..DispatcherConfig::default() };
    let outbox =
        Outbox::single_node(store).dispatcher(config).plugins_config(directory.config()).start().await.expect("starts");

    // Four times the memory of all guests, if each took what its limits allow.
    commit(&outbox, (0..HOARDING).map(|_| event("Trouble", "Hoard", "1")).collect()).await;
    let waiting = async || outbox.queue_depth() == (0, 0) && outbox.in_flight() >= AT_LEAST;
    eventually("all were called; who found no memory has been let go", waiting).await;
    for round in 1..=40 {
        commit(&outbox, vec![event("Bench", "Noop", "1")]).await;
        eventually("the other plugin answers", async || outbox.metrics().counts().dispatch_success == round).await;
    }

    let counts = outbox.metrics().counts();
    assert_eq!((counts.dispatch_failure, counts.dispatch_dead), (0, 0), "no sleeping call has ended");
    outbox.shutdown().await;
}
