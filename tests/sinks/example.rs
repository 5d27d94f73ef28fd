//! The example `relay` of the host, against a server.

use serde_json::json;
use servers::Broker;

use crate::broker::{kill, own, shared};
use crate::nats::Stream;

#[path = "../../host/outbox/examples/relay.rs"]
#[expect(dead_code, reason = "its `main` runs as a program")]
mod relay;

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_the_example_are_in_the_stream() {
    let url = shared(Broker::Nats);
    let stream = Stream::make(&url, json!({})).await;
    let directory = tempfile::tempdir().expect("a directory can be made");

    let subject = format!("{}.{{aggregate_type}}.{{event_type}}", stream.name);
    let stats = relay::run(&directory.path().join("shop.db"), &url, &subject).await.expect("it runs and ends");

    assert_eq!((stats.done, stats.new, stats.retry, stats.dead), (3, 0, 0, 0));
    let mut payloads = stream.payloads().await;
    payloads.sort();
    assert_eq!(payloads, [1, 2, 3].map(|id| format!(r#"{{"order_id":{id},"total":99.5}}"#)));
    assert_eq!(stream.message(1).await.0, format!("{}.Order.OrderPlaced", stream.name));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_the_example_wait_while_the_server_is_away() {
    let mut server = own(Broker::Nats);
    kill(&mut server);
    let directory = tempfile::tempdir().expect("a directory can be made");

    let stats = relay::run(&directory.path().join("shop.db"), &server.url(), "shop.orders").await.expect("it runs and ends");

    assert_eq!((stats.done, stats.dead), (0, 0));
    assert_eq!(stats.new + stats.retry, 3, "none is lost");
}
