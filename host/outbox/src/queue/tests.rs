use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::event::{Envelope, Event};

fn deliveries(via: Via, count: usize, payload_bytes: usize) -> Vec<Delivery> {
    let in_flight = Arc::new(InFlight::default());
    (0..count)
        .map(|_| {
            let envelope = Envelope::new("X").bytes("a/b", vec![0; payload_bytes]).expect("valid");
            let mark = in_flight.mark(envelope.id(), None, Duration::from_secs(30)).expect("new");
            Delivery::new(Arc::new(Event::of(envelope).build()), mark, via, 0)
        })
        .collect()
}

#[test]
fn two_hot_events_are_taken_for_each_cold_one_while_both_wait() {
    let queue = Queue::new(QueueLimits::default());
    assert!(queue.push(Via::Hot, deliveries(Via::Hot, 6, 1)).is_empty());
    assert!(queue.push(Via::Cold, deliveries(Via::Cold, 5, 1)).is_empty());
    let order: String = queue.drain().iter().map(|delivery| if delivery.via == Via::Hot { 'h' } else { 'c' }).collect();
    assert_eq!(order, "hhchhchhccc");
}

#[test]
fn what_finds_no_room_is_given_back() {
    let queue = Queue::new(QueueLimits { hot: 2, cold: 2, bytes: ByteSize::kib(10) });
    assert_eq!(queue.push(Via::Hot, deliveries(Via::Hot, 3, 1)).len(), 1, "by count");
    assert_eq!(queue.push(Via::Cold, deliveries(Via::Cold, 2, 20_000)).len(), 1, "by bytes, but never none");
    queue.close();
    assert_eq!(queue.push(Via::Hot, deliveries(Via::Hot, 1, 1)).len(), 1, "after the closing");
}

#[test]
fn half_of_the_cold_side_is_free_only_when_it_is_by_number_and_by_bytes() {
    let queue = Queue::new(QueueLimits { hot: 1, cold: 4, bytes: ByteSize::kib(10) });
    let waits = || queue.cold_half_empty().now_or_never().is_none();
    assert!(!waits(), "empty");
    assert!(queue.push(Via::Cold, deliveries(Via::Cold, 1, 20_000)).is_empty());
    assert!(waits(), "one event with all the bytes");
    queue.try_take();
    assert!(queue.push(Via::Cold, deliveries(Via::Cold, 3, 1)).is_empty());
    assert!(waits(), "three of four");
    queue.try_take();
    assert!(!waits(), "two of four");
}

/// Long enough for a machine under load; never reached by a passing test.
const PATIENCE: Duration = Duration::from_secs(30);

async fn in_time<T>(fact: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("expected within {PATIENCE:?}: {fact}"))
}

/// Waits until this many workers wait for an event.
async fn waiting(queue: &Queue, workers: usize) {
    let all_wait = async {
        while queue.lock().waiting != workers {
            tokio::task::yield_now().await;
        }
    };
    in_time(&format!("{workers} workers wait"), all_wait).await;
}

#[tokio::test]
async fn every_waiting_worker_is_woken_by_a_push_and_by_the_closing() {
    let queue = Queue::new(QueueLimits::default());
    let queue = Arc::new(Queue { bounds: Bounds { threads: 4, ..queue.bounds }, ..queue });
    // A worker that took an event continues only when all have one: no other worker can replace one that stays asleep.
    let all_have_one = Arc::new(tokio::sync::Barrier::new(5));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (queue, all_have_one) = (queue.clone(), all_have_one.clone());
        workers.spawn(async move {
            while queue.take().await.is_some() {
                all_have_one.wait().await;
            }
        });
    }

    waiting(&queue, 4).await;
    assert!(queue.push(Via::Hot, deliveries(Via::Hot, 4, 1)).is_empty());
    in_time("four hot events at once wake four workers", all_have_one.wait()).await;
    waiting(&queue, 4).await;
    for delivery in deliveries(Via::Cold, 4, 1) {
        assert!(queue.push(Via::Cold, [delivery]).is_empty());
    }
    in_time("four cold events one by one wake four workers", all_have_one.wait()).await;
    waiting(&queue, 4).await;
    for delivery in deliveries(Via::Cold, 4, 1) {
        assert!(queue.push_counted(delivery).is_none());
    }
    in_time("four events whose turn has come wake four workers", all_have_one.wait()).await;
    waiting(&queue, 4).await;

    queue.close();

    in_time("the closing ends every worker", workers.join_all()).await;
}

#[tokio::test]
async fn what_is_queued_at_the_closing_is_taken_and_nothing_comes_after_it() {
    let queue = Queue::new(QueueLimits::default());
    assert!(queue.push(Via::Hot, deliveries(Via::Hot, 1, 1)).is_empty());
    assert!(queue.push_counted(deliveries(Via::Cold, 1, 1).remove(0)).is_none());
    assert_eq!((queue.depth(), queue.hot_room()), ((1, 1), 999));
    assert_eq!(queue.cold_room().events, 999);

    queue.close();

    assert!(queue.push_counted(deliveries(Via::Cold, 1, 1).remove(0)).is_some(), "given back");
    assert_eq!((queue.cold_room(), queue.hot_room()), (Room::default(), 0));
    for left in [true, true, false] {
        assert_eq!(in_time("an answer", queue.take()).await.is_some(), left);
    }
}

#[tokio::test]
async fn the_wake_up_of_a_worker_that_is_cut_off_goes_to_another() {
    let queue = Arc::new(Queue::new(QueueLimits::default()));
    let take = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.take().await.is_some() })
    };
    let cut_off = take();
    waiting(&queue, 1).await;
    let other = take();
    waiting(&queue, 2).await;

    // On one thread no worker runs between the two.
    assert!(queue.push(Via::Hot, deliveries(Via::Hot, 1, 1)).is_empty());
    cut_off.abort();

    assert!(in_time("the other one takes the event", other).await.expect("no panic"));
    assert!(cut_off.await.expect_err("it was cut off").is_cancelled());
    waiting(&queue, 0).await;
}

/// The bytes of events that workers hold count like those of queued events, so that many workers do not multiply the memory for large
/// payloads.
#[test]
fn bytes_in_hand_leave_no_room_until_enough_of_them_are_let_go() {
    let queue = Queue::new(QueueLimits { hot: 1, cold: 100, bytes: ByteSize::kib(10) });
    let waits = || queue.cold_half_empty().now_or_never().is_none();
    let with_workers = queue.count_bytes(6_000);
    assert_eq!(queue.free_bytes(), 4_240);
    let one_more = queue.count_bytes(6_000);
    assert_eq!(queue.free_bytes(), 0);
    assert!(waits(), "though nothing is queued");

    drop(one_more);
    assert!(waits(), "more than half of it is in hand");
    drop(with_workers);

    assert!(!waits());
    assert_eq!(queue.free_bytes(), 10 * 1_024);
}
