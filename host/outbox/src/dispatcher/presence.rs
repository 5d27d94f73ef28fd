//! Whether a worker's visit computes or waits for something outside the host.
//!
//! A waiting visit needs no thread: another worker may take the next event, and another call of the same listener may compute.
//! A visit that yields has woken itself, so it does not wait in this sense.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use outbox_listener::noticing_turns;
use tokio::time::Sleep;

use crate::queue::{CallSlot, Queue};

/// How long a visit waits for its listener to be allowed one more computing call; then it goes on anyway. Its deadline and its
/// claim are not checked meanwhile, so this stays below `GRACE` in `attempt/call.rs` (250 ms).
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// Observes the visits of one worker.
pub(super) struct Presence {
    bell: Arc<Bell>,
    waker: Waker,
}

/// Wakes the worker, and remembers that it did.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    worker: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.worker.wake();
    }
}

impl Presence {
    pub(super) fn new() -> Self {
        let bell = Arc::<Bell>::default();
        Self { waker: Waker::from(bell.clone()), bell }
    }

    /// Runs a visit. When the visit waits, its slot says so, and another worker is woken for the next event. When the wait has
    /// ended, the visit goes on once its listener may compute one more call. A visit that waits for a processor (its turn) does not
    /// count as waiting.
    pub(super) async fn watch<T>(&self, queue: &Queue, slot: &VisitSlot, visit: impl Future<Output = T>) -> T {
        let mut visit = pin!(visit);
        let mut waits = false;
        let mut slot_comes: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|context| {
            self.bell.worker.register(context.waker());
            self.bell.rung.store(false, Ordering::Release);
            if waits && !slot.may_compute(&self.waker) {
                let longest = slot_comes.get_or_insert_with(|| Box::pin(tokio::time::sleep(LONGEST_WAIT)));
                if longest.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                slot.compute_anyway();
            }
            (waits, slot_comes) = (false, None);
            let (polled, waits_for_turn) = noticing_turns(|| visit.as_mut().poll(&mut Context::from_waker(&self.waker)));
            if polled.is_pending() && !waits_for_turn && !self.bell.rung.load(Ordering::Acquire) {
                waits = true;
                slot.waits();
                queue.wake_next();
            }
            polled
        })
        .await
    }
}

/// The call slot of a visit, if its listener has a bound; free for the next event after [`let_go`](Self::let_go).
pub(super) struct VisitSlot(Mutex<Option<CallSlot>>);

impl VisitSlot {
    pub(super) fn new(slot: Option<CallSlot>) -> Self {
        Self(Mutex::new(slot))
    }

    /// Waits in this slot for something outside of the listener. Meanwhile another call of it may compute, and another worker is
    /// woken for the next event.
    pub(super) async fn wait<T>(&self, queue: &Queue, what: impl Future<Output = T>) -> T {
        let (mut what, mut waits) = (pin!(what), false);
        poll_fn(|context| {
            let polled = what.as_mut().poll(context);
            if polled.is_pending() && !waits {
                waits = true;
                self.waits();
                queue.wake_next();
            }
            polled
        })
        .await
    }

    pub(super) fn let_go(&self) {
        let slot = self.lock().take();
        drop(slot);
    }

    fn waits(&self) {
        if let Some(slot) = &mut *self.lock() {
            slot.waits();
        }
    }

    fn compute_anyway(&self) {
        if let Some(slot) = &mut *self.lock() {
            slot.compute_anyway();
        }
    }

    fn may_compute(&self, waker: &Waker) -> bool {
        self.lock().as_mut().is_none_or(|slot| slot.may_compute(waker))
    }

    fn lock(&self) -> MutexGuard<'_, Option<CallSlot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
