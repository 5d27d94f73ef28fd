//! One call of a plugin, which computes in turns once it has computed for a tick.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::LazyLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use outbox_listener::wait_for_turn;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::TICK;
use super::queue::{Turn, TurnAhead, Turns};

/// One for each processor, shared by all hosts in this process.
static TURNS: LazyLock<Turns> = LazyLock::new(|| Turns::new(std::thread::available_parallelism().map_or(1, usize::from)));

thread_local! {
    /// Whether the call that this thread polled last was at work when its tick ended.
    static GAVE_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Notes that the call polled on this thread was still computing when its tick ended. Its next poll needs a turn.
pub(crate) fn give_way() {
    GAVE_WAY.set(true);
}

/// Runs a call of a plugin. Once it has computed for a tick, it computes only in its plugin's turns; with `from_the_start`, because
/// it is expected to compute for long, it does so at once. While it waits for its turn, its caller may cut it off as at any time.
pub(crate) async fn in_turns<T>(plugin: &str, from_the_start: bool, call: impl Future<Output = T>) -> T {
    in_turns_of(&TURNS, plugin, from_the_start, call).await
}

async fn in_turns_of<T>(turns: &'static Turns, plugin: &str, from_the_start: bool, call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    let mut computed = if from_the_start { TICK } else { Duration::ZERO };
    let mut ahead: Option<TurnAhead> = None;
    poll_fn(|context| {
        let mut turn: Option<Turn> = None;
        if computed >= TICK {
            match ahead.get_or_insert_with(|| turns.ask(plugin)).poll(context) {
                Poll::Ready(mine) => turn = Some(mine),
                Poll::Pending => {
                    wait_for_turn();
                    return Poll::Pending;
                }
            }
            (ahead, computed) = (None, Duration::ZERO);
        }
        GAVE_WAY.set(false);
        let began = Instant::now();
        let mut poll = || call.as_mut().poll(context);
        let polled = if turn.is_some() { on_a_thread_of_its_own(poll) } else { poll() };
        computed = if GAVE_WAY.take() { TICK } else { computed + began.elapsed() };
        polled
    })
    .await
}

/// Polls here while another thread takes over this one's work for the runtime. On a runtime of one thread: just polls.
fn on_a_thread_of_its_own<T>(poll: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(poll),
        _ => poll(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use outbox_listener::noticing_turns;

    use super::*;

    /// Computes for this many ticks, and notes the most calls that did so at the same time.
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

    fn turns(number: usize) -> &'static Turns {
        Box::leak(Box::new(Turns::new(number)))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 8)]
    async fn no_more_calls_compute_on_and_on_than_there_are_turns() {
        let turns = turns(2);
        let counts: Arc<(AtomicUsize, AtomicUsize)> = Arc::default();
        let calls: Vec<_> = (0..16)
            .map(|call| {
                let counts = counts.clone();
                let plugin = if call < 12 { "many" } else { "few" };
                tokio::spawn(in_turns_of(turns, plugin, true, async move { compute(20, &counts.0, &counts.1).await }))
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(counts.1.load(Ordering::SeqCst), 2, "one call for each turn");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_call_that_waits_between_short_computations_needs_a_turn_for_each_tick_of_them() {
        for _ in 0..20 {
            // On a busy machine, the first half of a tick may take a whole one.
            if halves_of_a_tick_without_a_turn().await == 2 {
                return;
            }
        }
        panic!("no call has computed for two halves of a tick");
    }

    /// How many halves of a tick a call computes for while another call has the only turn.
    async fn halves_of_a_tick_without_a_turn() -> usize {
        let turns = turns(1);
        let Poll::Ready(held) = turns.ask("other").poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) else {
            panic!("the turn is free");
        };
        let polls = Arc::new(AtomicUsize::new(0));
        let call = tokio::spawn(in_turns_of(turns, "waits", false, {
            let polls = polls.clone();
            async move {
                for _ in 0..8 {
                    polls.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(TICK / 2);
                    tokio::task::yield_now().await;
                }
            }
        }));

        tokio::time::sleep(TICK * 10).await;
        let computed = polls.load(Ordering::SeqCst);
        assert!((1..=2).contains(&computed), "never more than a tick: {computed}");
        drop(held);

        call.await.unwrap();
        assert_eq!(polls.load(Ordering::SeqCst), 8);
        computed
    }

    #[tokio::test]
    async fn a_call_that_waits_for_its_turn_says_so_and_can_be_cut_off() {
        let turns = turns(1);
        let Poll::Ready(held) = turns.ask("other").poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) else {
            panic!("the turn is free");
        };
        let mut call = Box::pin(in_turns_of(turns, "late", true, std::future::pending::<()>()));
        let mut waits = async || poll_fn(|context| Poll::Ready(noticing_turns(|| call.as_mut().poll(context)))).await;

        assert_eq!(waits().await, (Poll::Pending, true));
        drop(held);
        assert_eq!(waits().await, (Poll::Pending, false), "it waits for something outside now");

        let cut_off = tokio::time::timeout(Duration::from_millis(1), call).await;
        assert!(cut_off.is_err());
    }

    #[tokio::test]
    async fn calls_that_compute_end_on_a_runtime_of_one_thread_too() {
        let counts = (AtomicUsize::new(0), AtomicUsize::new(0));
        let call = || in_turns("plugin", true, compute(5, &counts.0, &counts.1));
        let all = async { tokio::join!(call(), call(), call()) };
        tokio::time::timeout(Duration::from_secs(30), all).await.expect("they end within 30 s");
    }
}
