use std::sync::atomic::{AtomicUsize, Ordering};

use super::call_queue::SLOW_AFTER;
use super::*;
use crate::event::{Envelope, Event, Fence};
use crate::queue::InFlight;

fn delivery(in_flight: &Arc<InFlight>, via: Via, sequence: u64) -> Delivery {
    let envelope = Envelope::new("X").json(&1).expect("valid");
    let fence = Some(Fence { sequence, claim: 1 });
    let mark = in_flight.mark(envelope.id(), fence, Duration::from_secs(30)).expect("new");
    Delivery::new(Arc::new(Event::of(envelope).sequence(sequence).build()), mark, via, 0)
}

struct Scene {
    queue: Arc<Queue>,
    in_flight: Arc<InFlight>,
    name: Arc<str>,
}

impl Scene {
    fn new() -> Self {
        let in_flight = Arc::default();
        Self { queue: Arc::new(Queue::new(QueueLimits::default())), in_flight, name: "slow".into() }
    }

    /// A cold event of a listener with this many calls.
    fn admit_of(&self, calls: usize, sequence: u64) -> Option<Delivery> {
        match self.queue.admit(&self.name, calls, delivery(&self.in_flight, Via::Cold, sequence)) {
            CallAdmission::Starts(delivery) => Some(delivery),
            CallAdmission::Waits => None,
            CallAdmission::Full(..) => panic!("there is room"),
        }
    }

    fn admit(&self, via: Via, sequence: u64) -> Option<Delivery> {
        match self.queue.admit(&self.name, 1, delivery(&self.in_flight, via, sequence)) {
            CallAdmission::Starts(delivery) => Some(delivery),
            CallAdmission::Waits => None,
            CallAdmission::Full(..) => panic!("there is room"),
        }
    }
}

fn with_threads(threads: usize) -> Arc<Queue> {
    let queue = Queue::new(QueueLimits::default());
    Arc::new(Queue { bounds: Bounds { threads, ..queue.bounds }, ..queue })
}

fn slot(delivery: &mut Delivery) -> &mut CallSlot {
    delivery.slot.as_mut().expect("admitted")
}

/// Counts how often it is woken.
#[derive(Default)]
struct Rings(AtomicUsize);

