//! Counts the workers that are calling a listener, and lets one of them call alone.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Counts the workers that are calling a listener. One worker may ask to call alone: it waits for the running calls, and the other workers
/// wait for it.
#[derive(Debug, Default)]
pub(crate) struct AtWork {
    /// The number of calling workers, with the bit [`ALONE`] set while a worker is alone or waits to be.
    count: AtomicUsize,
    /// Notified when a worker leaves while another is alone or waits to be, and when that worker is done.
    changed: Notify,
    /// Held by the worker that is alone or waits to be: one at a time.
    turn: tokio::sync::Mutex<()>,
    /// Whether another worker has waited for the one that is alone.
    waited: AtomicBool,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    /// Until when the other workers wait for the worker that is alone: a listener that blocks its thread must not stop the whole host.
    until: Option<Instant>,
    /// When the next worker may be alone: by then the other workers have had as much time as they waited for the last one.
    next: Option<Instant>,
}

const ALONE: usize = 1 << (usize::BITS - 1);

impl AtWork {
    /// Whether no worker is calling a listener.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) & !ALONE == 0
    }

    /// Enters a call that runs concurrently with others.
    pub(crate) async fn enter(&self) -> Work<'_> {
        if self.try_enter() {
            return Work { at_work: self, _alone: None };
        }
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Register before checking, or an end in between is missed.
            changed.as_mut().enable();
            if self.try_enter() {
                return Work { at_work: self, _alone: None };
            }
            self.waited.store(true, Ordering::SeqCst);
            let until = self.times().until;
            let Some(until) = until else {
                // The other worker has just ceased to be alone, and is about to notify.
                changed.await;
                continue;
            };
            if tokio::time::timeout_at(until, changed).await.is_err() {
                let times = self.times();
                // If another worker is alone by now, it has set another time under this lock, and its turn must not end here.
                if times.until == Some(until) {
                    self.end_alone();
                }
            }
        }
    }

    /// Enters a call alone, after all running calls have ended. `None` if they do not end within `patience`, or at once if the last worker
    /// that was alone is overdue. The other workers wait meanwhile, at most `longest` beyond that patience. If they waited for the last
    /// worker that was alone, they first get as much time for themselves.
    pub(crate) async fn enter_alone(&self, patience: Duration, longest: Duration) -> Option<Work<'_>> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) if self.times().until.is_some_and(|until| until <= Instant::now()) => return None,
            Err(_) => tokio::time::timeout(patience, self.turn.lock()).await.ok()?,
        };
        self.rest().await;
        let since = Instant::now();
        let until = since + patience;
        self.times().until = Some(until + longest);
        self.count.fetch_or(ALONE, Ordering::SeqCst);
        let alone = Alone { at_work: self, since, _turn: turn };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.is_empty() {
                self.count.fetch_add(1, Ordering::SeqCst);
                return Some(Work { at_work: self, _alone: Some(alone) });
            }
            tokio::time::timeout_at(until, changed).await.ok()?;
        }
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn rest(&self) {
        let next = self.times().next;
        if let Some(next) = next {
            tokio::time::sleep_until(next).await;
        }
    }

    /// Does not count a worker that has to wait. It would have to leave again, and each leave wakes the waiting workers, so they would wake
    /// each other for ever.
    fn try_enter(&self) -> bool {
        let beside = |count| (count & ALONE == 0).then_some(count + 1);
        self.count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, beside).is_ok()
    }

    fn leave(&self) {
        if self.count.fetch_sub(1, Ordering::SeqCst) & ALONE != 0 {
            self.changed.notify_waiters();
        }
    }

    fn end_alone(&self) {
        self.count.fetch_and(!ALONE, Ordering::SeqCst);
        self.changed.notify_waiters();
    }
}

/// Counts a worker as calling a listener until dropped, even if the call is cut off.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    at_work: &'a AtWork,
    _alone: Option<Alone<'a>>,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.at_work.leave();
    }
}

#[derive(Debug)]
struct Alone<'a> {
    at_work: &'a AtWork,
    since: Instant,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let waited = self.at_work.waited.swap(false, Ordering::SeqCst);
        let now = Instant::now();
        let mut times = self.at_work.times();
        // No other worker waited for longer than that.
        let waited_until = times.until.take().map_or(now, |until| until.min(now));
        times.next = waited.then(|| now + waited_until.saturating_duration_since(self.since));
        drop(times);
        self.at_work.end_alone();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);

    #[tokio::test]
    async fn one_that_is_alone_waits_for_those_that_are_there_and_the_others_wait_for_it() {
        let at_work = AtWork::default();
        let beside = at_work.enter().await;
        let mut alone = Box::pin(at_work.enter_alone(LONG, LONG));
        assert!(alone.as_mut().now_or_never().is_none(), "one is there already");
        let mut late = Box::pin(at_work.enter());
        assert!(late.as_mut().now_or_never().is_none(), "one waits to be alone");
        drop(beside);
        let alone = alone.await.expect("all are back");
        assert!(late.as_mut().now_or_never().is_none(), "one is alone");
        assert!(!at_work.is_empty());
        drop(alone);
        drop(late.await);
        assert!(at_work.is_empty());
    }

    #[tokio::test]
    async fn one_at_a_time_is_alone() {
        let at_work = AtWork::default();
        let first = at_work.enter_alone(LONG, LONG).await.expect("nobody is there");
        assert!(at_work.enter_alone(Duration::ZERO, LONG).await.is_none());
        let mut second = Box::pin(at_work.enter_alone(LONG, LONG));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.await.is_some());
    }

    #[tokio::test]
    async fn others_have_as_long_as_they_waited_before_the_next_is_alone() {
        let at_work = AtWork::default();
        let alone = at_work.enter_alone(LONG, LONG).await.expect("nobody is there");
        let mut late = Box::pin(at_work.enter());
        assert!(late.as_mut().now_or_never().is_none());
        tokio::time::sleep(Duration::from_millis(10)).await;
        let ended = Instant::now();
        drop(alone);
        drop(late.await);
        assert!(at_work.times().next >= Some(ended + Duration::from_millis(10)));

        drop(at_work.enter_alone(LONG, LONG).await.expect("nobody is there"));
        assert!(at_work.rest().now_or_never().is_some(), "nobody waited");
    }

    #[tokio::test]
    async fn nobody_waits_longer_than_was_said_for_one_that_never_comes_back() {
        let at_work = AtWork::default();
        let stuck = at_work.enter_alone(Duration::ZERO, Duration::ZERO).await.expect("nobody is there");
        let beside = at_work.enter().await;
        let next = at_work.enter_alone(LONG, LONG).now_or_never();
        assert!(next.expect("it does not wait").is_none(), "the next that is to be alone comes again later");
        drop(stuck);
        drop(beside);
        assert!(at_work.is_empty());
    }

    #[tokio::test]
    async fn one_that_cannot_be_alone_in_time_lets_the_others_go_on() {
        let at_work = AtWork::default();
        let _stuck = at_work.enter().await;
        assert!(at_work.enter_alone(Duration::ZERO, LONG).await.is_none());
        assert!(at_work.enter().now_or_never().is_some());
    }
}
