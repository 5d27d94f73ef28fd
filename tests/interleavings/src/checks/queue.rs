//! The queue: nobody sleeps beside an event or beside room, and what is counted comes out even.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::thread::JoinHandle;
use tokio::sync::Notify;

use crate::cast::{self, Tally, begin, deliveries, delivery, event_bytes, join, queue, unless};
use crate::play::Check;
use crate::queue::{Delivery, InFlight, Queue, Room, Via};

pub(crate) const ALL: &[Check] = &[
    Check { name: "queue: no worker sleeps while an event is queued", play: no_worker_sleeps_beside_an_event },
    Check { name: "queue: a push wakes as many workers as can run", play: a_push_wakes_as_many_as_can_run },
    Check { name: "queue: one that waits with its event wakes the next", play: one_that_waits_wakes_the_next },
    Check { name: "queue: one that is cut off passes its wake-up on", play: one_that_is_cut_off_passes_its_wake_up_on },
    Check { name: "queue: the poller hears of room by number", play: the_poller_hears_of_room_by_number },
    Check { name: "queue: the poller hears of room by bytes", play: the_poller_hears_of_room_by_bytes },
    Check { name: "queue: the poller hears of events taken out", play: the_poller_hears_of_events_taken_out },
    Check { name: "queue: two hot events are taken for each cold one", play: two_hot_for_each_cold },
    Check { name: "queue: room is never exceeded nor leaked", play: room_is_never_exceeded_nor_leaked },
    Check { name: "queue: kept room is there for the events it is kept for", play: kept_room_is_kept },
    Check { name: "queue: a closing ends everybody and gives back everything", play: a_closing_ends_everybody },
    Check { name: "queue: what is queued at a closing is taken by the workers", play: a_closing_leaves_the_rest_to_workers },
    Check { name: "queue: a closing ends who waits for room that nobody makes", play: a_closing_ends_the_poller },
];

const MANY_BYTES: usize = 1 << 30;

/// Notes events until the queue is closed.
async fn take_all(queue: Arc<Queue>, taken: Arc<Tally>) {
    while let Some(delivery) = queue.take().await {
        let sequence = delivery.event.sequence();
        drop(delivery);
        taken.add(sequence);
    }
}

fn workers(count: usize, queue: &Arc<Queue>, taken: &Arc<Tally>) -> Vec<JoinHandle<()>> {
    let worker = || {
        let (queue, taken) = (queue.clone(), taken.clone());
        begin(|| take_all(queue, taken))
    };
    std::iter::repeat_with(worker).take(count).collect()
}

/// The queue is closed only once all were taken, so nothing but their coming wakes a worker.
fn no_worker_sleeps_beside_an_event() {
    let (queue, in_flight, taken) = (queue(10, 10, MANY_BYTES), Arc::<InFlight>::default(), Arc::<Tally>::default());
    let workers = workers(3, &queue, &taken);
    let (hot, committed) = (queue.clone(), in_flight.clone());
    let hot = begin(|| async move {
        assert!(hot.push(Via::Hot, deliveries(&committed, Via::Hot, [1, 2])).is_empty());
        let kept = hot.reserve([1].into_iter());
        assert!(hot.push_reserved(kept, deliveries(&committed, Via::Hot, [3])).is_empty());
    });
    let (cold, read) = (queue.clone(), in_flight.clone());
    let cold = begin(|| async move {
        assert!(cold.push(Via::Cold, deliveries(&read, Via::Cold, [4])).is_empty());
        assert!(cold.push_counted(delivery(&read, Via::Cold, 5)).is_none());
    });
    taken.wait_for(5);
    queue.close();
    join([hot, cold].into_iter().chain(workers));
    taken.assert_each_once(1..=5);
    assert!(in_flight.is_empty());
}

