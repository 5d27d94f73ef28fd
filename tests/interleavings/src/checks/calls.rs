//! Slots with a listener: no more calls than there are, and none that waits for one that is free.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use shuttle::thread::JoinHandle;
use tokio::sync::Notify;

use crate::cast::{self, Tally, begin, deliveries, delivery, join, queue, unless};
use crate::play::Check;
use crate::queue::{CallAdmission, Delivery, InFlight, Queue, Via};

pub(crate) const ALL: &[Check] = &[
    Check { name: "calls: a listener has no more calls than slots, and no event is stuck", play: no_more_calls_than_slots },
    Check { name: "calls: calls whose waits have ended go on", play: calls_go_on },
    Check { name: "calls: calls that are cut off leave their slots", play: calls_that_are_cut_off_leave_their_slots },
    Check { name: "calls: new slots are given to those that wait", play: new_slots_are_given_to_those_that_wait },
    Check { name: "calls: the poller hears of events that were given slots", play: the_poller_hears_of_slots },
    Check { name: "calls: the poller hears of slots that no call uses yet", play: the_poller_hears_of_slots_that_no_call_uses },
    Check { name: "calls: a closing ends events that wait for slots", play: a_closing_ends_events_that_wait },
];

const MANY_BYTES: usize = 1 << 30;
/// How many calls compute at once, in a runtime of two threads.
const THREADS: usize = 2;

/// A listener, and who is with it.
struct Scene {
    queue: Arc<Queue>,
    in_flight: Arc<InFlight>,
    ended: Arc<Tally>,
    name: Arc<str>,
    calls: usize,
    at_once: Arc<AtomicUsize>,
}

impl Scene {
    fn new(calls: usize, cold: usize) -> Arc<Self> {
        let queue = Arc::new(
            Queue::new(crate::queue::QueueLimits { hot: 10, cold, bytes: crate::units::ByteSize(MANY_BYTES as u64) })
                .for_workers(10),
        );
        let (in_flight, ended, at_once) = Default::default();
        Arc::new(Self { queue, in_flight, ended, name: "slow".into(), calls, at_once })
    }

    fn push(&self, sequences: std::ops::RangeInclusive<u64>) {
        let events = deliveries(&self.in_flight, Via::Cold, sequences);
        assert!(self.queue.push(Via::Cold, events).is_empty(), "there is room");
    }

    /// The next event that has a slot.
    async fn next(&self) -> Option<Delivery> {
        while let Some(delivery) = self.queue.take().await {
            match self.queue.admit(&self.name, self.calls, delivery) {
                CallAdmission::Starts(delivery) => return Some(delivery),
                CallAdmission::Waits => {}
                CallAdmission::Full(..) => panic!("the listener is not slow"),
            }
        }
        None
    }