impl Rings {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl std::task::Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn counting_waker() -> (Waker, Arc<Rings>) {
    let rings = Arc::<Rings>::default();
    (Waker::from(rings.clone()), rings)
}

fn sequence(delivery: Option<Delivery>) -> Option<u64> {
    delivery.map(|delivery| delivery.event.sequence())
}

#[test]
fn an_event_without_a_slot_waits_for_the_one_that_is_left() {
    let scene = Scene::new();
    let first = scene.admit(Via::Cold, 1).expect("the slot is free");
    assert!(scene.admit(Via::Cold, 2).is_none());
    assert!(scene.queue.try_take().is_none(), "no worker meets it before");
    assert_eq!(scene.queue.depth(), (0, 1));
    drop(first);
    let second = scene.queue.try_take().expect("it has the slot now");
    assert_eq!(second.event.sequence(), 2);
    let again = scene.queue.admit(&scene.name, 1, second);
    assert!(matches!(again, CallAdmission::Starts(_)), "and keeps it");
}

#[test]
fn a_call_that_waits_lets_another_compute_and_one_that_computes_does_not() {
    let queue = with_threads(2);
    let scene = Scene { queue, ..Scene::new() };
    let admit = |sequence| match scene.queue.admit(&scene.name, 100, delivery(&scene.in_flight, Via::Cold, sequence)) {
        CallAdmission::Starts(delivery) => Some(delivery),
        CallAdmission::Waits => None,
        CallAdmission::Full(..) => panic!("there is room"),
    };
    let mut first = admit(1).expect("a thread is free");
    let mut second = admit(2).expect("and another");
    assert!(admit(3).is_none(), "both threads are taken");
    assert!(scene.queue.try_take().is_none());
    slot(&mut first).waits();
    let third = scene.queue.try_take().expect("the first waits for something outside");
    assert_eq!(third.event.sequence(), 3);
    drop(third);
    assert!(slot(&mut first).may_compute(Waker::noop()), "a thread is free again");
    assert!(admit(4).is_none(), "two compute");
    slot(&mut second).waits();
    drop(second);
    assert_eq!(sequence(scene.queue.try_take()), Some(4), "a call that ends while it waits is counted once");
}

#[test]
fn a_call_that_is_cut_off_while_it_waits_and_then_waits_for_its_outcome_is_counted_once() {
    let scene = Scene { queue: with_threads(2), ..Scene::new() };
    let mut calls: Vec<Delivery> = (0..2).map(|number| scene.admit_of(2, number).expect("a thread is free")).collect();
    for call in &mut calls {
        slot(call).waits();
        slot(call).waits();
    }
    drop(calls);

    let again: Vec<Delivery> = (2..4).map(|number| scene.admit_of(2, number).expect("both slots are free")).collect();

    assert!(scene.admit_of(2, 4).is_none(), "two calls, and no more");
    drop(again);
}

#[test]
fn calls_whose_waits_have_ended_compute_again_only_as_many_as_there_are_threads() {
    let (waker, rings) = counting_waker();
    let scene = Scene { queue: with_threads(2), ..Scene::new() };
    let mut calls: Vec<Delivery> = Vec::new();
    for number in 0..5 {
        let mut call = scene.admit_of(100, number).expect("those before it wait");
        slot(&mut call).waits();
        calls.push(call);
    }
    let mut may = |number: usize| slot(&mut calls[number]).may_compute(&waker);
    assert_eq!([0, 1, 2, 3].map(&mut may), [true, true, false, false], "two compute, and two wait for that");
    assert_eq!([2, 3].map(&mut may), [false, false], "asked again, they wait still");
    assert!(scene.admit_of(100, 9).is_none(), "a new call comes after them");

    drop(calls.remove(0));
    assert_eq!(rings.count(), 1, "the first of them goes on");
    assert!(slot(&mut calls[1]).may_compute(&waker) && !slot(&mut calls[2]).may_compute(&waker));
    assert!(scene.queue.try_take().is_none(), "and nobody beside it");

    // The call that waits to resume is cut off: it takes no turn.
    drop(calls.remove(2));
    slot(&mut calls[0]).waits();
    assert_eq!(rings.count(), 1);
    assert_eq!(sequence(scene.queue.try_take()), Some(9));
}

#[test]
fn calls_that_have_begun_do_not_wait_for_events_that_have_a_slot_and_no_worker() {
    let scene = Scene { queue: with_threads(1), ..Scene::new() };
    let mut first = scene.admit_of(100, 1).expect("a thread is free");
    assert!(scene.admit_of(100, 2).is_none());
    slot(&mut first).waits();
    assert_eq!(scene.queue.depth(), (0, 1), "the second has a slot, and no worker comes for it");
    assert!(slot(&mut first).may_compute(Waker::noop()));
}

#[test]
fn a_listener_without_a_call_gets_a_slot_when_others_have_taken_all_that_they_may() {
    let queue = Arc::new(Queue::new(QueueLimits::default()).for_workers(16));
    let (early, late) = (Scene { queue: queue.clone(), ..Scene::new() }, Scene { queue, name: "late".into(), ..Scene::new() });
    let mut calls: Vec<Delivery> = Vec::new();
    while let Some(mut call) = early.admit_of(100, calls.len() as u64) {
        slot(&mut call).waits();
        calls.push(call);
    }
    assert_eq!(calls.len(), 14, "an eighth of sixteen is left");
    let mut first = late.admit_of(100, 100).expect("it has none yet");
    slot(&mut first).waits();
    assert!(late.admit_of(100, 101).is_none(), "that which is left is not for one listener alone");
    assert!(early.admit_of(100, 102).is_none());

    drop(calls.pop());
    assert!(early.queue.try_take().is_none(), "fifteen are taken");
    drop(calls.pop());
    assert_eq!(sequence(early.queue.try_take()), Some(101), "the listener with the fewest goes first");
}

#[test]
fn few_workers_are_not_shared_out() {
    let shared = |workers| Bounds::of(2, workers).shared;
    assert_eq!([1, 2, 3, 4, 8, 9, 256, 1_000].map(shared), [1, 2, 3, 3, 7, 7, 224, 875]);
}

#[test]
fn a_slot_of_another_listener_goes_to_the_next_that_waits_there() {
    let scene = Scene::new();
    let first = scene.admit(Via::Cold, 1).expect("the slot is free");
    assert!(scene.admit(Via::Cold, 2).is_none());
    // Another listener has got its route in the meantime.
    let moved = scene.queue.admit(&"other".into(), 1, first);
    assert!(matches!(moved, CallAdmission::Starts(_)));
    assert_eq!(sequence(scene.queue.try_take()), Some(2));
}

#[test]
fn events_that_waited_take_turns_with_the_others_and_hot_ones_go_before_cold_ones() {
    let scene = Scene::new();
    let mut at_work = scene.admit(Via::Cold, 1);
    for (via, sequence) in [(Via::Cold, 2), (Via::Cold, 3), (Via::Hot, 4), (Via::Hot, 5), (Via::Hot, 6)] {
        assert!(scene.admit(via, sequence).is_none());
    }
    let others = (100..110).map(|sequence| delivery(&scene.in_flight, Via::Cold, sequence));
    assert!(scene.queue.push(Via::Cold, others).is_empty());
    let mut taken = Vec::new();
    for _ in 0..10 {
        // The call ends, and the next event gets its slot.
        drop(at_work.take());
        let next = scene.queue.try_take().expect("there are more");
        taken.push(next.event.sequence());
        at_work = next.slot.is_some().then_some(next);
    }
    assert_eq!(taken, [4, 100, 5, 101, 2, 102, 6, 103, 3, 104]);
}

#[test]
fn a_queue_that_is_drained_gives_up_what_waits_for_slots_too() {
    let scene = Scene::new();
    let at_work = scene.admit(Via::Cold, 1);
    (2..5).for_each(|sequence| assert!(scene.admit(Via::Hot, sequence).is_none()));
    assert_eq!(scene.queue.drain().len(), 3);
    drop(at_work);
    assert!(scene.queue.try_take().is_none());
    assert!(scene.admit(Via::Cold, 9).is_some(), "the slot is free again");
}

#[test]
fn events_that_wait_use_room_of_the_queue_only_beyond_their_own() {
    let limits = QueueLimits { hot: 2, cold: 2, ..QueueLimits::default() };
    let queue = Arc::new(Queue::new(limits));
    let scene = Scene { queue, ..Scene::new() };
    let _at_work = scene.admit(Via::Cold, 1);
    let mut rooms = Vec::new();
    for sequence in 2..6 {
        assert!(scene.admit(Via::Cold, sequence).is_none());
        rooms.push(scene.queue.cold_room().events);
    }
    assert_eq!((rooms, scene.queue.hot_room()), (vec![2, 2, 1, 0], 2));
}

#[test]
fn a_slow_call_queue_takes_no_more_than_its_own_room_and_leaves_that_of_the_queue() {
    let (limits, in_flight) = (QueueLimits { hot: 2, cold: 2, ..QueueLimits::default() }, Arc::default());
    let start = Instant::now();
    let mut call_queue = CallQueue::new(start);
    (1..=3).for_each(|sequence| call_queue.push(start, delivery(&in_flight, Via::Cold, sequence)));
    assert!(!call_queue.has_room(Via::Cold, limits) && call_queue.has_room(Via::Hot, limits));
    assert!(!call_queue.is_slow(start + SLOW_AFTER / 2), "nobody has waited for long");
    assert!(call_queue.is_slow(start + SLOW_AFTER));
}

#[test]
fn a_slow_call_queue_is_busy_from_when_it_is_full_until_it_is_half_empty() {
    let (limits, in_flight) = (QueueLimits { hot: 4, cold: 4, ..QueueLimits::default() }, Arc::default());
    let start = Instant::now();
    let late = start + SLOW_AFTER;
    let mut call_queue = CallQueue::new(start);
    (1..=3).for_each(|sequence| call_queue.push(start, delivery(&in_flight, Via::Cold, sequence)));
    assert!(!call_queue.is_busy(limits, late), "there is room");
    call_queue.push(start, delivery(&in_flight, Via::Cold, 4));
    assert!(!call_queue.is_busy(limits, start), "nobody has waited for long");
    assert!(call_queue.is_busy(limits, late));

    call_queue.pop();
    assert!(call_queue.is_busy(limits, late), "one more read would bring more than fit");
    call_queue.pop();
    assert!(!call_queue.is_busy(limits, late));
    call_queue.push(late, delivery(&in_flight, Via::Cold, 5));
    assert!(!call_queue.is_busy(limits, late), "not again before it is full");
}

#[test]
fn events_that_go_back_come_again_when_their_turns_may_have_come() {
    let in_flight = Arc::default();
    let start = Instant::now();
    let mut call_queue = CallQueue::new(start);
    (1..=10).for_each(|sequence| call_queue.push(start, delivery(&in_flight, Via::Cold, sequence)));
    (call_queue.calls, call_queue.mean) = (2, Duration::from_secs(4));
    let now = start + Duration::from_secs(12);
    let seconds = |call_queue: &mut CallQueue| call_queue.put_off(now).as_secs();
    assert_eq!(
        [seconds(&mut call_queue), seconds(&mut call_queue), seconds(&mut call_queue)],
        [23, 25, 27],
        "ten turns of 2 s, and one more each"
    );
    (0..100).for_each(|_| assert!(seconds(&mut call_queue) <= 61));
    assert_eq!(seconds(&mut call_queue), 61, "and never much later than in a minute");
}

#[test]
fn one_call_that_was_held_up_does_not_keep_the_events_of_a_quick_listener_away() {
    let in_flight = Arc::default();
    let start = Instant::now();
    let mut call_queue = CallQueue::new(start);
    (1..=1_000).for_each(|sequence| call_queue.push(start, delivery(&in_flight, Via::Cold, sequence)));
    // A thousand have had their turns within 1.2 s; the last call was one of many that a busy machine held up.
    (call_queue.calls, call_queue.mean) = (1, Duration::from_millis(60));
    let now = start + Duration::from_millis(1_200);
    let after: Vec<u64> = (0..500).map(|_| call_queue.put_off(now).as_secs()).collect();
    assert!(after.iter().all(|seconds| *seconds <= 8), "a minute by that call alone: {after:?}");

    let mut call_queue = CallQueue::new(start);
    (1..=1_000).for_each(|sequence| call_queue.push(start, delivery(&in_flight, Via::Cold, sequence)));
    (call_queue.calls, call_queue.mean) = (1, Duration::from_millis(1));
    assert_eq!(call_queue.put_off(now).as_secs(), 2, "as long as the first has waited");
}

#[test]
fn a_stall_of_the_whole_host_does_not_keep_the_events_of_a_quick_listener_away() {
    let in_flight = Arc::default();
    let start = Instant::now();
    let mut call_queue = CallQueue::new(start);
    (1..=1_000).for_each(|sequence| call_queue.push(start, delivery(&in_flight, Via::Cold, sequence)));
    call_queue.calls = 256;
    (0..100).for_each(|_| call_queue.note_call(Duration::from_micros(20)));
    // No outcome could be stored for 34 s, and two calls took as long.
    let now = start + Duration::from_secs(34);
    (0..2).for_each(|_| call_queue.note_call(Duration::from_secs(34)));
    let after: Vec<u64> = (0..500).map(|_| call_queue.put_off(now).as_secs()).collect();
    assert!(after.iter().all(|seconds| *seconds <= 9), "they wait for an idle listener: {after:?}");

    while call_queue.pop().is_some() {}
    call_queue.push(now, delivery(&in_flight, Via::Cold, 1_001));
    let soon = now + SLOW_AFTER;
    assert_eq!(call_queue.put_off(soon).as_secs(), 3, "the events before it were delivered");
}

#[test]
fn the_mean_of_a_slow_listener_is_known_after_some_calls() {
    let mut call_queue = CallQueue::new(Instant::now());
    (0..32).for_each(|_| call_queue.note_call(Duration::from_secs(4)));
    assert!(call_queue.mean > Duration::from_secs(3), "{:?}", call_queue.mean);
}
