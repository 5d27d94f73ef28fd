//! Partitions: what is in hand stays this host's, and nothing is taken in hand of what is not.

use std::sync::Arc;

use tokio::time::Instant;

use crate::cast::{self, Host, LEASE, begin, id, join};
use crate::event::{Fence, OwnerId};
use crate::play::Check;
use crate::queue::InFlight;
use crate::store::{PARTITIONS, PartitionTable, Store};

pub(crate) const ALL: &[Check] = &[
    Check {
        name: "partitions: none is given back while a hold lives, and no hold succeeds after",
        play: none_is_given_back_while_held,
    },
    Check { name: "partitions: none is given back while an event read of it is marked", play: none_is_given_back_while_marked },
    Check {
        name: "partitions: none is given back while a claim of its event is on its way or in hand",
        play: none_is_given_back_while_claimed,
    },
    Check { name: "partitions: a host that leaves keeps what is in hand", play: one_that_leaves_keeps_what_is_in_hand },
    Check {
        name: "partitions: nothing begins of one that was lost while the lease was over",
        play: nothing_begins_of_a_lost_one,
    },
];

/// The poller holds whatever it can of the partition that comes and goes, while beats see another host, no other host, and this
/// one's stop. Another host takes what is free.
fn none_is_given_back_while_held() {
    let table = Arc::<PartitionTable>::default();
    let (host, other) = (Host::new("host", &table), Host::new("other", &table));
    host.beat(1);
    let poller = || {
        let host = host.clone();
        begin(move || async move {
            for epoch in [1, 1, 3] {
                let Some(hold) = host.partitions.hold(1, epoch) else { continue };
                assert!(host.table.is_owner(&host.owner, 1, epoch), "it was given back before");
                cast::pause();
                assert!(host.table.is_owner(&host.owner, 1, epoch), "it was given back meanwhile");
                assert!(hold.lease_end().is_some(), "as far as this host knows");
                drop(hold);
            }
        })
    };
    let pollers = [poller(), poller()];
    let beats = {
        let host = host.clone();
        begin(move || async move {
            for live in [2, 1, 2, 1] {
                host.beat(live);
                let is_known = (1..=3).any(|epoch| host.partitions.is_held(1, epoch) == Some(true));
                assert!(!is_known || host.table.has(&host.owner, 1), "it was given back, and nobody here knows that");
            }
        })
    };
    let others = begin(move || async move {
        other.beat(2);
        if let Some(hold) = other.partitions.hold(1, 2) {
            assert!(other.table.is_owner(&other.owner, 1, 2));
            drop(hold);
        }
        other.assert_rid_of_all();
    });
    join(pollers.into_iter().chain([beats, others]));
    host.beat(1);
    host.assert_rid_of_all();
    assert!(host.partitions.hold(1, host.table.epoch(1)).is_none(), "it is closed");
}

/// The mark is let go before the partition, so that whoever has the partition next finds the event free.
fn none_is_given_back_while_marked() {
    let (host, in_flight) = (Host::of_all(), Arc::<InFlight>::default());
    let reader = {
        let (host, in_flight) = (host.clone(), in_flight.clone());
        begin(move || async move {
            for claim_seq in 1..=2 {
                let fence = Fence::new(1, 1, claim_seq);
                let Some(hold) = host.partitions.hold(1, fence.epoch()) else { return };
                let until = host.partitions.lease_end();
                let mark = in_flight.mark_read(id(1), fence, hold, until).await.expect("nobody else has it");
                cast::pause();
                assert!(host.table.is_owner(&host.owner, 1, 1), "given back with an event of it in hand");
                if claim_seq == 1 { mark.settled() } else { drop(mark) }
            }
        })
    };
    let beats = {
        let (host, in_flight) = (host.clone(), in_flight.clone());
        begin(move || async move {
            for live in [2, 2] {
                host.beat(live);
                let is_free = !host.table.has(&host.owner, 1);
                assert!(!is_free || !in_flight.contains(&id(1)), "given back with an event of it in hand");
            }
        })
    };
    join([reader, beats]);
    host.assert_rid_of_all();
}

/// The poller claims events that it has read. The hold moves into the mark of the claimed event.
fn none_is_given_back_while_claimed() {
    let (host, in_flight) = (Host::of_all(), Arc::<InFlight>::default());
    let poller = {
        let (host, in_flight) = (host.clone(), in_flight.clone());
        begin(move || async move {
            for claim_seq in 1..=2 {
                let Some(hold) = host.partitions.hold(1, 1) else { return };
                cast::pause();
                let (fence, until) = (Fence::new(1, 0, claim_seq), Instant::now() + LEASE);
                let mark = in_flight.mark_claimed(id(1), fence, until, Some(hold), until).await.expect("it is free");
                cast::pause();
                assert!(host.table.is_owner(&host.owner, 1, 1), "given back before its event has ended");
                mark.settled();
            }
        })
    };
    let beats = {
        let host = host.clone();
        begin(move || async move {
            for live in [2, 2, 2] {
                host.beat(live);
                let is_free = !host.table.has(&host.owner, 1);
                assert!(!is_free || !in_flight.contains(&id(1)), "given back before its event has ended");
            }
        })
    };
    join([poller, beats]);
    host.assert_rid_of_all();
}

/// The end of a host: it reads no more, and what something of is in hand stays until others find that it is gone.
fn one_that_leaves_keeps_what_is_in_hand() {
    let host = Host::of_all();
    let poller = |number: u16| {
        let host = host.clone();
        begin(move || async move {
            let Some(hold) = host.partitions.hold(number, 1) else { return };
            cast::pause();
            assert!(host.table.is_owner(&host.owner, number, 1), "given back with an event of it in hand");
            drop(hold);
        })
    };
    let leaver = {
        let host = host.clone();
        begin(move || async move {
            let table: &dyn Store = &*host.table;
            host.partitions.leave(table, &host.owner).await.expect("the table answers");
            assert!((0..PARTITIONS).all(|number| host.partitions.hold(number, 1).is_none()), "nothing is taken any more");
        })
    };
    join([poller(0), poller(1), leaver]);
}

/// A host that stood still for longer than its lease, with an event in its queue; another host has the partition. The first beat
/// renews the lease of the others.
fn nothing_begins_of_a_lost_one() {
    let host = Host::of_all();
    let hold = host.partitions.hold(1, 1).expect("it is open");
    tokio::time::advance(LEASE * 2);
    host.table.is_taken_by(&OwnerId::known("other"), 1);
    let worker = begin(move || async move {
        for _ in 0..3 {
            let may_begin = hold.lease_end().is_some_and(|end| end > Instant::now());
            assert!(!may_begin, "the other host may be at work on it");
            cast::pause();
        }
    });
    let beats = {
        let host = host.clone();
        begin(move || async move { host.beat(1) })
    };
    join([worker, beats]);
    assert!(host.partitions.hold(0, 1).and_then(|hold| hold.lease_end()).is_some_and(|end| end > Instant::now()));
}
