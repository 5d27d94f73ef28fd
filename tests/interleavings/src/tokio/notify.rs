//! `Notify`, as tokio 1.54 has it.
//!
//! Everything that a call does, it does at once, under one lock. In tokio a `notify_waiters` with many waiters lets others in
//! between; they find the same as if it had been over, or had not begun.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use shuttle::sync::{Mutex, MutexGuard, PoisonError};

/// Tells one waiter, or all.
#[derive(Debug, Default)]
pub struct Notify(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Kept by a `notify_one` that met nobody, for the next who waits. Never more than one.
    permit: bool,
    /// Who waits, the one that came first at the front.
    waiters: VecDeque<Waiter>,
    /// Who was told by a `notify_one` or `notify_last`, and has not seen it yet.
    told: Vec<(u64, Which)>,
    /// How often all were told.
    broadcasts: u64,
    next: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    waker: Option<Waker>,
}

/// Which of the waiters is told.
#[derive(Clone, Copy, Debug)]
enum Which {
    First,
    Last,
}

impl Notify {
    /// Nobody waits, and there is no permit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells the one that came first; kept when nobody waits.
    pub fn notify_one(&self) {
        self.notify(Which::First);
    }

    /// Tells the one that came last; kept when nobody waits.
    pub fn notify_last(&self) {
        self.notify(Which::Last);
    }

    fn notify(&self, which: Which) {
        let waker = self.lock().notify(which);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Tells all that wait, and all whose `notified` was called before; not kept for those that come later.
    pub fn notify_waiters(&self) {
        let waiters = {
            let mut state = self.lock();
            state.broadcasts += 1;
            std::mem::take(&mut state.waiters)
        };
        waiters.into_iter().filter_map(|waiter| waiter.waker).for_each(Waker::wake);
    }

    /// What waits to be told. A `notify_waiters` from now on reaches it, a `notify_one` only once it was enabled or polled.
    pub fn notified(&self) -> Notified<'_> {
        let broadcasts = self.lock().broadcasts;
        Notified { notify: self, broadcasts, stage: Stage::New }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn notify(&mut self, which: Which) -> Option<Waker> {
        let waiter = match which {
            Which::First => self.waiters.pop_front(),
            Which::Last => self.waiters.pop_back(),
        };
        let Some(waiter) = waiter else {
            self.permit = true;
            return None;
        };
        self.told.push((waiter.number, which));
        waiter.waker
    }

    /// By what this waiter was told, if it was by a `notify_one`; said once.
    fn take_told(&mut self, number: u64) -> Option<Which> {
        let at = self.told.iter().position(|(told, _)| *told == number)?;
        Some(self.told.swap_remove(at).1)
    }
}

/// Waits to be told.
#[derive(Debug)]
pub struct Notified<'a> {
    notify: &'a Notify,
    /// How often all had been told when it was made.
    broadcasts: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    New,
    /// Among those that wait, under this number, or told since.
    Waits(u64),
    Done,
}

impl Notified<'_> {
    /// Waits from now on. True when it has been told already, or took the permit.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.look(None).is_ready()
    }

    fn look(self: Pin<&mut Self>, waker: Option<&Waker>) -> Poll<()> {
        let this = self.get_mut();
        if matches!(this.stage, Stage::Done) {
            return Poll::Ready(());
        }
        let mut state = this.notify.lock();
        let is_told = match this.stage {
            // All were told: that leaves the permit to others.
            Stage::New => state.broadcasts != this.broadcasts || std::mem::take(&mut state.permit),
            Stage::Waits(number) => state.take_told(number).is_some() || state.broadcasts != this.broadcasts,
            Stage::Done => true,
        };
        if is_told {
            this.stage = Stage::Done;
            return Poll::Ready(());
        }
        match this.stage {
            Stage::Waits(number) => {
                let waiter = state.waiters.iter_mut().find(|waiter| waiter.number == number);
                let waiter = waiter.expect("who was not told is among those that wait");
                waiter.waker = waker.cloned().or(waiter.waker.take());
            }
            Stage::New | Stage::Done => {
                let number = state.next;
                state.next += 1;
                state.waiters.push_back(Waiter { number, waker: waker.cloned() });
                this.stage = Stage::Waits(number);
            }
        }
        Poll::Pending
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.look(Some(context.waker()))
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Stage::Waits(number) = self.stage else { return };
        let waker = {
            let mut state = self.notify.lock();
            state.waiters.retain(|waiter| waiter.number != number);
            // Told and gone without having seen it: the next in the same order is told instead.
            state.take_told(number).and_then(|which| state.notify(which))
        };
        waker.into_iter().for_each(Waker::wake);
    }
}
