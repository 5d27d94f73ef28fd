//! A clock that stands still until somebody sleeps or a check moves it.
//!
//! Nothing takes a given time here: a sleeper goes on when it is its turn, and the clock has moved that far by then.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::{Add, Sub};
use std::pin::pin;
use std::task::{Poll, Waker};
use std::time::Duration;

thread_local! {
    // Of the thread that plays a check, which plays its schedules one after the other. Not set back: only differences count.
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static TIMERS: RefCell<Vec<(Instant, Waker)>> = const { RefCell::new(Vec::new()) };
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The current time.
    pub fn now() -> Self {
        Self(NOW.get())
    }

    /// How long ago it was.
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// How long this is after that; zero when it is before.
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// So much later; `None` beyond all time.
    pub fn checked_add(&self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0 - duration)
    }
}

/// It took too long.
#[derive(Debug)]
pub struct Elapsed;

/// Lets time pass.
pub fn advance(by: Duration) {
    move_to(Instant::now() + by);
}

fn move_to(time: Instant) {
    NOW.set(NOW.get().max(time.0));
    let due = TIMERS.with_borrow_mut(|timers| timers.extract_if(.., |(at, _)| at.0 <= NOW.get()).collect::<Vec<_>>());
    due.into_iter().for_each(|(_, waker)| waker.wake());
}

/// Goes on after this time.
pub async fn sleep(duration: Duration) {
    let until = Instant::now() + duration;
    shuttle::future::yield_now().await;
    move_to(until);
}

/// Goes on at that time, when somebody else has let it come.
pub async fn sleep_until(until: Instant) {
    let _ = timeout_at(until, std::future::pending::<()>()).await;
}

/// Waits for a future until that time.
pub async fn timeout_at<F: Future>(until: Instant, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        if until <= Instant::now() {
            return Poll::Ready(Err(Elapsed));
        }
        TIMERS.with_borrow_mut(|timers| timers.push((until, context.waker().clone())));
        Poll::Pending
    })
    .await
}

/// Waits for a future, this long at most.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    timeout_at(Instant::now() + duration, future).await
}
