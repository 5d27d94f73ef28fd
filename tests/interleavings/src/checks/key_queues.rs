//! Order: of one aggregate one event is at work, the next one starts when it has ended, and none is stuck.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Mutex, MutexGuard};

use crate::cast::{self, Host, Tally, begin, event, id, join, queue};
use crate::event::Fence;
use crate::play::Check;
use crate::queue::{Delivery, InFlight, KeyAdmission, KeyQueueLimits, KeyQueues, Queue, Room, Via};

pub(crate) const ALL: &[Check] = &[
    Check { name: "key queues: one event of a key at work, each once, in order, none stuck", play: one_at_a_time_in_order },
    Check { name: "key queues: the same where there is little room", play: in_order_with_little_room },
    Check { name: "key queues: the same in one queue of all events", play: in_order_in_one_queue_of_all },
    Check { name: "key queues: the same where events are not resolved or their workers panic", play: in_order_with_failures },
    Check { name: "key queues: the same where waiting events are taken out", play: in_order_with_events_taken_out },
    Check { name: "key queues: an event whose time comes late has its place among those that wait", play: late_in_its_place },
    Check { name: "key queues: the same where there is little room", play: late_in_its_place_with_little_room },
    Check {
        name: "key queues: what is resolved is waited for no more, until the table says so again",
        play: resolved_and_again,
    },
    Check { name: "key queues: what finds no place is behind the last one there", play: behind_the_last },
    Check {
        name: "key queues: no event passes a late one that failed while the table was asked",
        play: none_passes_a_late_one_that_failed,
    },
];

const EVENTS: u64 = 3;
/// How often a call lets others go on: a poller reads the table meanwhile, and gives what it brings its place.
const PAUSES: usize = 12;

/// A row of the table: how often an outcome of it was stored, and whether somebody behind it waits still.
#[derive(Clone, Copy, Debug)]
struct Row {
    claim_seq: u64,
    is_resolved: bool,
    /// Whether its time has come.
    is_due: bool,
}

