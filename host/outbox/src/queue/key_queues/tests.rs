use std::time::Duration;

use super::*;
use crate::event::{Envelope, Fence};
use crate::queue::{InFlight, Via};

struct Hands {
    queues: Arc<KeyQueues>,
    in_flight: Arc<InFlight>,
}

impl Hands {
    fn new() -> Self {
        Self::with(KeyQueueLimits { events: 1_000, bytes: 1 << 20, workers: 4 })
    }

    fn with(limits: KeyQueueLimits) -> Self {
        Self { queues: Arc::new(KeyQueues::new(limits)), in_flight: Arc::default() }
    }

    fn one_for_all() -> Self {
        Self { queues: Arc::new(KeyQueues::one_for_all()), in_flight: Arc::default() }
    }

    fn admit(&self, aggregate: &str, sequence: u64, nearest: Option<u64>) -> KeyAdmission {
        let envelope = Envelope::new("X").aggregate("Order", aggregate).json(&1).expect("good");
        let fence = Some(Fence { sequence, claim: 1 });
        let mark = self.in_flight.mark(envelope.id(), fence, Duration::from_secs(30)).expect("new");
        let event = Event::of(envelope).sequence(sequence).fence(1).build();
        self.queues.admit(Delivery::new(Arc::new(event), mark, Via::Cold, 0), nearest)
    }

    fn start(&self, aggregate: &str, sequence: u64) -> Delivery {
        match self.admit(aggregate, sequence, None) {
            KeyAdmission::Start(delivery) => delivery,
            other => panic!("it may start: {other:?}"),
        }
    }

    fn end(&self, mut delivery: Delivery, resolved: bool) -> AfterTurn {
        self.queues.end(*delivery.turn.take().expect("its turn"), resolved)
    }

    /// The events that follow the end of a turn, in order.
    fn rest_of(&self, first: Delivery) -> Vec<u64> {
        let (mut next, mut order) = (self.end(first, true).next, Vec::new());
        while let Some(delivery) = next {
            order.push(delivery.event.sequence());
            next = self.end(delivery, true).next;
        }
        order
    }
}

#[test]
fn events_of_one_aggregate_start_one_after_the_other() {
    let hands = Hands::new();
    let first = hands.start("42", 1);
    assert!(matches!(hands.admit("42", 2, Some(1)), KeyAdmission::Waits));
    assert!(matches!(hands.admit("42", 3, Some(2)), KeyAdmission::Waits));
    let _other = hands.start("7", 4);
    assert_eq!(hands.queues.waiting().events, 2);

    let second = hands.end(first, true).next.expect("the next one");
    assert_eq!(second.event.sequence(), 2);
    let third = hands.end(second, true).next.expect("the next one");
    assert_eq!(third.event.sequence(), 3);
    assert!(hands.end(third, true).next.is_none());
    assert_eq!((hands.queues.waiting(), hands.queues.lock().queues.len()), (Room::default(), 1));
}

#[test]
fn an_event_whose_time_comes_late_waits_in_its_place() {
    let hands = Hands::new();
    let first = hands.start("42", 5);
    hands.admit("42", 6, Some(5));
    hands.admit("42", 9, Some(6));
    assert!(matches!(hands.admit("42", 3, None), KeyAdmission::Waits));
    assert!(matches!(hands.admit("42", 7, Some(6)), KeyAdmission::Waits));

    assert_eq!(hands.rest_of(first), [3, 6, 7, 9]);
}

#[test]
fn what_waits_behind_a_late_event_is_not_held_up_by_later_ones() {
    let hands = Hands::new();
    let first = hands.start("42", 5);
    hands.admit("42", 6, Some(5));
    let key = key(&first.event).expect("an aggregate");
    let held_up = |blocker| hands.queues.comes_before(&key, blocker);
    assert!(held_up(9) && held_up(6) && held_up(5), "they are behind the queue, or in it");
    assert!(!held_up(3), "it is resolved, and those behind it come before the sixth");

    assert!(matches!(hands.admit("42", 3, None), KeyAdmission::Waits));
    assert!(held_up(3), "it is in the queue itself");
    assert_eq!(hands.rest_of(first), [3, 6]);
    assert!(!held_up(9), "nothing of the aggregate is in hand");
}

