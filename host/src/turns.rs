//! Who may compute on and on: as many calls at a time as there are processors, each on a thread that nobody waits for.
//!
//! A guest that computes for longer than a tick gives way again and again. The runtime's own threads must not be what it computes on:
//! everything that is woken would wait behind all such guests, and nobody would look for what comes in from outside meanwhile. The
//! operating system, which can interrupt a thread, divides the processors between them and the rest.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The longest that a call waits for its turn. Shorter than the grace of a deadline, since nobody looks at its deadline and its claim
/// meanwhile.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// One for each processor of this process, whatever runs in it.
static TURNS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))));

thread_local! {
    static GAVE_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Says that what this thread polls has computed for a whole tick and now gives way.
#[cfg(feature = "wasm")]
pub(crate) fn give_way() {
    GAVE_WAY.set(true);
}

/// The turn of one call, as long as that lasts.
#[derive(Default)]
pub(crate) struct Turn {
    computes: bool,
    coming: Option<Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>>,
}

impl Turn {
    /// Polls a call: at once, or, when it gave way the last time, once its turn has come. `None` when that has not come yet; the task
    /// is woken when it does.
    pub(crate) fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Option<Poll<T>> {
        let polled = if self.computes {
            let coming = self.coming.get_or_insert_with(|| Box::pin(turn()));
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

/// A call that is nobody's visit, in its turns.
#[cfg(feature = "wasm")]
pub(crate) async fn in_turns<T>(call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    let mut turn = Turn::default();
    poll_fn(|context| turn.poll(context, |context| call.as_mut().poll(context)).unwrap_or(Poll::Pending)).await
}

/// Waits for a turn; `None` when that takes too long.
async fn turn() -> Option<OwnedSemaphorePermit> {
    let turn = TURNS.clone().acquire_owned();
    tokio::time::timeout(LONGEST_WAIT, turn).await.ok().map(|turn| turn.expect("it is never closed"))
}

/// Another thread does meanwhile what this one did for the runtime.
fn on_a_thread_of_its_own<T>(poll: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(poll),
        _ => poll(),
    }
}

#[cfg(all(test, feature = "wasm"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Computes for so many ticks, and notes the most that did so at the same time.
    async fn compute(ticks: usize, now: &AtomicUsize, most: &AtomicUsize) {
        for _ in 0..ticks {
            let mut gave_way = false;
            poll_fn(|context| {
                if std::mem::replace(&mut gave_way, true) {
                    return Poll::Ready(());
                }
                // The first tick of a call is nobody's turn.
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
    async fn no_more_calls_compute_on_and_on_than_there_are_processors() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let counts: Arc<(AtomicUsize, AtomicUsize)> = Arc::default();
        let calls: Vec<_> = (0..8 * processors)
            .map(|_| {
                let counts = counts.clone();
                tokio::spawn(in_turns(async move {
                    give_way();
                    tokio::task::yield_now().await;
                    compute(20, &counts.0, &counts.1).await;
                }))
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(counts.1.load(Ordering::SeqCst), processors, "each of them had one");
    }

    #[tokio::test]
    async fn calls_take_turns_on_a_runtime_of_one_thread_too() {
        let counts = (AtomicUsize::new(0), AtomicUsize::new(0));
        let call = || in_turns(compute(5, &counts.0, &counts.1));
        tokio::join!(call(), call(), call());
        assert_eq!(counts.1.load(Ordering::SeqCst), 1);
    }
}