/// A host that keeps order over a table of one aggregate.
struct Scene {
    host: Host,
    queue: Arc<Queue>,
    in_flight: Arc<InFlight>,
    key_queues: Arc<KeyQueues>,
    rows: Mutex<[Row; EVENTS as usize]>,
    /// Events that wait in the queues.
    placed: Mutex<Vec<u64>>,
    /// The event whose time comes late, if any: what was taken before may go first.
    late: Option<u64>,
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
        Arc::new(Self::of(key_queues, failures, None))
    }

    fn of(key_queues: KeyQueues, failures: &[Failure], late: Option<u64>) -> Self {
        let row = |sequence| Row { claim_seq: 1, is_resolved: false, is_due: late != Some(sequence) };
        Self {
            host: Host::of_all(),
            queue: queue(10, 10, 1 << 30),
            in_flight: Arc::default(),
            key_queues: Arc::new(key_queues),
            rows: Mutex::new([1, 2, 3].map(row)),
            placed: Mutex::default(),
            late,
            resolved: Arc::default(),
            at_work: AtomicUsize::new(0),
            failures: Mutex::new(failures.to_vec()),
        }
    }

    /// One turn of the poller: reads the table, accepts what is new, and lets each have its place. What finds none is let go:
    /// the next turn brings it again.
    async fn turn(&self) {
        let reading = self.in_flight.begin_read();
        let queued = self.key_queues.asking();
        let (held, rows) = (self.in_flight.in_hand(), *self.rows.lock().expect("no panic"));
        cast::pause();
        let mut earlier: Vec<u64> = Vec::new();
        for (sequence, row) in (1..).zip(rows).filter(|(_, row)| row.is_due && !row.is_resolved) {
            // As the stores say it.
            let behind = earlier.iter().rfind(|earlier| !queued.contains(earlier)).or(earlier.last()).copied();
            earlier.push(sequence);
            if held.contains(&sequence) {
                continue;
            }
            let fence = Fence::new(sequence, 1, row.claim_seq);
            let hold = self.host.partitions.hold(0, 1).expect("it stays open");
            // The claim of one that was dropped without an outcome.
            let until = self.host.partitions.lease_end();
            let mark = if self.in_flight.is_dropped(&id(sequence)) {
                let claimed = {
                    let mut rows = self.rows.lock().expect("no panic");
                    let row = &mut rows[usize::try_from(sequence - 1).expect("small")];
                    row.claim_seq += 1;
                    Fence::new(sequence, 1, row.claim_seq)
                };
                self.in_flight.mark_claimed(id(sequence), claimed, until, None, until).await
            } else {
                self.in_flight.mark_read(id(sequence), fence, hold, until).await.ok()
            };
            let Some(mark) = mark else { continue };
            match self.key_queues.admit(Delivery::new(event(sequence), mark, Via::Cold, 0), behind) {
                KeyAdmission::Start(delivery) => self.start(delivery),
                KeyAdmission::Waits => self.placed().push(sequence),
                KeyAdmission::Behind(delivery, _) | KeyAdmission::Elsewhere(delivery, _) => {
                    if delivery.event.sequence() != sequence {
                        self.placed().push(sequence);
                    }
                    self.let_go(delivery);
                }
            }
        }
        drop(reading);
    }

    fn placed(&self) -> MutexGuard<'_, Vec<u64>> {
        self.placed.lock().expect("no panic")
    }

    fn let_go(&self, delivery: Delivery) {
        self.placed().retain(|placed| *placed != delivery.event.sequence());
        delivery.mark.settled();
    }

    fn start(&self, delivery: Delivery) {
        assert!(self.queue.push_counted(delivery).is_none(), "not closed");
    }

    /// A call, and what the settler does with its outcome.
    fn call(&self, mut delivery: Delivery) {
        let sequence = delivery.event.sequence();
        assert_eq!(self.at_work.fetch_add(1, Ordering::Relaxed), 0, "another of the same key is at work");
        (0..PAUSES).for_each(|_| cast::pause());
        let before = usize::try_from(sequence - 1).expect("small");
        let rows = *self.rows.lock().expect("no panic");
        let earlier = (1..).zip(&rows[..before]).filter(|(earlier, _)| self.late != Some(*earlier));
        for (earlier, row) in earlier {
            assert!(row.is_resolved, "{sequence} does not start before {earlier}, which it waits for");
        }
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
            *row = Row { claim_seq: row.claim_seq + 1, is_resolved, ..*row };
            if is_resolved {
                self.resolved.add(sequence);
            }
        }
        self.at_work.fetch_sub(1, Ordering::Relaxed);
        let rows = *self.rows.lock().expect("no panic");
        // One that began before the poller noted it waits no more.
        let waits = |placed: &u64| *placed != sequence && !rows[usize::try_from(*placed - 1).expect("small")].is_resolved;
        let placed: Vec<u64> = self.placed().iter().copied().filter(waits).collect();
        let after = self.key_queues.end(*delivery.turn.take().expect("its turn"), is_resolved);
        if let Some(next) = after.next {
            let next_one = next.event.sequence();
            assert!(placed.iter().all(|placed| *placed >= next_one), "{next_one} comes next, though {placed:?} wait");
            self.placed().retain(|placed| *placed != next_one);
            self.start(next);
        }
        after.behind.into_iter().for_each(|waiting| self.let_go(waiting));
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
        match self.late {
            None => assert_eq!(self.resolved.seen(), (1..=EVENTS).collect::<Vec<_>>(), "each once, in order"),
            Some(_) => self.resolved.assert_each_once(1..=EVENTS),
        }
        assert_eq!((self.key_queues.waiting(), self.key_queues.asking()), (Room::default(), vec![]), "nothing is left behind");
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

/// As when their partition is given back, and taken again. Their outcomes are stored in any order.
fn in_order_with_events_taken_out() {
    Scene::new(roomy(), &[]).play(|scene| {
        for sequence in [3, 2] {
            let mut taken = scene.key_queues.take_out(|waiting| waiting.event.sequence() == sequence);
            while let Some(last) = taken.pop() {
                scene.let_go(last);
                cast::pause();
            }
        }
    });
}

fn late_in_its_place() {
    play_late(roomy());
}

fn late_in_its_place_with_little_room() {
    play_late(KeyQueues::new(KeyQueueLimits { events: 2, bytes: 1 << 30, workers: 2 }));
}

/// The time of the first event comes while others of its key are at work, or wait.
fn play_late(key_queues: KeyQueues) {
    Arc::new(Scene::of(key_queues, &[], Some(1))).play(|scene| {
        cast::pause();
        scene.rows.lock().expect("no panic")[0].is_due = true;
    });
}

fn admit(key_queues: &Arc<KeyQueues>, in_flight: &Arc<InFlight>, sequence: u64, nearest: Option<u64>) -> KeyAdmission {
    key_queues.admit(cast::delivery(in_flight, Via::Cold, sequence), nearest)
}

fn begin_first(key_queues: &Arc<KeyQueues>, in_flight: &Arc<InFlight>) -> Delivery {
    match admit(key_queues, in_flight, 1, None) {
        KeyAdmission::Start(first) => first,
        other => panic!("nothing is in its way: {other:?}"),
    }
}

