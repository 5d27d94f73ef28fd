//! Plugins come, change and go while events flow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outbox::store::InspectStore;
use outbox::wasm::PluginState;
use outbox::why::explain;
use outbox::{Route, Status};
use support::{Guest, eventually};

use crate::common::{Directory, commit, database, event, host, sample};

/// The same component with another digest: a custom section at its end, which means nothing.
fn variant(component: &[u8], number: u8) -> Vec<u8> {
    let mut bytes = component.to_vec();
    bytes.extend([0, 3, 1, b'v', number]);
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_swaps_under_load_lose_nothing_and_deliver_nothing_twice() {
    let (directory, noop) = (Directory::new(), sample("noop"));
    directory.put("noop.wasm", &variant(&noop, 0));
    let (_db, store) = database().await;
    let outbox = Arc::new(host(store.clone(), &directory).await);
    let swapping = Arc::new(AtomicBool::new(true));
    let writer = tokio::spawn({
        let (outbox, swapping) = (outbox.clone(), swapping.clone());
        async move {
            let mut written = 0;
            while swapping.load(Ordering::Relaxed) {
                commit(&outbox, (0..25).map(|_| event("Bench", "Noop", "1")).collect()).await;
                written += 25;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            written
        }
    });

    let plugins = outbox.plugins().expect("a directory was given");
    let mut digests = std::collections::BTreeSet::new();
    for number in 1..=100 {
        if number % 10 == 0 {
            directory.put("noop.wasm", &noop[..noop.len() / 2]);
            plugins.rescan().await;
            let broken = &plugins.list()[0];
            assert_eq!(broken.state, PluginState::ServingOlder, "the old version goes on");
            assert!(broken.error.is_some(), "and what is wrong with the new one is told");
        }
        directory.put("noop.wasm", &variant(&noop, number));
        plugins.rescan().await;
        digests.extend(plugins.list()[0].digest.clone());
    }

    swapping.store(false, Ordering::Relaxed);
    let written: u64 = writer.await.expect("the writer ends");
    assert_eq!(digests.len(), 100, "every version has served");
    eventually("everything written is done", async || store.stats().await.expect("counts").done == written).await;
    let counts = outbox.metrics().counts();
    assert_eq!(counts.dispatch_success, written, "once each");
    assert_eq!((counts.dispatch_failure, counts.dispatch_dead, counts.fenced_outcomes), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_wait_while_their_plugin_is_away_and_go_on_when_it_is_back() {
    let (directory, noop) = (Directory::new(), sample("noop"));
    directory.put("noop.wasm", &noop);
    // A directory that has lost all of its plugins changes nothing.
    directory.put("trouble.wasm", &sample("trouble"));
    let (_db, store) = database().await;
    let outbox = host(store.clone(), &directory).await;
    let plugins = outbox.plugins().expect("a directory was given");
    directory.remove("noop.wasm");
    plugins.rescan().await;

    let id = commit(&outbox, vec![event("Bench", "Noop", "1")]).await[0];

    let row = async || store.get(id).await.expect("reads").expect("the row is there");
    eventually("the event is parked", async || row().await.parked.is_some()).await;
    assert_eq!(row().await.status, Status::New);
    directory.put("noop.wasm", &noop);
    plugins.rescan().await;
    eventually("the event is done", async || row().await.status == Status::Done).await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_is_remembered_over_a_restart_without_its_plugin() {
    let directory = Directory::new();
    directory.put("noop.wasm", &sample("noop"));
    let (_db, store) = database().await;
    host(store.clone(), &directory).await.shutdown().await;
    directory.remove("noop.wasm");

    let outbox = host(store.clone(), &directory).await;
    let id = commit(&outbox, vec![event("Bench", "Noop", "1")]).await[0];

    eventually("the event is parked, not dead", async || {
        store.get(id).await.expect("reads").expect("the row is there").parked.is_some()
    })
    .await;
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_nobody_answers_wait_while_a_plugin_is_in_fault_and_no_longer() {
    let (directory, trouble) = (Directory::new(), sample("trouble"));
    directory.put("noop.wasm", &sample("noop"));
    directory.put("trouble.wasm", &trouble[..trouble.len() / 2]);
    let (_db, store) = database().await;
    let outbox = host(store.clone(), &directory).await;
    let row = async |id| store.get(id).await.expect("reads").expect("the row is there");
    let id = commit(&outbox, vec![event("Trouble", "Done", "1")]).await[0];
    eventually("the event is parked", async || row(id).await.parked.is_some()).await;
    let reason = row(id).await.parked.unwrap_or_default();
    assert!(reason.contains("the plugin trouble does not serve"), "{reason}");

    directory.put("trouble.wasm", &trouble);
    outbox.plugins().expect("a directory was given").rescan().await;

    eventually("the event is done", async || row(id).await.status == Status::Done).await;
    let unknown = commit(&outbox, vec![event("Nobody", "Answers", "1")]).await[0];
    eventually("nothing is in fault, so it waits for its grace alone", async || row(unknown).await.wait_reason.is_some()).await;
    assert_eq!(row(unknown).await.parked, None);
    outbox.shutdown().await;
}

/// A plugin that answers these routes.
fn shop(version: &str, routes: &[(&str, &str)]) -> Vec<u8> {
    Guest::new("(call $done)").named("shop").version(version).routes(routes).build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_route_that_a_new_version_gave_up_name_it_and_no_other_plugin_in_fault() {
    let (directory, trouble) = (Directory::new(), sample("trouble"));
    let (placed, paid) = (("Order", "OrderPlaced"), ("Order", "OrderPaid"));
    directory.put("shop.wasm", &shop("1.0.0", &[placed, paid]));
    directory.put("trouble.wasm", &trouble[..trouble.len() / 2]);
    let (_db, store) = database().await;
    let outbox = host(store.clone(), &directory).await;
    let row = async |id| store.get(id).await.expect("reads").expect("the row is there");
    let plugins = outbox.plugins().expect("a directory was given");

    directory.put("shop.wasm", &shop("1.1.0", &[placed]));
    plugins.rescan().await;
    let id = commit(&outbox, vec![event("Order", "OrderPaid", "1")]).await[0];
    eventually("the event is parked", async || row(id).await.parked.is_some()).await;

    let sentence = explain(&store, id, Vec::new()).await.expect("explains").expect("the row is there").sentence;
    let wanted = "On that host, the plugin shop 1.1.0 no longer answers this route, which 1.0.0 did, since 2";
    assert!(sentence.contains(wanted) && !sentence.contains("trouble"), "{sentence}");
    assert_eq!(plugins.list()[0].details.swaps[0].dropped, [Route::new("Order", "OrderPaid").expect("valid")]);
    directory.put("shop.wasm", &shop("1.2.0", &[placed, paid]));
    plugins.rescan().await;
    eventually("the event is done", async || row(id).await.status == Status::Done).await;

    directory.remove("shop.wasm");
    plugins.rescan().await;
    let id = commit(&outbox, vec![event("Order", "OrderPaid", "1")]).await[0];
    eventually("the event is parked", async || row(id).await.parked.is_some()).await;
    let sentence = explain(&store, id, Vec::new()).await.expect("explains").expect("the row is there").sentence;
    assert!(sentence.contains("the plugin shop 1.2.0, which answered this route, was unloaded at 2"), "{sentence}");
    outbox.shutdown().await;
}