    /// A call begins or goes on. Returns how many do.
    fn enter(&self) -> usize {
        self.at_once.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn leave(&self) {
        self.at_once.fetch_sub(1, Ordering::Relaxed);
    }

    fn workers(self: &Arc<Self>, count: usize, call: fn(&Self, Delivery)) -> Vec<JoinHandle<()>> {
        let worker = || {
            let scene = self.clone();
            begin(move || async move {
                while let Some(delivery) = scene.next().await {
                    let sequence = delivery.event.sequence();
                    call(&scene, delivery);
                    scene.ended.add(sequence);
                }
            })
        };
        std::iter::repeat_with(worker).take(count).collect()
    }

    /// Waits until this many calls have ended, each once, and looks whether anything is left behind.
    fn end(&self, count: u64, threads: impl IntoIterator<Item = JoinHandle<()>>) {
        self.ended.wait_for(usize::try_from(count).expect("small"));
        self.queue.close();
        join(threads);
        self.ended.assert_each_once(1..=count);
        assert!(self.queue.depth() == (0, 0) && self.in_flight.is_empty());
    }

    /// As many slots are free as there were.
    fn assert_all_slots_are_free(self: &Arc<Self>) {
        let free = self.calls.min(THREADS) as u64;
        let mut calls = Vec::new();
        for sequence in 101..=101 + free {
            let admitted = self.queue.admit(&self.name, self.calls, delivery(&self.in_flight, Via::Cold, sequence));
            match admitted {
                CallAdmission::Starts(delivery) if sequence <= 100 + free => calls.push(delivery),
                CallAdmission::Waits if sequence > 100 + free => {}
                other => panic!("of {free} slots, {} are known; the next call: {other:?}", sequence - 101),
            }
        }
    }
}

fn no_more_calls_than_slots() {
    let scene = Scene::new(1, 10);
    let workers = scene.workers(2, |scene, delivery| {
        assert_eq!(scene.enter(), 1, "one slot");
        cast::pause();
        scene.leave();
        drop(delivery);
    });
    scene.push(1..=2);
    scene.push(3..=3);
    scene.end(3, workers);
    scene.assert_all_slots_are_free();
}

/// Each call waits for something outside and then computes again; meanwhile others compute. Those that were given a slot and
/// have no worker yet may come on top.
fn calls_go_on() {
    let scene = Scene::new(4, 10);
    let workers = scene.workers(4, |scene, mut delivery| {
        assert!(scene.enter() <= 2 * THREADS);
        scene.leave();
        let slot = delivery.slot.as_mut().expect("it was admitted");
        slot.waits();
        scene.queue.wake_next();
        cast::pause();
        shuttle::future::block_on(poll_fn(
            |context| {
                if slot.may_compute(context.waker()) { Poll::Ready(()) } else { Poll::Pending }
            },
        ));
        assert!(scene.enter() <= 2 * THREADS);
        cast::pause();
        scene.leave();
        drop(delivery);
    });
    scene.push(1..=4);
    scene.end(4, workers);
    scene.assert_all_slots_are_free();
}

/// A call ends wherever it stands: while it waits, while it waits to go on, or when it was just told that it may. One that
/// waits to go on may also go on without being told.
fn calls_that_are_cut_off_leave_their_slots() {
    let scene = Scene::new(4, 10);
    let cut_off = Arc::new(Notify::new());
    let worker = || {
        let (scene, cut_off) = (scene.clone(), cut_off.clone());
        begin(move || async move {
            let cut_off = cut_off.notified();
            let mut delivery = scene.next().await.expect("there is one for each");
            let sequence = delivery.event.sequence();
            let slot = delivery.slot.as_mut().expect("it was admitted");
            slot.waits();
            scene.queue.wake_next();
            let mut waits_to_go_on = false;
            let goes_on = poll_fn(|context| {
                waits_to_go_on = !slot.may_compute(context.waker());
                if waits_to_go_on { Poll::Pending } else { Poll::Ready(()) }
            });
            unless(cut_off, goes_on).await;
            cast::pause();
            if sequence % 2 == 0 && waits_to_go_on {
                slot.compute_anyway();
            }
            cast::pause();
            drop(delivery);
            scene.ended.add(sequence);
        })
    };
    let workers: Vec<_> = std::iter::repeat_with(worker).take(4).collect();
    let cutter = {
        let (cut_off, ended) = (cut_off.clone(), scene.ended.clone());
        begin(move || async move {
            while ended.seen().len() < 4 {
                cut_off.notify_waiters();
                cast::pause();
            }
        })
    };
    scene.push(1..=4);
    scene.end(4, workers.into_iter().chain([cutter]));
    scene.assert_all_slots_are_free();
}

/// A listener is given more slots while its events wait: the next event that comes gives the slots to them.
fn new_slots_are_given_to_those_that_wait() {
    let scene = Scene::new(1, 10);
    let admit = |calls, sequence| scene.queue.admit(&scene.name, calls, delivery(&scene.in_flight, Via::Cold, sequence));
    let first = admit(1, 1);
    assert!(matches!((&first, admit(1, 2)), (CallAdmission::Starts(_), CallAdmission::Waits)));
    let worker = {
        let scene = scene.clone();
        begin(move || async move {
            let next = scene.queue.take().await.expect("not closed");
            assert_eq!((next.event.sequence(), next.slot.is_some()), (2, true));
        })
    };
    assert!(matches!(admit(2, 3), CallAdmission::Waits));
    join([worker]);
}

/// Events that wait for slots take up the poller's room, beyond as many as the queue has.
fn the_poller_hears_of_slots() {
    let scene = Scene::new(1, 1);
    let workers = scene.workers(2, |_, delivery| {
        cast::pause();
        drop(delivery);
    });
    for sequence in 1..=5 {
        while scene.queue.cold_room().events == 0 {
            shuttle::future::block_on(scene.queue.cold_half_empty());
        }
        scene.push(sequence..=sequence);
    }
    scene.end(5, workers);
}

/// The same when no worker comes for them.
fn the_poller_hears_of_slots_that_no_call_uses() {
    let scene = Scene::new(1, 2);
    let mut admitted = (1..=5).map(|n| scene.queue.admit(&scene.name, 1, delivery(&scene.in_flight, Via::Cold, n)));
    let first = admitted.next().expect("the first");
    assert!(matches!(first, CallAdmission::Starts(_)) && admitted.all(|other| matches!(other, CallAdmission::Waits)));
    assert_eq!(scene.queue.cold_room().events, 0, "two of four are beyond what the listener has room for");
    let poller = {
        let queue = scene.queue.clone();
        begin(move || async move { queue.cold_half_empty().await })
    };
    let ends = begin(move || async move { drop(first) });
    join([poller, ends]);
    assert_eq!(scene.queue.drain().len(), 4);
}

/// A call that no worker waits for any more keeps the only slot over the end of all workers. What waits for it is drained, or
/// was given the slot before.
fn a_closing_ends_events_that_wait() {
    let scene = Scene::new(1, 10);
    let first = scene.queue.admit(&scene.name, 1, delivery(&scene.in_flight, Via::Cold, 1));
    let straggler = {
        let scene = scene.clone();
        begin(move || async move {
            drop(first);
            scene.ended.add(1);
        })
    };
    let workers = scene.workers(2, |_, delivery| {
        cast::pause();
        drop(delivery);
    });
    scene.push(2..=4);
    scene.queue.close();
    join(workers);
    scene.queue.drain().iter().for_each(|delivery| scene.ended.add(delivery.event.sequence()));
    join([straggler]);
    scene.ended.assert_each_once(1..=4);
    assert!(scene.queue.depth() == (0, 0) && scene.in_flight.is_empty());
}