/// Ends the turn of an event. Returns the next one, or those that may not start.
fn end(key_queues: &Arc<KeyQueues>, mut delivery: Delivery, resolved: bool) -> (Option<Delivery>, Vec<Delivery>) {
    let after = key_queues.end(*delivery.turn.take().expect("its turn"), resolved);
    (after.next, after.behind)
}

/// The outcome of an event is stored while the table is asked what others wait for. Later somebody brings the event back.
fn resolved_and_again() {
    let (key_queues, in_flight) = (Arc::new(roomy()), Arc::<InFlight>::default());
    let first = begin_first(&key_queues, &in_flight);
    let (is_resolved, next) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
    let worker = {
        let (key_queues, is_resolved, next) = (key_queues.clone(), is_resolved.clone(), next.clone());
        begin(move || async move {
            is_resolved.store(true, Ordering::SeqCst);
            *next.lock().expect("no panic") = end(&key_queues, first, true).0;
        })
    };
    key_queues.asking();
    let nearest = (!is_resolved.load(Ordering::SeqCst)).then_some(1);
    cast::pause();
    let second = match admit(&key_queues, &in_flight, 2, nearest) {
        KeyAdmission::Start(second) => Some(second),
        KeyAdmission::Waits => None,
        other => panic!("the first is in our hands, or out of the way: {other:?}"),
    };
    join([worker]);
    let second = second.or_else(|| next.lock().expect("no panic").take()).expect("its turn");
    assert!(end(&key_queues, second, true).0.is_none());
    key_queues.asking();
    let third = admit(&key_queues, &in_flight, 3, Some(1));
    assert!(matches!(third, KeyAdmission::Elsewhere(_, 1)), "it waits for the first again: {third:?}");
}

/// An event stands behind another that is not in our hands, while the one before that goes from waiting to work.
fn behind_the_last() {
    let (key_queues, in_flight) = (Arc::new(roomy()), Arc::<InFlight>::default());
    let first = begin_first(&key_queues, &in_flight);
    assert!(matches!(admit(&key_queues, &in_flight, 2, Some(1)), KeyAdmission::Waits));
    let queues = key_queues.clone();
    let worker = begin(move || async move {
        let second = end(&queues, first, true).0.expect("it waits");
        // It is at work until the end.
        std::mem::forget(second);
    });
    let fourth = admit(&key_queues, &in_flight, 4, Some(3));
    assert!(matches!(fourth, KeyAdmission::Behind(_, 2)), "the second is the last one there: {fourth:?}");
    join([worker]);
    let fifth = admit(&key_queues, &in_flight, 5, Some(3));
    assert!(matches!(fifth, KeyAdmission::Behind(_, 2)), "and is so at work: {fifth:?}");
}

/// Event 3 came late and waits behind 5, which is at work. While the table is asked for 6 and its answer is on its way, 5 is done,
/// and 3 fails: it is to be tried again, and 6 does not start before it.
fn none_passes_a_late_one_that_failed() {
    let (key_queues, in_flight) = (Arc::new(roomy()), Arc::<InFlight>::default());
    let KeyAdmission::Start(fifth) = admit(&key_queues, &in_flight, 5, None) else { panic!("nothing is in its way") };
    assert!(matches!(admit(&key_queues, &in_flight, 3, None), KeyAdmission::Waits));
    let (is_resolved, behind) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let worker = {
        let (key_queues, is_resolved, behind) = (key_queues.clone(), is_resolved.clone(), behind.clone());
        begin(move || async move {
            is_resolved.store(true, Ordering::SeqCst);
            let third = end(&key_queues, fifth, true).0.expect("it waits");
            cast::pause();
            let (next, waited) = end(&key_queues, third, false);
            assert!(next.is_none(), "nothing starts before it");
            behind.store(waited.len(), Ordering::SeqCst);
        })
    };
    let queued = key_queues.asking();
    let unresolved = if is_resolved.load(Ordering::SeqCst) { vec![3] } else { vec![3, 5] };
    let nearest = unresolved.iter().rfind(|earlier| !queued.contains(earlier)).or(unresolved.last()).copied();
    cast::pause();
    let sixth = admit(&key_queues, &in_flight, 6, nearest);
    assert!(!matches!(sixth, KeyAdmission::Start(_)), "3 is not resolved: {sixth:?}");
    let waits = matches!(sixth, KeyAdmission::Waits);
    join([worker]);
    assert_eq!(behind.load(Ordering::SeqCst), usize::from(waits), "it waited behind 3");
}
