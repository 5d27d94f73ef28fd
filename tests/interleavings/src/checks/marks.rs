//! The marks: an event is in hand once, is delivered once for each outcome, and is never forgotten when its worker is gone.
//!
//! A worker that panics lets its mark go by dropping it, and so does one here: a thread that unwinds cannot be scheduled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shuttle::sync::Mutex;
use tokio::time::Instant;

use crate::cast::{self, Host, LEASE, Tally, begin, id, join};
use crate::event::Fence;
use crate::partition::Partitions;
use crate::play::Check;
use crate::queue::{InFlight, Mark, NotMarked};

pub(crate) const ALL: &[Check] = &[
    Check { name: "marks: an event is in hand once, and free after a panic", play: an_event_is_in_hand_once },
    Check { name: "marks: a settled event that was read before is not accepted again", play: a_settled_event_is_not_accepted },
    Check { name: "marks: nor by a slow read that began before others", play: a_settled_event_is_not_accepted_by_a_slow_read },
    Check { name: "marks: an event let go without an outcome is found, once, and not read", play: one_left_is_found },
    Check { name: "marks: an event is given up once, however its worker ends", play: an_event_is_given_up_once },
    Check { name: "marks: a renewal does not touch a later claim", play: a_renewal_does_not_touch_a_later_claim },
];

/// What a read brings of the one row that is played with.
fn fence(claim_seq: u64) -> Fence {
    Fence::new(1, 1, claim_seq)
}

/// Marks what was read, as the poller does: waits as long as an earlier delivery is about to go.
async fn mark_read(in_flight: &Arc<InFlight>, partitions: &Arc<Partitions>, fence: Fence) -> Result<Mark, NotMarked> {
    let hold = partitions.hold(0, fence.epoch()).expect("it stays open");
    in_flight.mark_read(id(1), fence, hold, partitions.lease_end()).await
}

/// Hot, claimed and read, of three fences, so that none is older than what is known. Whoever has it lets it go with an outcome
/// or with a panic.
fn an_event_is_in_hand_once() {
    let (host, in_flight, there) = (Host::of_all(), Arc::<InFlight>::default(), Arc::<AtomicUsize>::default());
    let hold_it = |mark: Mark, in_flight: &InFlight, there: &AtomicUsize| {
        assert_eq!(there.fetch_add(1, Ordering::Relaxed), 0, "somebody else has it");
        assert!(in_flight.contains(&id(1)));
        there.fetch_sub(1, Ordering::Relaxed);
        drop(mark);
    };
    let hot = {
        let (in_flight, there) = (in_flight.clone(), there.clone());
        begin(move || async move {
            if let Some(mark) = in_flight.mark_until(id(1), Some(Fence::new(1, 0, 1)), Instant::now() + LEASE) {
                hold_it(mark, &in_flight, &there);
            }
        })
    };
    let claimed = {
        let (host, in_flight, there) = (host.partitions.clone(), in_flight.clone(), there.clone());
        begin(move || async move {
            let until = host.lease_end();
            let mark = in_flight.mark_claimed(id(1), Fence::new(1, 0, 2), until, None, until).await;
            hold_it(mark.expect("others let it go"), &in_flight, &there);
        })
    };
    let read = {
        let (host, in_flight, there) = (host.partitions.clone(), in_flight.clone(), there.clone());
        begin(move || async move {
            match mark_read(&in_flight, &host, fence(3)).await {
                Ok(mark) => {
                    assert_eq!(there.fetch_add(1, Ordering::Relaxed), 0, "somebody else has it");
                    there.fetch_sub(1, Ordering::Relaxed);
                    mark.settled();
                }
                Err(refused) => panic!("nothing of it is newer, and others let it go: {refused:?}"),
            }
        })
    };
    join([hot, claimed, read]);
    assert!(in_flight.is_empty() && !in_flight.contains(&id(1)), "it is free");
    host.assert_rid_of_all();
}

/// The row of an event: how often an outcome of it was stored, and whether it is due still.
#[derive(Debug)]
struct Row {
    claim_seq: u64,
    is_due: bool,
}

/// A poller that reads all the time, and workers that store outcomes: first a retry that is due at once, which is given back
/// unchanged once, then the end. Every state of the row is delivered once, however late a read comes back.
fn a_settled_event_is_not_accepted() {
    play_reads(None);
}

/// The same beside a read that began first and comes back after this many others.
fn a_settled_event_is_not_accepted_by_a_slow_read() {
    (0..4).for_each(|others| play_reads(Some(others)));
}

