//! Order: of one aggregate one event is at work, the next one starts when it has ended, and none is stuck.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use shuttle::sync::Mutex;

use crate::cast::{self, Host, Tally, begin, event, id, join, queue};
use crate::event::Fence;
use crate::play::Check;
use crate::queue::{Admission, Delivery, InFlight, KeyQueueLimits, KeyQueues, Queue, Via};

pub(crate) const ALL: &[Check] = &[
    Check { name: "key queues: one event of a key at work, each once, in order, none stuck", play: one_at_a_time_in_order },
    Check { name: "key queues: the same where there is little room", play: in_order_with_little_room },
    Check { name: "key queues: the same in one queue of all events", play: in_order_in_one_queue_of_all },
    Check { name: "key queues: the same where events are not resolved or their workers panic", play: in_order_with_failures },
    Check { name: "key queues: the same where waiting events are taken out", play: in_order_with_events_taken_out },
];

const EVENTS: u64 = 3;

/// A row of the table: how often an outcome of it was stored, and whether somebody behind it waits still.
#[derive(Clone, Copy, Debug)]
struct Row {
    claim_seq: u64,
    is_resolved: bool,
}

/// A host that keeps order over a table of one aggregate.
struct Scene {
    host: Host,
    queue: Arc<Queue>,
    in_flight: Arc<InFlight>,
    key_queues: Arc<KeyQueues>,
    rows: Mutex<[Row; EVENTS as usize]>,
    /// Resolved events.
    resolved: Arc<Tally>,
    at_work: AtomicUsize,
    /// How many calls are yet to end otherwise than well.
    failures: Mutex<Vec<Failure>>,
}

/// How a call ends that does not end well.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// The outcome is stored, and others wait for the event still.
    Retry,
    /// The worker is gone, and what it had is dropped.
    Panic,
}

impl Scene {
    fn new(key_queues: KeyQueues, failures: &[Failure]) -> Arc<Self> {
        Arc::new(Self {
            host: Host::of_all(),
            queue: queue(10, 10, 1 << 30),
            in_flight: Arc::default(),
            key_queues: Arc::new(key_queues),
            rows: Mutex::new([Row { claim_seq: 1, is_resolved: false }; EVENTS as usize]),
            resolved: Arc::default(),
            at_work: AtomicUsize::new(0),
            failures: Mutex::new(failures.to_vec()),
        })
    }

    /// One turn of the poller: reads the table, accepts what is new, and lets each have its place. What finds none is let go: the next
    /// turn brings it again.
    async fn turn(&self) {
        let reading = self.in_flight.begin_read();
        self.key_queues.asking();
        let (held, rows) = (self.in_flight.in_hand(), *self.rows.lock().expect("no panic"));
        cast::pause();
        let mut nearest = None;
        for (sequence, row) in (1..).zip(rows).filter(|(_, row)| !row.is_resolved) {
            let behind = nearest.replace(sequence);
            if held.contains(&sequence) {
                continue;
            }
            let fence = Fence::new(sequence, 1, row.claim_seq);
            let hold = self.host.partitions.hold(0, 1).expect("it stays open");
            // The claim of one that was left without an outcome.
            let until = self.host.partitions.lease_end();
            let mark = if self.in_flight.is_left(&id(sequence)) {
                let claimed = {
                    let mut rows = self.rows.lock().expect("no panic");
                    let row = &mut rows[usize::try_from(sequence - 1).expect("small")];
                    row.claim_seq += 1;
                    Fence::new(sequence, 1, row.claim_seq)
                };
                self.in_flight.mark_claimed(id(sequence), claimed, until, until).await
            } else {
                self.in_flight.mark_read(id(sequence), fence, hold, until).await.ok()
            };
            let Some(mark) = mark else { continue };
            match self.key_queues.admit(Delivery::new(event(sequence), mark, Via::Cold, 0), behind) {
                Admission::Start(delivery) => self.start(delivery),
                Admission::Waits => {}
                Admission::Behind(delivery, _) | Admission::Elsewhere(delivery, _) => delivery.mark.settled(),
            }
        }
        drop(reading);
    }