/// This many workers that take one event each and keep it until all have one. `at_work` is what each does with its own.
fn each_has_one(count: usize, queue: &Arc<Queue>, at_work: fn(&Queue)) -> (Arc<Tally>, Vec<JoinHandle<()>>) {
    let taken = Arc::<Tally>::default();
    let worker = || {
        let (queue, taken) = (queue.clone(), taken.clone());
        begin(move || async move {
            let delivery = queue.take().await.expect("there is one for each");
            taken.add(delivery.event.sequence());
            at_work(&queue);
            taken.wait_for(count);
        })
    };
    let workers = std::iter::repeat_with(worker).take(count).collect();
    (taken, workers)
}

/// Two workers compute, and none of them comes back before the other has its event.
fn a_push_wakes_as_many_as_can_run() {
    for via in [Via::Cold, Via::Hot] {
        let (queue, in_flight) = (queue(10, 10, MANY_BYTES), Arc::<InFlight>::default());
        let (taken, workers) = each_has_one(2, &queue, |_| {});
        let refused = match via {
            Via::Cold => queue.push(via, deliveries(&in_flight, via, 1..=2)),
            Via::Hot => queue.push_reserved(queue.reserve([1; 2].into_iter()), deliveries(&in_flight, via, 1..=2)),
        };
        assert!(refused.is_empty());
        join(workers);
        taken.assert_each_once(1..=2);
    }
}

/// A push wakes no more workers than can run at once, which are two. The third event needs a worker, too: none of the first two
/// comes back before all have one.
fn one_that_waits_wakes_the_next() {
    let (queue, in_flight) = (queue(10, 10, MANY_BYTES), Arc::<InFlight>::default());
    let (taken, workers) = each_has_one(3, &queue, Queue::wake_next);
    assert!(queue.push(Via::Cold, deliveries(&in_flight, Via::Cold, 1..=3)).is_empty());
    join(workers);
    taken.assert_each_once(1..=3);
}

fn one_that_is_cut_off_passes_its_wake_up_on() {
    let (queue, in_flight, taken) = (queue(10, 10, MANY_BYTES), Arc::<InFlight>::default(), Arc::<Tally>::default());
    let stays = workers(1, &queue, &taken);
    let cut_off = Arc::new(Notify::new());
    let (from, by, notes) = (queue.clone(), cut_off.clone(), taken.clone());
    let goes = begin(|| async move {
        let cut_off = by.notified();
        if let Some(Some(delivery)) = unless(cut_off, from.take()).await {
            notes.add(delivery.event.sequence());
        }
    });
    let cutter = begin(|| async move { cut_off.notify_one() });
    for sequence in 1..=2 {
        assert!(queue.push(Via::Hot, [delivery(&in_flight, Via::Hot, sequence)]).is_empty());
        taken.wait_for(usize::try_from(sequence).expect("small"));
    }
    queue.close();
    join(stays.into_iter().chain([goes, cutter]));
    taken.assert_each_once(1..=2);
}

/// Pushes whatever finds room, and waits for more.
fn poll(queue: &Queue, in_flight: &Arc<InFlight>, count: u64) {
    let mut next = 1;
    while next <= count {
        if queue.cold_room().events == 0 {
            shuttle::future::block_on(queue.cold_half_empty());
        } else {
            assert!(queue.push(Via::Cold, [delivery(in_flight, Via::Cold, next)]).is_empty(), "nobody else takes the room");
            next += 1;
        }
    }
}

fn the_poller_hears_of_room(cold: usize, bytes: usize) {
    let (queue, in_flight, taken) = (queue(10, cold, bytes), Arc::<InFlight>::default(), Arc::<Tally>::default());
    let workers = workers(2, &queue, &taken);
    poll(&queue, &in_flight, 5);
    taken.wait_for(5);
    queue.close();
    join(workers);
    taken.assert_each_once(1..=5);
}

fn the_poller_hears_of_room_by_number() {
    the_poller_hears_of_room(2, MANY_BYTES);
}

fn the_poller_hears_of_room_by_bytes() {
    the_poller_hears_of_room(10, event_bytes() * 2);
}

