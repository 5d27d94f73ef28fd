//! Payloads so large that the queue is full by bytes long before it is full by number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::dispatcher::DispatcherConfig;
use outbox::event::OwnerId;
use outbox::store::{NewRow, Ownership};
use outbox::{DispatchResult, Envelope, Event};
use support::{Harness, PATIENCE, Sqlite, eventually};

use crate::common::{HOUR, ROUTE, drowsy, outbox};

const MIB: usize = 1 << 20;

/// One thread for the whole host: a poller that spins lets nobody else run, not even a timeout, so the test waits outside.
#[test]
fn a_hundred_payloads_of_one_mebibyte_are_delivered_on_one_thread() {
    let (delivered, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
        runtime.block_on(deliver_a_hundred_large_payloads());
        delivered.send(()).expect("the test waits");
    });
    assert_eq!(answer.recv_timeout(PATIENCE * 2), Ok(()), "all of them are delivered");
}

async fn deliver_a_hundred_large_payloads() {
    let db = Sqlite::fresh().await;
    write_cold(&db, 100, MIB).await;
    let config = DispatcherConfig { workers: 1, ..DispatcherConfig::default() };
    // The poller looks at the table by itself only once: a batch that was cut by its bytes must lead to the next one.
    let outbox = outbox(&db)
        .dispatcher(config)
        .poller(drowsy())
        .listener(ROUTE, async |event: Arc<Event>| {
            assert_eq!(event.payload_bytes().len(), MIB);
            tokio::task::yield_now().await;
            Ok(DispatchResult::Done)
        })
        .start()
        .await
        .expect("starts");

    eventually("all are DONE", async || db.store().stats().await.expect("counts").done == 100).await;

    outbox.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_larger_than_any_host_reads_dies_with_the_reason_and_a_later_one_is_delivered() {
    let db = Sqlite::fresh().await;
    let insert = "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)";
    db.execute(&format!("{insert} VALUES ('large', 'OrderPlaced', 'Order', '1', zeroblob({}))", 9 * MIB)).await;
    write_cold(&db, 1, 1).await;
    let called = Arc::new(AtomicUsize::new(0));
    let calls = called.clone();
    // The poller looks at the table by itself only once: the large event must not end the batch for good.
    let outbox = outbox(&db)
        .poller(drowsy())
        .listener(ROUTE, move |_: Arc<Event>| {
            calls.fetch_add(1, Ordering::Relaxed);
            async { Ok(DispatchResult::Done) }
        })
        .start()
        .await
        .expect("starts");

    eventually("the later event is DONE and the large one DEAD", async || {
        let stats = db.store().stats().await.expect("counts");
        (stats.done, stats.dead) == (1, 1)
    })
    .await;

    assert_eq!(called.load(Ordering::Relaxed), 1);
    let large = db.store().get("large".parse().expect("an id")).await.expect("reads").expect("is kept");
    let error = large.last_error.expect("a reason");
    assert!(error.contains("cannot be read") && error.contains("9437184 bytes") && error.contains("8388608"), "{error}");
    assert_eq!((large.payload, large.payload_bytes), (None, 9 << 20), "it is kept, and read by nobody");
    outbox.shutdown().await;
}

/// Written by a program that is no host: nothing of it goes the hot way.
async fn write_cold(db: &dyn Harness, count: usize, bytes: usize) {
    let ownership = Ownership { owner: OwnerId::generate("writer"), lease: HOUR };
    for number in 0..count {
        let envelope = Envelope::new("OrderPlaced").aggregate("Order", number.to_string());
        let envelope = envelope.bytes("application/octet-stream", vec![0; bytes]).expect("a good envelope");
        db.store().write(&[NewRow { envelope: &envelope, claimed: false }], &ownership).await.expect("writes");
    }
}
