//! Addresses that are IPv6 literals.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::common::{order, send_one, sink};

/// Every kind of sink, at a port of `[::1]` on which nothing else listens, nor on 127.0.0.1.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_sink_connects_to_an_ipv6_address() {
    let configs: [fn(u16) -> Value; 5] = [
        |port| json!({"kind": "http", "url": format!("http://[::1]:{port}/hook"), "timeout": "3s"}),
        |port| json!({"kind": "nats", "url": format!("nats://[::1]:{port}"), "timeout": "3s"}),
        |port| json!({"kind": "redis", "url": format!("redis://[::1]:{port}/0"), "timeout": "3s"}),
        |port| json!({"kind": "amqp", "url": format!("amqp://[::1]:{port}/%2f"), "timeout": "3s"}),
        |port| json!({"kind": "kafka", "brokers": format!("[::1]:{port}"), "topic": "orders", "timeout": "3s"}),
    ];
    for config in configs {
        let listener = TcpListener::bind("[::1]:0").await.expect("this machine has IPv6");
        let config = config(listener.local_addr().expect("it is bound").port());
        let tested = sink(config.clone());
        let message = order(1);
        let sending = tokio::spawn(async move { send_one(&*tested, message).await });

        let accepted = support::in_time(&format!("{config} connects"), listener.accept()).await;

        // The connection is closed without an answer.
        drop(accepted.expect("accepts"));
        drop(listener);
        sending.abort();
    }
}