fn the_poller_hears_of_events_taken_out() {
    let (queue, in_flight, taken) = (queue(10, 2, MANY_BYTES), Arc::<InFlight>::default(), Arc::<Tally>::default());
    let (from, notes) = (queue.clone(), taken.clone());
    let leaving = begin(|| async move {
        while notes.seen().len() < 3 {
            for delivery in from.take_out(|delivery| delivery.event.sequence() <= 3) {
                notes.add(delivery.event.sequence());
            }
            cast::pause();
        }
    });
    poll(&queue, &in_flight, 3);
    shuttle::future::block_on(queue.cold_half_empty());
    join([leaving]);
    assert_eq!(queue.cold_room().events, 2);
    taken.assert_each_once(1..=3);
}

/// Of the first nine while both sides have some, six are hot, whoever takes them and whatever comes meanwhile.
fn two_hot_for_each_cold() {
    let (queue, in_flight) = (queue(20, 20, MANY_BYTES), Arc::<InFlight>::default());
    assert!(queue.push(Via::Hot, deliveries(&in_flight, Via::Hot, 1..=6)).is_empty());
    assert!(queue.push(Via::Cold, deliveries(&in_flight, Via::Cold, 11..=13)).is_empty());
    let more = {
        let (queue, in_flight) = (queue.clone(), in_flight.clone());
        begin(|| async move {
            queue.push(Via::Cold, deliveries(&in_flight, Via::Cold, 14..=15));
            queue.push(Via::Hot, deliveries(&in_flight, Via::Hot, 7..=8));
        })
    };
    let cold = Arc::new(AtomicUsize::new(0));
    let taker = |count: usize| {
        let (queue, cold) = (queue.clone(), cold.clone());
        begin(move || async move {
            for _ in 0..count {
                let taken = queue.take().await.expect("not closed");
                cold.fetch_add(usize::from(taken.via == Via::Cold), Ordering::Relaxed);
            }
        })
    };
    join([more, taker(5), taker(4)]);
    assert_eq!(cold.load(Ordering::Relaxed), 3, "of nine");
}

/// Two push as much as they can, by all ways that ask for room, and one takes; in between they look.
fn room_is_never_exceeded_nor_leaked() {
    let (most, bytes) = (2, event_bytes() * 2);
    let queue = queue(most, most, bytes);
    let in_flight = Arc::<InFlight>::default();
    let look = move |queue: &Queue| {
        let (hot, cold) = queue.depth();
        assert!(hot <= most && cold <= most, "{hot} hot and {cold} cold events where {most} may be");
    };
    let pusher = |first: u64| {
        let (queue, in_flight) = (queue.clone(), in_flight.clone());
        begin(move || async move {
            let kept = queue.reserve([event_bytes(); 2].into_iter());
            let refused = queue.push(Via::Hot, deliveries(&in_flight, Via::Hot, [first, first + 1]));
            look(&queue);
            let used = kept.events().min(1) as u64;
            assert!(queue.push_reserved(kept, deliveries(&in_flight, Via::Hot, first + 2..first + 2 + used)).is_empty());
            look(&queue);
            drop(refused);
            drop(queue.reserve([event_bytes()].into_iter()));
            drop(queue.push(Via::Cold, deliveries(&in_flight, Via::Cold, [first + 4, first + 5])));
            look(&queue);
        })
    };
    let pushers = [pusher(10), pusher(20)];
    let taker = {
        let queue = queue.clone();
        begin(|| async move {
            for _ in 0..3 {
                drop(queue.try_take());
                drop(queue.take_out(|delivery| delivery.event.sequence() == 14));
            }
        })
    };
    join(pushers.into_iter().chain([taker]));
    drop(queue.drain());
    assert_eq!((queue.hot_room(), queue.cold_room()), (most, Room { events: most, bytes }), "all of it is there again");
    assert_eq!(queue.reserve([event_bytes(); 2].into_iter()).events(), 2, "by bytes, too");
    assert!(in_flight.is_empty());
}

