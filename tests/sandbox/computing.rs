//! Plugins that compute without an end on every processor: the host goes on seeing what comes in from outside.

use std::time::Duration;

use outbox::Outbox;
use outbox::dispatcher::DispatcherConfig;
use support::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{Directory, commit, database, event, sample};

const MESSAGES: usize = 200;

/// Sends messages through a connection, one after the other: each is seen once the runtime looks for what has come in.
async fn converse() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("can listen");
    let address = listener.local_addr().expect("it is bound");
    let echo = tokio::spawn(async move {
        let (mut peer, _) = listener.accept().await.expect("is asked");
        for _ in 0..MESSAGES {
            let byte = peer.read_u8().await.expect("reads");
            peer.write_u8(byte).await.expect("writes");
        }
    });
    let mut stream = TcpStream::connect(address).await.expect("connects");
    for _ in 0..MESSAGES {
        stream.write_u8(1).await.expect("writes");
        assert_eq!(stream.read_u8().await.expect("reads"), 1);
    }
    echo.await.expect("does not panic");
}

/// Gives the host this many events of a listener that never ends, and has a conversation beside them.
async fn converse_beside(event_type: &str, calls: usize) {
    let (_db, store) = database().await;
    let directory = Directory::new();
    let limits = b"[limits]\nfuel = 1_000_000_000_000\nhost_calls = 4_000_000\ndeadline = \"20s\"\n[retry]\nmax_attempts = 1\n";
    directory.put("trouble.toml", limits);
    directory.put("trouble.wasm", &sample("trouble"));
    let config = DispatcherConfig { drain_timeout: Duration::from_millis(100), ..DispatcherConfig::default() };
    let outbox =
        Outbox::single_node(store).dispatcher(config).plugins_config(directory.config()).start().await.expect("starts");

    commit(&outbox, (0..calls).map(|_| event("Trouble", event_type, "1")).collect()).await;
    // Each thread of the runtime has taken an event by now; the others may wait for a place.
    eventually("two events have left the queue", async || outbox.in_flight() == calls && outbox.queue_depth().0 <= calls - 2)
        .await;
    tokio::spawn(converse()).await.expect("does not panic");

    let counts = outbox.metrics().counts();
    assert_eq!((counts.dispatch_failure, counts.dispatch_dead), (0, 0), "no guest has ended meanwhile");
    assert_eq!(outbox.in_flight(), calls, "no guest has ended meanwhile");
    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guests_that_compute_for_ever_keep_no_connection_waiting() {
    converse_beside("Loop", 16).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_guests_that_pause_before_each_tick_ends_keep_no_connection_waiting() {
    converse_beside("Nap", 100).await;
}