fn play_reads(slow_after: Option<usize>) {
    let (host, in_flight, delivered) = (Host::of_all(), Arc::<InFlight>::default(), Arc::<Tally>::default());
    let row = Arc::new(Mutex::new(Row { claim_seq: 1, is_due: true }));
    let read = || {
        let row = row.lock().expect("no panic");
        row.is_due.then_some(row.claim_seq)
    };
    let given_back = Arc::new(AtomicBool::new(false));
    let accept = |claim_seq: u64| {
        let mark = shuttle::future::block_on(mark_read(&in_flight, &host.partitions, fence(claim_seq))).ok()?;
        let (row, delivered, given_back) = (row.clone(), delivered.clone(), given_back.clone());
        Some(begin(move || async move {
            {
                let mut row = row.lock().expect("no panic");
                assert_eq!((row.claim_seq, row.is_due), (claim_seq, true), "it was settled before");
                if claim_seq == 2 && !given_back.swap(true, Ordering::Relaxed) {
                    mark.unchanged();
                    return;
                }
                delivered.add(claim_seq);
                row.claim_seq += 1;
                row.is_due = row.claim_seq < 3;
            }
            mark.settled();
        }))
    };
    let mut workers = Vec::new();
    let mut slow = slow_after.map(|_| (in_flight.begin_read(), read()));
    for turn in 0..4 {
        if Some(turn) == slow_after
            && let Some((_reading, Some(claim_seq))) = slow.take()
        {
            workers.extend(accept(claim_seq));
        }
        let reading = in_flight.begin_read();
        let read = read();
        cast::pause();
        let Some(claim_seq) = read else { continue };
        let Some(worker) = accept(claim_seq) else { continue };
        drop(reading);
        workers.push(worker);
    }
    join(workers);
    let seen = delivered.seen();
    assert!(seen == [1] || seen == [1, 2], "each once, in order: {seen:?}");
    assert!(in_flight.is_empty());
    drop(in_flight.begin_read());
    assert!(in_flight.known().is_empty(), "nothing is remembered once no read is on its way");
    host.assert_rid_of_all();
}

/// Two workers panic; one waits for each event that is dropped, claims it and ends it with an outcome. A poller reads
/// all the time and must not take what was dropped.
fn one_left_is_found() {
    let (host, in_flight, found) = (Host::of_all(), Arc::<InFlight>::default(), Arc::<Tally>::default());
    let worker = |sequence: u64| {
        let (host, in_flight) = (host.partitions.clone(), in_flight.clone());
        begin(move || async move {
            let fence = Fence::new(sequence, 1, 1);
            let hold = host.hold(0, 1).expect("open");
            let mark = in_flight.mark_read(id(sequence), fence, hold, host.lease_end()).await.expect("new");
            drop(mark);
        })
    };
    let workers = [worker(1), worker(2)];
    let finder = {
        let (host, in_flight, found) = (host.partitions.clone(), in_flight.clone(), found.clone());
        begin(move || async move {
            while found.seen().len() < 2 {
                in_flight.one_dropped().await;
                for dropped in in_flight.take_dropped() {
                    let hold = host.hold(0, 1).expect("open");
                    let again = in_flight.mark_read(dropped.id, dropped.fence, hold, host.lease_end()).await;
                    assert_eq!(again.err(), Some(NotMarked::Known), "nobody knows how far its listener came");
                    assert!(in_flight.is_dropped(&dropped.id));
                    let until = host.lease_end();
                    let claimed = Fence { claim: dropped.fence.claim + 1, ..dropped.fence };
                    let mark = in_flight.mark_claimed(dropped.id, claimed, until, None, until).await.expect("it is free");
                    found.add(dropped.fence.sequence);
                    in_flight.forget(&dropped);
                    assert!(in_flight.contains(&dropped.id), "only what is dropped is forgotten");
                    drop(mark);
                }
            }
        })
    };
    join(workers.into_iter().chain([finder]));
    found.assert_each_once(1..=2);
    assert_eq!((in_flight.ever_dropped(), in_flight.known(), in_flight.dropped().len()), (2, vec![], 0));
    host.assert_rid_of_all();
}

/// An overdue event is given up just when its listener comes back, is cut off, or has its outcome stored. Its partition is free
/// of it once, and the event is found at most once.
fn an_event_is_given_up_once() {
    let (host, in_flight) = (Host::of_all(), Arc::<InFlight>::default());
    let mark = shuttle::future::block_on(mark_read(&in_flight, &host.partitions, fence(1))).expect("new");
    let watch = {
        let in_flight = in_flight.clone();
        begin(move || async move { in_flight.give_up(&id(1), fence(1)) })
    };
    let claimer = {
        let (host, in_flight) = (host.partitions.clone(), in_flight.clone());
        begin(move || async move {
            in_flight.one_dropped().await;
            let dropped = in_flight.take_dropped();
            assert_eq!(dropped.len(), 1);
            let until = host.lease_end();
            let again = in_flight.mark_claimed(id(1), fence(2), until, None, until).await.expect("it is free");
            cast::pause();
            assert!(in_flight.contains(&id(1)), "a late end of the first delivery does not touch the second");
            drop(again);
        })
    };
    let worker = begin(move || async move { drop(mark) });
    join([watch, claimer, worker]);
    assert_eq!((in_flight.ever_dropped(), in_flight.take_dropped().len(), in_flight.len()), (1, 0, 0));
    host.assert_rid_of_all();
}

/// Claims are renewed all at once, from a list that is older than what became of some of them since.
fn a_renewal_does_not_touch_a_later_claim() {
    let (host, in_flight) = (Host::of_all(), Arc::<InFlight>::default());
    let mark = in_flight.mark_until(id(1), Some(fence(1)), Instant::now() + LEASE).expect("new");
    let listed = in_flight.held();
    let keeper = {
        let in_flight = in_flight.clone();
        begin(move || async move { listed.into_iter().for_each(|(event, fence)| in_flight.renewed(event, fence, None)) })
    };
    let worker = {
        let in_flight = in_flight.clone();
        begin(move || async move {
            drop(mark);
            let until = host.partitions.lease_end();
            let again = in_flight.mark_claimed(id(1), fence(2), until, None, until).await.expect("it is free");
            cast::pause();
            assert_eq!((again.lease_end(), in_flight.held()), (Some(until), vec![(id(1), fence(2))]), "it was not lost");
        })
    };
    join([keeper, worker]);
    assert!(in_flight.is_empty() && in_flight.held().is_empty());
}
