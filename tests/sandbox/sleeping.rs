//! A plugin that sleeps, with many events: the others do not wait for it.

use std::time::Duration;

use outbox::dispatcher::DispatcherConfig;
use outbox::{Outbox, SqliteStore};
use support::eventually;

use crate::common::{Directory, commit, database, event, sample};

/// A host with the default number of workers, and a plugin of which every call takes 20 s.
async fn sleepy(store: SqliteStore, directory: &Directory) -> Outbox<SqliteStore> {
    directory.put("trouble.toml", b"[limits]\ndeadline = \"20s\"\n");
    directory.put("trouble.wasm", &sample("trouble"));
    directory.put("noop.wasm", &sample("noop"));
    let config = DispatcherConfig { drain_timeout: Duration::from_millis(100), ..DispatcherConfig::default() };
    Outbox::single_node(store).dispatcher(config).plugins_config(directory.config()).start().await.expect("starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_sleeps_leaves_half_of_the_workers_to_the_others() {
    let (_db, store) = database().await;
    let directory = Directory::new();
    let outbox = sleepy(store, &directory).await;

    commit(&outbox, (0..1_000).map(|_| event("Trouble", "Sleep", "1")).collect()).await;
    eventually("all are in the host's hands", async || outbox.in_flight() == 1_000).await;
    // Of 256 workers, half are with the plugin.
    eventually("the others wait for a place", async || outbox.queue_depth() == (1_000 - 128, 0)).await;
    for round in 1..=40 {
        commit(&outbox, vec![event("Bench", "Noop", "1")]).await;
        eventually("the other plugin answers", async || outbox.metrics().counts().dispatch_success == round).await;
    }

    let counts = outbox.metrics().counts();
    assert_eq!((counts.dispatch_failure, counts.dispatch_dead), (0, 0), "no sleeping call has ended");
    outbox.shutdown().await;
}
