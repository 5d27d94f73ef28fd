//! Who is with a listener: one alone, or others beside each other, and all come to their turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cast::{self, LEASE, Tally, begin, join};
use crate::play::Check;
use crate::queue::AtWork;

pub(crate) const ALL: &[Check] = &[
    Check { name: "at work: one that is alone is alone, and all come to their turn", play: one_that_is_alone_is_alone },
    Check { name: "at work: nobody waits longer than said for one that never comes back", play: nobody_waits_for_ever },
    Check {
        name: "at work: one that cannot be alone in time lets the others go on",
        play: one_that_gives_up_lets_others_go_on,
    },
    Check { name: "at work: no end of a wait for one that is late ends the next one's", play: the_next_one_is_alone_too },
];

/// Notes who is there, for each: one for the others, so much for one that is alone.
const ALONE: usize = 100;

fn beside(at_work: &Arc<AtWork>, there: &Arc<AtomicUsize>) -> shuttle::thread::JoinHandle<()> {
    let (at_work, there) = (at_work.clone(), there.clone());
    begin(move || async move {
        for _ in 0..2 {
            let work = at_work.enter().await;
            assert!(there.fetch_add(1, Ordering::Relaxed) < ALONE, "somebody is alone");
            cast::pause();
            there.fetch_sub(1, Ordering::Relaxed);
            drop(work);
        }
    })
}

fn one_that_is_alone_is_alone() {
    let (at_work, there) = (Arc::<AtWork>::default(), Arc::<AtomicUsize>::default());
    let alone = || {
        let (at_work, there) = (at_work.clone(), there.clone());
        begin(move || async move {
            let work = at_work.enter_alone(LEASE, LEASE).await.expect("nobody stays");
            assert_eq!(there.fetch_add(ALONE, Ordering::Relaxed), 0, "others are there");
            cast::pause();
            there.fetch_sub(ALONE, Ordering::Relaxed);
            drop(work);
        })
    };
    join([beside(&at_work, &there), alone(), beside(&at_work, &there), alone()]);
    assert!(at_work.is_empty());
}

/// The clock moves while one that is alone waits for the others.
fn nobody_waits_for_ever() {
    let (at_work, entered) = (Arc::<AtWork>::default(), Arc::<Tally>::default());
    let stuck = {
        let (at_work, entered) = (at_work.clone(), entered.clone());
        begin(move || async move {
            let work = at_work.enter_alone(Duration::ZERO, Duration::from_secs(1)).await;
            entered.wait_for(2);
            drop(work);
        })
    };
    let others = [1, 2].map(|number| {
        let (at_work, entered) = (at_work.clone(), entered.clone());
        begin(move || async move {
            drop(at_work.enter().await);
            entered.add(number);
        })
    });
    let clock = {
        let entered = entered.clone();
        begin(move || async move {
            while entered.seen().len() < 2 {
                tokio::time::advance(Duration::from_secs(2));
                cast::pause();
            }
        })
    };
    join(others.into_iter().chain([stuck, clock]));
    assert!(at_work.is_empty());
}

/// Somebody stops waiting for one that is late just as it comes back and the next one is alone, for which nobody has waited yet.
fn the_next_one_is_alone_too() {
    let (at_work, there) = (Arc::<AtWork>::default(), Arc::<AtomicUsize>::default());
    let next = {
        let (at_work, there) = (at_work.clone(), there.clone());
        move || async move {
            let work = at_work.enter_alone(LEASE, LEASE).await.expect("nobody stays");
            assert_eq!(there.fetch_add(ALONE, Ordering::Relaxed), 0, "others are there");
            cast::pause();
            there.fetch_sub(ALONE, Ordering::Relaxed);
            drop(work);
        }
    };
    let late = shuttle::future::block_on(at_work.enter_alone(Duration::ZERO, Duration::ZERO)).expect("nobody is there");
    let other = beside(&at_work, &there);
    drop(late);
    join([other, begin(next)]);
    assert!(at_work.is_empty());
}

fn one_that_gives_up_lets_others_go_on() {
    let (at_work, entered) = (Arc::<AtWork>::default(), Arc::<Tally>::default());
    let stays = {
        let (at_work, entered) = (at_work.clone(), entered.clone());
        begin(move || async move {
            let work = at_work.enter().await;
            entered.add(1);
            entered.wait_for(2);
            drop(work);
        })
    };
    let (there, notes) = (at_work.clone(), entered.clone());
    let late = begin(move || async move {
        notes.wait_for(1);
        drop(there.enter().await);
        notes.add(2);
    });
    let (there, notes) = (at_work.clone(), entered);
    let alone = begin(move || async move {
        notes.wait_for(1);
        // It may be so late that all have left.
        drop(there.enter_alone(Duration::ZERO, LEASE).await);
    });
    join([stays, late, alone]);
    assert!(at_work.is_empty());
}
