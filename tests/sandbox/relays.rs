//! A relay beside plugins: a plugin goes before it, and what waits for a plugin does not go to a sink.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use outbox::event::Route;
use outbox::sink::{Message, Sink, SinkError, Sinks};
use outbox::store::InspectStore;
use outbox::{Outbox, RelayConfig, SqliteStore, Status};
use support::eventually;

use crate::common::{Directory, commit, database, event, sample};

/// Confirms everything, and remembers the routes.
#[derive(Default)]
struct Remembers(Mutex<Vec<Route>>);

#[async_trait]
impl Sink for Remembers {
    async fn send(&self, messages: &[Message]) -> Vec<Result<(), SinkError>> {
        let routes = messages.iter().filter_map(|message| Some(message.event.as_ref()?.route().clone()));
        self.0.lock().expect("not poisoned").extend(routes);
        messages.iter().map(|_| Ok(())).collect()
    }
}

async fn host(store: SqliteStore, directory: &Directory, sink: &Arc<Remembers>) -> Outbox<SqliteStore> {
    let sinks = Sinks::default().with("all", sink.clone());
    let builder = Outbox::single_node(store).sinks(sinks).relay(("*", "*"), RelayConfig::to("all"));
    builder.plugins_config(directory.config()).start().await.expect("starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_goes_before_a_relay_and_its_events_wait_for_it_when_it_is_away() {
    let (directory, sink) = (Directory::new(), Arc::<Remembers>::default());
    directory.put("noop.wasm", &sample("noop"));
    let (_db, store) = database().await;
    let row = async |id| store.get(id).await.expect("reads").expect("the row is there");

    let outbox = host(store.clone(), &directory, &sink).await;
    let ids = commit(&outbox, vec![event("Bench", "Noop", "1"), event("Order", "OrderPlaced", "1")]).await;
    for id in ids {
        eventually("the event is done", async || row(id).await.status == Status::Done).await;
    }
    outbox.shutdown().await;
    let relayed = || sink.0.lock().expect("not poisoned").clone();
    assert_eq!(relayed(), [Route::new("Order", "OrderPlaced").expect("valid")], "the plugin has answered its own");

    directory.remove("noop.wasm");
    let outbox = host(store.clone(), &directory, &sink).await;
    let id = commit(&outbox, vec![event("Bench", "Noop", "1")]).await[0];
    eventually("the event waits for its plugin", async || row(id).await.parked.is_some()).await;
    let other = commit(&outbox, vec![event("Order", "OrderPlaced", "1")]).await[0];
    eventually("others are relayed", async || row(other).await.status == Status::Done).await;
    assert_eq!(relayed().len(), 2, "and nothing else is");

    directory.put("noop.wasm", &sample("noop"));
    eventually("the event is done by its plugin", async || row(id).await.status == Status::Done).await;
    assert_eq!(relayed().len(), 2);
    outbox.shutdown().await;
}