#[test]
fn for_an_event_whose_time_comes_late_the_last_of_a_full_queue_is_set_aside() {
    let limits = KeyQueueLimits { events: 4, bytes: 1 << 20, workers: 4 };
    let hands = Hands { queues: Arc::new(KeyQueues::new(limits)), in_flight: Arc::default() };
    let first = hands.start("42", 5);
    assert!(matches!(hands.admit("42", 9, Some(5)), KeyAdmission::Waits));
    assert!(matches!(hands.admit("42", 12, Some(9)), KeyAdmission::Behind(event, 9) if event.event.sequence() == 12));
    let waiting = hands.queues.waiting();

    assert!(matches!(hands.admit("42", 7, Some(5)), KeyAdmission::Behind(event, 7) if event.event.sequence() == 9));
    assert!(matches!(hands.admit("42", 3, None), KeyAdmission::Behind(event, 3) if event.event.sequence() == 7));

    assert_eq!(hands.queues.waiting(), waiting, "they are all alike");
    assert_eq!([3, 5, 7, 9].map(|sequence| hands.queues.holds(sequence)), [true, true, false, false]);
    assert_eq!(hands.rest_of(first), [3]);
    assert_eq!(hands.queues.waiting(), Room::default());
}

#[test]
fn an_event_whose_time_comes_late_waits_beside_a_later_one_at_work_though_there_is_no_room() {
    let limits = KeyQueueLimits { events: 1, bytes: 1 << 20, workers: 4 };
    let hands = Hands { queues: Arc::new(KeyQueues::new(limits)), in_flight: Arc::default() };
    let first = hands.start("42", 5);
    assert!(matches!(hands.admit("42", 9, Some(5)), KeyAdmission::Behind(_, 5)), "nothing may wait");
    assert!(matches!(hands.admit("42", 3, None), KeyAdmission::Waits));
    assert!(matches!(hands.admit("42", 4, Some(3)), KeyAdmission::Behind(_, 3)));
    assert_eq!(hands.rest_of(first), [3]);
}

#[test]
fn an_event_whose_time_comes_late_waits_for_one_elsewhere_and_not_for_later_ones() {
    let hands = Hands::new();
    let _first = hands.start("42", 5);
    assert!(matches!(hands.admit("42", 3, Some(2)), KeyAdmission::Elsewhere(_, 2)));
}

#[test]
fn what_is_set_aside_waits_behind_the_event_that_is_at_work_now() {
    let hands = Hands::new();
    let first = hands.start("42", 1);
    hands.admit("42", 2, Some(1));
    let _second = hands.end(first, true).next.expect("the next one");
    assert!(matches!(hands.admit("42", 4, Some(3)), KeyAdmission::Behind(_, 2)));
}

#[test]
fn what_was_resolved_is_waited_for_when_the_table_says_so_later() {
    let hands = Hands::new();
    hands.end(hands.start("42", 1), true);
    hands.queues.asking();
    assert!(matches!(hands.admit("42", 2, Some(1)), KeyAdmission::Elsewhere(_, 1)), "it was brought back from the dead");
}

#[test]
fn in_one_queue_events_wait_for_each_other_whatever_they_belong_to_and_however_many() {
    let hands = Hands::one_for_all();
    let first = hands.start("42", 1);
    let last = 256;
    for sequence in 2..=last {
        assert!(matches!(hands.admit(&sequence.to_string(), sequence, Some(sequence - 1)), KeyAdmission::Waits));
    }
    assert_eq!(hands.queues.asking().len(), hands.queues.waiting().events + 1);

    let after = hands.end(first, false);

    assert_eq!(after.behind.len(), hands.in_flight.len());
    assert!(after.behind.iter().map(|waiting| waiting.event.sequence()).is_sorted());
    assert!(matches!(hands.admit("7", last + 1, Some(last)), KeyAdmission::Elsewhere(_, end) if end == last));
}