    fn start(&self, delivery: Delivery) {
        assert!(self.queue.push_claimed(delivery).is_none(), "not closed");
    }

    /// A call, and what the settler does with its outcome.
    fn call(&self, mut delivery: Delivery) {
        let sequence = delivery.event.sequence();
        assert_eq!(self.at_work.fetch_add(1, Ordering::Relaxed), 0, "another of the same key is at work");
        let before = usize::try_from(sequence - 1).expect("small");
        let rows = *self.rows.lock().expect("no panic");
        assert!(rows[..before].iter().all(|row| row.is_resolved), "{sequence} does not start before those that it waits for");
        assert!(!rows[before].is_resolved, "{sequence} starts once");
        let failure = self.failures.lock().expect("no panic").pop();
        if matches!(failure, Some(Failure::Panic)) {
            self.at_work.fetch_sub(1, Ordering::Relaxed);
            drop(delivery);
            return;
        }
        let is_resolved = failure.is_none();
        {
            let mut rows = self.rows.lock().expect("no panic");
            let row = &mut rows[before];
            *row = Row { claim_seq: row.claim_seq + 1, is_resolved };
            if is_resolved {
                self.resolved.add(sequence);
            }
        }
        self.at_work.fetch_sub(1, Ordering::Relaxed);
        let after = delivery.turn.take().expect("its turn").end(is_resolved);
        if let Some(next) = after.next {
            self.start(next);
        }
        after.behind.into_iter().for_each(|waiting| waiting.mark.settled());
        delivery.mark.settled();
    }

    /// Plays it until every event is resolved.
    fn play(self: &Arc<Self>, beside: impl FnOnce(&Self) + Send + 'static) {
        let worker = || {
            let scene = self.clone();
            begin(move || async move {
                while let Some(delivery) = scene.queue.take().await {
                    scene.call(delivery);
                }
            })
        };
        let workers: Vec<_> = std::iter::repeat_with(worker).take(2).collect();
        let others = {
            let scene = self.clone();
            begin(move || async move { beside(&scene) })
        };
        let all = usize::try_from(EVENTS).expect("small");
        while self.resolved.seen().len() < all {
            shuttle::future::block_on(self.turn());
            cast::pause();
        }
        self.queue.close();
        join(workers.into_iter().chain([others]));
        assert_eq!(self.resolved.seen(), (1..=EVENTS).collect::<Vec<_>>(), "each once, in order");
        assert_eq!((self.key_queues.waiting(), self.key_queues.held()), ((0, 0), vec![]), "nothing is left behind");
        assert!(self.in_flight.is_empty());
        self.host.assert_rid_of_all();
    }
}

fn roomy() -> KeyQueues {
    KeyQueues::new(KeyQueueLimits { events: 100, bytes: 1 << 30, workers: 2 })
}

fn one_at_a_time_in_order() {
    Scene::new(roomy(), &[]).play(|_| {});
}

fn in_order_with_little_room() {
    Scene::new(KeyQueues::new(KeyQueueLimits { events: 2, bytes: 1 << 30, workers: 2 }), &[]).play(|_| {});
}

fn in_order_in_one_queue_of_all() {
    Scene::new(KeyQueues::one_for_all(), &[]).play(|_| {});
}

fn in_order_with_failures() {
    Scene::new(roomy(), &[Failure::Panic, Failure::Retry]).play(|_| {});
}

/// As when their partition is given back, and taken again.
fn in_order_with_events_taken_out() {
    Scene::new(roomy(), &[]).play(|scene| {
        for sequence in [3, 2] {
            for delivery in scene.key_queues.take_out(|waiting| waiting.event.sequence() == sequence) {
                delivery.mark.settled();
            }
            cast::pause();
        }
    });
}
