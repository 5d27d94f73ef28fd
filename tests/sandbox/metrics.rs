//! What the metrics tell of plugins.

use std::collections::BTreeSet;
use std::time::Duration;

use outbox::Outbox;
use outbox::poller::PollerConfig;
use outbox::readiness::UnreadyCode;
use outbox::wasm::PluginsConfig;
use support::{Scrape, eventually, promtool};

use crate::common::{Directory, commit, database, event, host, sample};

const MANIFEST: &str = "[retry]\npolicy = \"fixed\"\nbase = \"10ms\"\nmax_attempts = 1\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_plugin_uses_and_how_it_breaks_is_counted_by_its_name() {
    let directory = Directory::new();
    directory.put("trouble.toml", MANIFEST.as_bytes());
    directory.put("trouble.wasm", &sample("trouble"));
    let (_db, store) = database().await;
    let outbox = host(store, &directory).await;

    let kinds = ["Done", "Loop", "Panic", "Panic"];
    commit(&outbox, kinds.into_iter().map(|kind| event("Trouble", kind, "1")).collect()).await;
    eventually("four have ended", async || {
        let counts = outbox.metrics().counts();
        counts.dispatch_success + counts.dispatch_dead == 4
    })
    .await;

    let text = outbox.prometheus();
    let scrape = Scrape::of(&text);
    let of_plugin = |name: &str| scrape.value(&format!("outbox_{name}{{plugin=\"trouble\"}}"));
    let traps = |reason: &str| scrape.value(&format!("outbox_plugin_traps_total{{plugin=\"trouble\",reason=\"{reason}\"}}"));
    assert_eq!((traps("fuel"), traps("trap"), traps("deadline")), (Some(1.0), Some(2.0), Some(0.0)), "{text}");
    assert_eq!(of_plugin("plugin_calls_total"), Some(4.0), "{text}");
    assert!(of_plugin("plugin_fuel_used") > Some(200_000_000.0), "the loop has used all of its fuel:\n{text}");
    assert!(of_plugin("plugin_memory_peak_bytes") > Some(65_535.0), "{text}");
    assert!(of_plugin("plugin_call_seconds_total") > Some(0.0), "{text}");
    promtool(&["check", "metrics"], &text);
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_change_of_what_serves_is_counted_and_a_file_that_stays_bad_is_counted_once() {
    let directory = Directory::new();
    directory.put("mailer.wasm", &sample("noop"));
    directory.put("stays.wasm", &sample("trouble"));
    let (_db, store) = database().await;
    let outbox = host(store, &directory).await;
    let plugins = outbox.plugins().expect("it has plugins");
    let swaps = |result: &str| {
        let series = format!("outbox_plugin_swaps_total{{plugin=\"mailer\",result=\"{result}\"}}");
        Scrape::of(&outbox.prometheus()).value(&series)
    };
    assert_eq!((swaps("loaded"), swaps("swapped"), swaps("failed")), (Some(1.0), Some(0.0), Some(0.0)));

    directory.put("mailer.wasm", b"no component");
    plugins.rescan().await;
    plugins.rescan().await;
    assert_eq!((swaps("failed"), swaps("swapped")), (Some(1.0), Some(0.0)));
    directory.put("mailer.wasm", &sample("order-mailer"));
    plugins.rescan().await;
    assert_eq!(swaps("swapped"), Some(1.0));
    directory.remove("mailer.wasm");
    plugins.rescan().await;

    assert_eq!((swaps("unloaded"), swaps("loaded")), (Some(1.0), Some(1.0)), "what it counted stays when it is gone");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_required_plugin_does_not_serve_is_not_ready_until_it_does() {
    let directory = Directory::new();
    directory.put("mailer.wasm", b"no component");
    let (_db, store) = database().await;
    let config = PluginsConfig {
        required: BTreeSet::from(["mailer".to_owned(), "missing".to_owned()]),
        ..directory.config_without_watch()
    };
    let poller = PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() };
    let outbox = Outbox::single_node(store).poller(poller).plugins_config(config).start().await.expect("starts");

    let readiness = outbox.readiness();
    let said: Vec<&str> = readiness.reasons().iter().map(|reason| reason.message.as_str()).collect();
    assert_eq!(said.len(), 2, "{said:#?}");
    assert!(readiness.reasons().iter().all(|reason| reason.code == UnreadyCode::Plugin));
    assert!(said[0].starts_with("the required plugin mailer does not serve: "), "{said:#?}");
    assert_eq!(said[1], "the required plugin missing is not in the plugins directory");

    directory.put("mailer.wasm", &sample("order-mailer"));
    directory.put("missing.wasm", &sample("noop"));
    outbox.plugins().expect("it has plugins").rescan().await;
    assert!(outbox.readiness().is_ready(), "{:?}", outbox.readiness());

    directory.put("mailer.wasm", b"no component");
    outbox.plugins().expect("it has plugins").rescan().await;
    assert!(outbox.readiness().is_ready(), "the version before goes on serving: {:?}", outbox.readiness());
    outbox.shutdown().await;
}