#[test]
fn what_waits_for_an_unresolved_event_is_set_aside_behind_it() {
    let hands = Hands::new();
    let first = hands.start("42", 1);
    hands.admit("42", 2, Some(1));
    hands.admit("42", 3, Some(2));

    let after = hands.end(first, false);

    assert!(after.next.is_none());
    assert_eq!(after.behind.iter().map(|waiting| waiting.event.sequence()).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(hands.queues.waiting(), Room::default());
    assert!(matches!(hands.admit("42", 4, Some(3)), KeyAdmission::Elsewhere(_, 3)), "it is not in flight here any more");
}

/// Adds events to the queue of an aggregate until it takes no more. Returns how many wait in it then.
fn fill(hands: &Hands, aggregate: &str, first: u64) -> usize {
    let before = hands.queues.waiting().events;
    // Its turn would be over at once otherwise.
    std::mem::forget(hands.start(aggregate, first));
    for sequence in first + 1.. {
        match hands.admit(aggregate, sequence, Some(sequence - 1)) {
            KeyAdmission::Waits => {}
            KeyAdmission::Behind(_, last) => {
                assert_eq!(last, sequence - 1, "behind the last of the queue");
                break;
            }
            other => panic!("it waits or is set aside: {other:?}"),
        }
    }
    hands.queues.waiting().events - before
}

#[test]
fn a_long_queue_takes_no_more_and_others_go_on() {
    let hands = Hands::new();
    assert_eq!(fill(&hands, "42", 1), 111, "the eighth part of what it leaves of a thousand");
    assert_eq!(hands.queues.longest().events, 125);
    assert!(matches!(hands.admit("7", 5_000, None), KeyAdmission::Start(_)), "others start");
}

#[test]
fn a_queue_has_room_for_many_events_though_there_are_hundreds_of_workers() {
    let limits = KeyQueueLimits { events: 1_000, bytes: 1 << 20, workers: 256 };
    assert_eq!(KeyQueues::new(limits).longest().events, 62);
}

#[test]
fn many_short_queues_all_fit_beside_the_headroom() {
    for aggregates in [20, 100, 1_000] {
        let hands = Hands::new();
        let heads: Vec<Delivery> = (0..aggregates).map(|number| hands.start(&number.to_string(), number + 1)).collect();
        let headroom = hands.queues.headroom().events;
        for sequence in aggregates + 1..aggregates + 1_000 - headroom as u64 {
            let (aggregate, before) = ((sequence - 1) % aggregates, sequence - aggregates);
            let admission = hands.admit(&aggregate.to_string(), sequence, Some(before));
            assert!(matches!(admission, KeyAdmission::Waits), "{sequence} of {aggregates} aggregates: {admission:?}");
        }
        drop(heads);
    }
}

#[test]
fn however_many_queues_are_long_they_leave_room_for_others() {
    let hands = Hands::new();
    let waiting: Vec<usize> = (0..4).map(|slow| fill(&hands, &slow.to_string(), 10_000 * slow + 1)).collect();
    assert!(waiting.iter().sum::<usize>() < 400 && waiting.iter().all(|count| *count > 60), "{waiting:?}");
    for slow in 4..100 {
        fill(&hands, &slow.to_string(), 10_000 * slow + 1);
    }
    assert!(hands.queues.waiting().events < 1_000, "{:?}", hands.queues.waiting());
}

#[test]
fn a_queue_of_large_events_is_a_short_one() {
    let limits = KeyQueueLimits { events: 1_000, bytes: 64, workers: 4 };
    let hands = Hands { queues: Arc::new(KeyQueues::new(limits)), in_flight: Arc::default() };
    assert!(fill(&hands, "42", 1) < 8, "{:?}", hands.queues.waiting());
}

#[test]
fn a_small_room_takes_one_event_of_each_queue() {
    let limits = KeyQueueLimits { events: 4, bytes: 1 << 20, workers: 4 };
    let hands = Hands { queues: Arc::new(KeyQueues::new(limits)), in_flight: Arc::default() };
    assert_eq!([fill(&hands, "1", 1), fill(&hands, "2", 100), fill(&hands, "3", 200)], [1, 1, 0]);
}

#[test]
fn an_event_that_waits_for_more_than_its_queue_is_set_aside_behind_the_last_of_it() {
    let hands = Hands::new();
    let _first = hands.start("42", 1);
    hands.admit("42", 2, Some(1));
    let refused = hands.admit("42", 4, Some(3));
    assert!(matches!(refused, KeyAdmission::Behind(_, 2)), "the third is not in flight here: {refused:?}");
    assert_eq!(hands.queues.waiting().events, 1);
}

#[test]
fn what_waits_is_counted_in_events_and_bytes_until_it_is_taken_out() {
    let hands = Hands::new();
    let first = hands.start("42", 1);
    let bytes = first.event.size_bytes();
    hands.admit("42", 2, Some(1));
    hands.admit("42", 3, Some(2));
    assert_eq!(hands.queues.waiting(), Room { events: 2, bytes: 2 * bytes }, "they are all alike");
    assert_eq!([1, 2, 3, 4].map(|sequence| hands.queues.holds(sequence)), [true, true, true, false]);

    let second = hands.end(first, true).next.expect("the next one");
    assert_eq!((hands.queues.waiting(), hands.queues.holds(1)), (Room { events: 1, bytes }, false));
    let drained = hands.queues.drain();

    assert_eq!(drained.iter().map(|waiting| waiting.event.sequence()).collect::<Vec<_>>(), [3]);
    assert_eq!((hands.queues.waiting(), hands.queues.holds(2), hands.queues.holds(3)), (Room::default(), true, false));
    let key = key(&second.event).expect("it has an aggregate");
    assert!(hands.queues.comes_before(&key, 9), "the second is on its way still");
    assert!(hands.end(second, true).next.is_none());
    assert!(!hands.queues.comes_before(&key, 9));
}

#[test]
fn an_event_is_taken_out_with_everything_that_waits_behind_it() {
    let hands = Hands::new();
    let first = hands.start("42", 1);
    let _other = hands.start("7", 2);
    let bytes = first.event.size_bytes();
    for (aggregate, sequence, nearest) in [("42", 3, 1), ("7", 4, 2), ("42", 5, 3), ("42", 6, 5)] {
        hands.admit(aggregate, sequence, Some(nearest));
    }

    let taken = hands.queues.take_out(|waiting| waiting.event.sequence() == 5);

    assert_eq!(taken.iter().map(|taken| taken.event.sequence()).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(hands.queues.waiting(), Room { events: 2, bytes: 2 * bytes });
    assert_eq!([3, 4, 5, 6].map(|sequence| hands.queues.holds(sequence)), [true, true, false, false]);
    assert_eq!(hands.end(first, true).next.expect("it waited before them").event.sequence(), 3);
}

#[test]
fn what_was_resolved_while_a_claim_was_on_its_way_is_not_waited_for() {
    let hands = Hands::new();
    let first = hands.start("42", 1);
    hands.queues.asking();
    hands.end(first, true);
    assert!(matches!(hands.admit("42", 2, Some(1)), KeyAdmission::Start(_)));
}

#[test]
fn an_event_whose_turn_is_lost_lets_the_others_go() {
    let hands = Hands::new();
    let first = hands.start("42", 1);
    hands.admit("42", 2, Some(1));
    drop(first);
    assert_eq!((hands.queues.waiting(), hands.in_flight.len()), (Room::default(), 0), "their marks are gone, their leases end");
}

#[test]
fn an_event_that_was_given_back_while_the_table_was_asked_is_not_passed() {
    let hands = Hands::new();
    let running = hands.start("42", 5);
    assert!(matches!(hands.admit("42", 3, None), KeyAdmission::Waits));
    hands.queues.asking();
    assert_eq!(hands.queues.take_out(|waiting| waiting.event.sequence() == 3).len(), 1);

    assert!(matches!(hands.admit("42", 6, Some(5)), KeyAdmission::Behind(_, 5)), "3 comes again");
    assert!(matches!(hands.admit("42", 2, None), KeyAdmission::Waits), "it comes before 3");
    drop(running);
}

#[test]
fn an_event_that_was_set_aside_for_a_late_one_while_the_table_was_asked_is_not_passed() {
    let hands = Hands::with(KeyQueueLimits { events: 4, bytes: 1 << 20, workers: 4 });
    let running = hands.start("42", 5);
    assert!(matches!(hands.admit("42", 9, Some(5)), KeyAdmission::Waits));
    assert_eq!(hands.queues.asking().len(), 2);
    let KeyAdmission::Behind(aside, 7) = hands.admit("42", 7, Some(5)) else { panic!("7 takes the place of 9") };
    assert_eq!(aside.event.sequence(), 9);
    let seventh = hands.end(running, true).next.expect("it waits");

    assert!(
        matches!(hands.admit("42", 12, Some(7)), KeyAdmission::Behind(_, 7)),
        "the table was told that 9 is queued: it comes first"
    );
    assert!(hands.end(seventh, true).next.is_none());
    assert!(matches!(hands.admit("42", 13, Some(7)), KeyAdmission::Elsewhere(_, 9)));
}
