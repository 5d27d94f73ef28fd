//! The samples in other languages than Rust, and the webhook sender in Rust, in a real host: each does what its README says.

use std::path::Path;
use std::time::Duration;

use outbox::poller::PollerConfig;
use outbox::store::{Filter, InspectStore, StateStore};
use outbox::wasm::{PluginState, PluginsConfig, anatomy};
use outbox::{Envelope, EventId, Outbox, SqliteStore, Status};
use serde_json::{Value, json};
use support::{Endpoint, Sqlite, eventually, sample_languages, sample_plugins};

use crate::common::{Directory, commit, database};

struct Host {
    _db: Sqlite,
    store: SqliteStore,
    plugins: Directory,
    outbox: Outbox<SqliteStore>,
}

impl Host {
    /// A host with one sample, which is compiled once for all runs of the tests: an interpreter takes the compiler long.
    async fn with(sample: &str, manifest: &str) -> Self {
        Self::with_file(sample, &sample_languages().join(format!("{sample}.wasm")), manifest).await
    }

    async fn with_file(sample: &str, file: &Path, manifest: &str) -> Self {
        let plugins = Directory::new();
        let component = std::fs::read(file).unwrap_or_else(|error| panic!("{} is not there: {error}", file.display()));
        plugins.put(&format!("{sample}.toml"), format!("retry.max_attempts = 2\nretry.base = \"10ms\"\n{manifest}").as_bytes());
        plugins.put(&format!("{sample}.wasm"), &component);
        let (db, store) = database().await;
        let config = PluginsConfig {
            dir: plugins.path().to_owned(),
            cache_dir: Some(sample_languages().join(".cache")),
            ..PluginsConfig::default()
        };
        let poller = PollerConfig { interval: Duration::from_millis(20), ..PollerConfig::default() };
        let outbox = Outbox::single_node(store.clone()).poller(poller).plugins_config(config).start().await.expect("starts");
        let loaded = outbox.plugins().expect("it has a directory").list();
        assert!(loaded.iter().all(|plugin| plugin.error.is_none()), "{loaded:?}");
        Self { _db: db, store, plugins, outbox }
    }

    async fn write(&self, event_type: &str, payload: &Value) -> EventId {
        let envelope = Envelope::new(event_type).aggregate("Order", "7").json(payload).expect("a good envelope");
        commit(&self.outbox, vec![envelope]).await[0]
    }

