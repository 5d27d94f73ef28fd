//! What a component file may be called, and what a name cannot do.

use outbox::listener::{DispatchResult, Failure};
use outbox::poller::PollerConfig;
use outbox::store::InspectStore;
use outbox::wasm::PluginState;
use outbox::{Outbox, Status};
use support::eventually;

use crate::common::{Directory, commit, database, event, sample};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_called_native_takes_nothing_from_native_listeners() {
    let directory = Directory::new();
    directory.put("native.wasm", &sample("noop"));
    let (_db, store) = database().await;
    let outbox = Outbox::single_node(store.clone())
        .poller(PollerConfig { interval: std::time::Duration::from_millis(20), ..PollerConfig::default() })
        .listener(("Order", "OrderPaid"), async |_| Ok::<_, Failure>(DispatchResult::Done))
        .plugins_config(directory.config())
        .start()
        .await
        .expect("starts");

    let ids = commit(&outbox, vec![event("Order", "OrderPaid", "1"), event("Bench", "Noop", "1")]).await;

    for id in ids {
        eventually("both are done", async || {
            store.get(id).await.expect("reads").expect("the row is there").status == Status::Done
        })
        .await;
    }
    directory.put("trouble.wasm", &sample("trouble"));
    directory.remove("native.wasm");
    outbox.plugins().expect("a directory was given").rescan().await;
    let paid = outbox::Route::new("Order", "OrderPaid").expect("valid");
    assert!(outbox.listeners().find(&paid).is_some(), "nor when it goes");
    outbox.shutdown().await;
}

#[tokio::test]
async fn a_file_whose_name_could_deceive_is_not_loaded_and_says_which_names_are() {
    let directory = Directory::new();
    let long = "n".repeat(65);
    for name in ["my plugin", "ünï", "a\u{202e}b", long.as_str()] {
        directory.put(&format!("{name}.wasm"), &sample("noop"));
        let list = outbox::wasm::inspect(directory.config(), 1).await.expect("the directory can be used");

        let status = list.iter().find(|status| status.name == name).expect("it is listed");
        assert_eq!(status.state, PluginState::Failed, "{name}");
        let error = status.error.as_deref().unwrap_or_default();
        assert!(error.contains("1 to 64 letters, digits, `.`, `_` and `-`"), "{name}: {error}");
        directory.remove(&format!("{name}.wasm"));
    }
}