/// Whoever keeps room gets all of it in, and no event of anybody else takes it.
fn kept_room_is_kept() {
    let (queue, in_flight) = (queue(3, 1, MANY_BYTES), Arc::<InFlight>::default());
    let writer = |first: u64| {
        let (queue, in_flight) = (queue.clone(), in_flight.clone());
        begin(move || async move {
            let kept = queue.reserve([event_bytes(); 2].into_iter());
            cast::pause();
            let committed = deliveries(&in_flight, Via::Hot, first..first + kept.events() as u64);
            assert!(queue.push_reserved(kept, committed).is_empty());
            assert!(queue.depth().0 <= 3);
        })
    };
    let other = {
        let (queue, in_flight) = (queue.clone(), in_flight.clone());
        begin(|| async move { drop(queue.push(Via::Hot, deliveries(&in_flight, Via::Hot, 1..=3))) })
    };
    join([writer(10), writer(20), other]);
    assert!(queue.depth().0 <= 3);
    let drained = queue.drain().len();
    assert_eq!((drained > 0, queue.hot_room()), (true, 3));
}

/// Every event is taken, drained, or given back to the one that pushed it; takers and the poller end.
fn a_closing_ends_everybody() {
    let (queue, in_flight, ended) = (queue(10, 1, MANY_BYTES), Arc::<InFlight>::default(), Arc::<Tally>::default());
    let workers = workers(2, &queue, &ended);
    let note = |ended: &Tally, back: Vec<Delivery>| back.iter().for_each(|delivery| ended.add(delivery.event.sequence()));
    let hot = {
        let (queue, in_flight, ended) = (queue.clone(), in_flight.clone(), ended.clone());
        begin(move || async move {
            note(&ended, queue.push(Via::Hot, deliveries(&in_flight, Via::Hot, [1])));
            let kept = queue.reserve([1].into_iter());
            note(&ended, queue.push_reserved(kept, deliveries(&in_flight, Via::Hot, [2])));
            note(&ended, queue.push_counted(delivery(&in_flight, Via::Cold, 3)).into_iter().collect());
        })
    };
    let cold = {
        let (queue, in_flight, ended) = (queue.clone(), in_flight.clone(), ended.clone());
        begin(move || async move {
            for sequence in 4..=5 {
                queue.cold_half_empty().await;
                note(&ended, queue.push(Via::Cold, deliveries(&in_flight, Via::Cold, [sequence])));
            }
        })
    };
    let stop = {
        let (queue, ended) = (queue.clone(), ended.clone());
        begin(move || async move {
            queue.close();
            note(&ended, queue.drain());
        })
    };
    join(workers.into_iter().chain([hot, cold, stop]));
    ended.assert_each_once(1..=5);
    assert!(queue.is_closed() && queue.depth() == (0, 0) && in_flight.is_empty());
}

fn a_closing_leaves_the_rest_to_workers() {
    let (queue, in_flight, taken) = (queue(10, 10, MANY_BYTES), Arc::<InFlight>::default(), Arc::<Tally>::default());
    let workers = workers(2, &queue, &taken);
    assert!(queue.push(Via::Cold, deliveries(&in_flight, Via::Cold, [1])).is_empty());
    assert!(queue.push(Via::Hot, deliveries(&in_flight, Via::Hot, [2])).is_empty());
    queue.close();
    join(workers);
    taken.assert_each_once(1..=2);
}

fn a_closing_ends_the_poller() {
    let (queue, in_flight) = (queue(10, 2, MANY_BYTES), Arc::<InFlight>::default());
    assert!(queue.push(Via::Cold, deliveries(&in_flight, Via::Cold, 1..=2)).is_empty());
    let (poller, stop) = (queue.clone(), queue.clone());
    let poller = begin(move || async move { poller.cold_half_empty().await });
    let stop = begin(move || async move { stop.close() });
    join([poller, stop]);
    assert_eq!((queue.cold_room().events, queue.drain().len()), (0, 2));
}