    /// What is said of the event in the end.
    async fn ends(&self, id: EventId, status: Status) -> String {
        let row = async || self.store.get(id).await.expect("reads").expect("the row is there");
        eventually(&format!("the event is {status}"), async || row().await.status == status).await;
        row().await.last_error.unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_in_python_keeps_totals_that_count_every_order_once() {
    let host = Host::with("order-totals", "state = true\nlimits.concurrency = 2").await;
    let order = |total: f64| json!({ "customer_id": "ada", "order_id": 7, "total": total });
    let mut ids = Vec::new();
    for _ in 0..10 {
        ids.push(host.write("OrderPlaced", &order(2.5)).await);
    }
    ids.push(host.write("OrderCancelled", &order(2.5)).await);
    let wrong = host.write("OrderPlaced", &json!({ "customer_id": "ada" })).await;

    for id in ids {
        host.ends(id, Status::Done).await;
    }

    let reason = host.ends(wrong, Status::Dead).await;
    assert!(reason.contains("order_id") || reason.contains("total"), "the reason names what is missing: {reason}");
    let kept = host.store.state("order-totals", "/ada").await.expect("reads").expect("it is kept").value;
    assert_eq!(serde_json::from_slice::<Value>(&kept).expect("JSON"), json!({ "orders": 9, "total": "22.50" }));
    host.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_in_javascript_says_which_grant_it_lacks_and_refuses_what_is_no_order() {
    let host = Host::with("order-publisher", "").await;
    let order = host.write("OrderPlaced", &json!({ "order_id": 7, "total": 9.5, "currency": "EUR" })).await;
    let wrong = host.write("OrderPlaced", &json!({ "order_id": "seven" })).await;

    let error = host.ends(order, Status::Dead).await;
    assert!(error.starts_with("[not-granted] ") && error.contains("the sink `orders`"), "{error}");
    let reason = host.ends(wrong, Status::Dead).await;
    assert!(reason.contains("order_id"), "the reason names what is wrong: {reason}");
    host.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_does_not_accept_its_settings_does_not_serve_until_they_are_mended() {
    let host = Host::with("order-publisher", "").await;
    let status = async || {
        let plugins = host.outbox.plugins().expect("it has a directory");
        plugins.rescan().await;
        plugins.list().remove(0)
    };

    host.plugins.put("order-publisher.toml", b"config.sink = ' '");
    let refused = status().await;

    let error = refused.error.unwrap_or_default();
    assert!(error.contains("does not accept its settings: ") && error.contains("`sink` is empty"), "{error}");
    assert_eq!(refused.state, PluginState::ServingOlder, "with the settings that it had before");

    host.plugins.put("order-publisher.toml", b"config.sink = 'orders'");
    assert_eq!(status().await.error, None);
    host.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_in_c_takes_orders_and_gives_up_what_is_none_with_the_reason() {
    let host = Host::with("order-validator", "").await;
    let good = host.write("OrderPlaced", &json!({ "order_id": 7, "total": 9.5 })).await;
    let bad = host.write("OrderPlaced", &json!({ "order_id": 7, "total": -1 })).await;

    host.ends(good, Status::Done).await;
    let reason = host.ends(bad, Status::Dead).await;
    assert!(reason.contains("total"), "{reason}");
    host.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_in_c_takes_orders_many_at_a_time_and_answers_each_of_them() {
    let exports = anatomy(&sample_languages().join("order-validator.wasm")).expect("a component").exports;
    assert!(exports.iter().any(|export| export.contains("batch-handler")), "{exports:?}");
    let host = Host::with("order-validator", "isolation = 'batch'").await;
    let is_bad = |number: usize| number.is_multiple_of(3);
    let order = |number| json!({ "order_id": number, "total": if is_bad(number) { -1.0 } else { 9.5 } });
    let envelope = |number| Envelope::new("OrderPlaced").aggregate("Order", "7").json(&order(number)).expect("a good envelope");

    let ids = commit(&host.outbox, (0..90).map(envelope).collect()).await;

    let mut together = 0;
    for (number, id) in ids.into_iter().enumerate() {
        let status = if is_bad(number) { Status::Dead } else { Status::Done };
        let reason = host.ends(id, status).await;
        let row = host.store.get(id).await.expect("reads").expect("the row is there");
        together += usize::from(row.last_cost.is_some_and(|last| last.cost.events > 1));
        assert_eq!(reason.contains("\"total\" is -1.0; it must be more than 0"), status == Status::Dead, "{reason}");
    }
    assert!(together > 0, "of those that were given up, some were in a call with others");
    host.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_in_go_goes_on_with_the_next_step_of_the_saga() {
    let host = Host::with("order-saga", "emit = true").await;
    let placed = host.write("OrderPlaced", &json!({ "order_id": 7, "total": 9.5 })).await;

    host.ends(placed, Status::Done).await;

    let next = Filter { event_type: Some("PaymentRequested".to_owned()), ..Filter::default() };
    let rows = host.store.list(&next, 10).await.expect("lists");
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].aggregate_type.as_str(), rows[0].aggregate_id.as_deref()), ("Payment", Some("7")));
    host.outbox.shutdown().await;
}

/// The webhook sender, allowed to call this endpoint.
async fn webhook(endpoint: &Endpoint, granted: &str) -> Host {
    let manifest = format!(
        "http.allow = ['{granted}']\nhttp.allow_private = ['127.0.0.1']\nsecrets.token = 't0ken'\n\
         config = {{ endpoint = '{}/orders', retry_after_seconds = '0' }}",
        endpoint.origin()
    );
    Host::with_file("order-webhook", &sample_plugins().join("order-webhook.wasm"), &manifest).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhook_sender_tells_its_endpoint_of_every_event_until_it_is_taken() {
    let endpoint = Endpoint::answering(&[503, 204, 422]);
    let host = webhook(&endpoint, &endpoint.origin()).await;
    let shipped = host.write("OrderShipped", &json!({ "order_id": 7 })).await;

    host.ends(shipped, Status::Done).await;

    let (first, second) = (endpoint.request(), endpoint.request());
    assert!(first.starts_with("POST /orders HTTP/1.1\r\n") && first.ends_with("\r\n\r\n{\"order_id\":7}"), "{first}");
    for line in ["authorization: Bearer t0ken", &format!("webhook-id: {shipped}"), "webhook-event: OrderShipped"] {
        assert!(first.contains(&format!("\r\n{line}\r\n")), "{line}: {first}");
    }
    let key =
        |request: &str| request.lines().find(|line| line.to_lowercase().starts_with("idempotency-key: ")).map(str::to_owned);
    assert!(key(&first).is_some());
    assert_eq!(key(&first), key(&second), "the endpoint can tell that it is the same request");

    let refused = host.write("OrderDelivered", &json!({ "order_id": 7 })).await;
    assert_eq!(host.ends(refused, Status::Dead).await, "the endpoint answered 422");
    host.outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhook_sender_says_which_origin_it_lacks() {
    let endpoint = Endpoint::answering(&[204]);
    let host = webhook(&endpoint, "https://hooks.example.com").await;
    let shipped = host.write("OrderShipped", &json!({ "order_id": 7 })).await;

    let error = host.ends(shipped, Status::Dead).await;

    assert!(error.starts_with("[not-granted] ") && error.contains(&endpoint.origin()), "{error}");
    host.outbox.shutdown().await;
}
