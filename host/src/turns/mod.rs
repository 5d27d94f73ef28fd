//! Limits how many calls compute at once: one for each processor, each on a thread that the runtime does without meanwhile.
//!
//! A guest that computes for longer than a tick yields again and again. On the runtime's own threads, every other task would queue
//! behind such guests, and nobody would poll the sockets. So a call that has yielded once goes on through `block_in_place`, and the
//! operating system shares the processors between guests and the runtime.

use std::cell::Cell;
use std::future::Future;
#[cfg(feature = "wasm")]
use std::future::poll_fn;
use std::pin::Pin;
#[cfg(feature = "wasm")]
use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a call waits for its turn; then it computes without one. Nobody checks its deadline or its claim while it waits, so this
/// stays below `GRACE` in `dispatcher/attempt.rs` (250 ms).
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// One for each processor of this process, whatever runs in it.
static TURNS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)));

thread_local! {
    static GAVE_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the call which this thread polls has computed for a whole tick and now yields.
#[cfg(feature = "wasm")]
pub(crate) fn give_way() {
    GAVE_WAY.set(true);
}

/// One call's turns; lives as long as the call.
pub(crate) struct Turn {
    turns: &'static Semaphore,
    longest: Duration,
    computes: bool,
    coming: Option<Pin<Box<dyn Future<Output = Option<SemaphorePermit<'static>>> + Send>>>,
}

impl Default for Turn {
    fn default() -> Self {
        Self::of(&TURNS, LONGEST_WAIT)
    }
}

impl Turn {
    fn of(turns: &'static Semaphore, longest: Duration) -> Self {
        Self { turns, longest, computes: false, coming: None }
    }

    /// Polls a call: at once, or, when it gave way the last time, once its turn has come. `None` when it has not come yet; the task
    /// is woken when it does.
    pub(crate) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Option<Poll<T>> {
        let polled = if self.computes {
            let (turns, longest) = (self.turns, self.longest);
            let coming = self.coming.get_or_insert_with(|| Box::pin(turn(turns, longest)));
            let Poll::Ready(_turn) = coming.as_mut().poll(context) else { return None };
            self.coming = None;
            GAVE_WAY.set(false);
            on_a_thread_of_its_own(|| poll(context))
        } else {
            GAVE_WAY.set(false);
            poll(context)
        };
        self.computes = GAVE_WAY.take();
        Some(polled)
    }
}

/// Runs a call that no worker visits (a batch call) in turns, as `Presence` does for visits.
#[cfg(feature = "wasm")]
pub(crate) async fn in_turns<T>(call: impl Future<Output = T>) -> T {
    in_turns_of(Turn::default(), call).await
}

#[cfg(feature = "wasm")]
async fn in_turns_of<T>(mut turn: Turn, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    poll_fn(|context| turn.poll(context, |context| call.as_mut().poll(context)).unwrap_or(Poll::Pending)).await
}

/// Waits for a turn; `None` when that takes too long.
async fn turn(turns: &'static Semaphore, longest: Duration) -> Option<SemaphorePermit<'static>> {
    let turn = tokio::time::timeout(longest, turns.acquire()).await.ok()?;
    Some(turn.expect("nobody closes the semaphore"))
}

/// Polls here while another thread takes over this one's work for the runtime. On a runtime of one thread: just polls.
fn on_a_thread_of_its_own<T>(poll: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(poll),
        _ => poll(),
    }
}

#[cfg(all(test, feature = "wasm"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Computes for so many ticks, and notes the most calls that did so at the same time.
    async fn compute(ticks: usize, now: &AtomicUsize, most: &AtomicUsize) {
        for _ in 0..ticks {
            let mut gave_way = false;
            poll_fn(|context| {
                if std::mem::replace(&mut gave_way, true) {
                    return Poll::Ready(());
                }
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
                now.fetch_sub(1, Ordering::SeqCst);
                give_way();
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn no_more_calls_compute_on_and_on_than_there_are_turns() {
        static TURNS: Semaphore = Semaphore::const_new(2);
        let counts: Arc<(AtomicUsize, AtomicUsize)> = Arc::default();
        let calls: Vec<_> = (0..16)
            .map(|_| {
                let counts = counts.clone();
                let turn = Turn::of(&TURNS, Duration::from_secs(3_600));
                tokio::spawn(in_turns_of(turn, async move {
                    // The first poll of a call takes no turn; it is used up here.
                    give_way();
                    tokio::task::yield_now().await;
                    compute(20, &counts.0, &counts.1).await;
                }))
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(counts.1.load(Ordering::SeqCst), 2, "one call for each turn");
    }

    #[tokio::test]
    async fn calls_that_compute_end_on_a_runtime_of_one_thread_too() {
        let counts = (AtomicUsize::new(0), AtomicUsize::new(0));
        let call = || in_turns(compute(5, &counts.0, &counts.1));
        tokio::join!(call(), call(), call());
    }
}
