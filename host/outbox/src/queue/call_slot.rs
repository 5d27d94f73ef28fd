//! The right to one call of a listener.

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::Waker;

use tokio::time::Instant;

use crate::sync::atomic::{AtomicBool, Ordering};

/// Permits one call of a listener. When it is dropped, the next event of the call queue gets the slot.
#[derive(Debug)]
pub(crate) struct CallSlot {
    pub(super) slots: Weak<dyn CallSlots>,
    /// The name of the slots. Listeners with the same name share them.
    pub(super) name: Arc<str>,
    pub(super) since: Instant,
    pub(super) doing: Doing,
}

/// The state of the call in a slot.
#[derive(Debug)]
pub(super) enum Doing {
    Computes,
    /// The call waits for something external, so another call may compute.
    Waits,
    /// The wait of the call has ended, but as many other calls compute as allowed.
    Resumes(Arc<Resumption>),
}

/// The owner of the slots, which tracks the states of their calls.
pub(super) trait CallSlots: fmt::Debug + Send + Sync {
    /// Notes that a call begins to wait, so that another call may compute.
    fn call_waits(&self, slot: &CallSlot);

    /// Notes that the wait of a call has ended. `None` if the call may compute; otherwise the object that permits it later.
    fn call_resumes(&self, slot: &CallSlot, waker: &Waker) -> Option<Arc<Resumption>>;

    /// Notes that a call continues without that permission.
    fn call_goes_on(&self, slot: &CallSlot, resumption: &Arc<Resumption>);

    /// Hands a slot to the next event that waits for it.
    fn leave(&self, slot: &CallSlot);
}

/// One call's wait to continue.
#[derive(Debug)]
pub(super) struct Resumption {
    granted: AtomicBool,
    waker: Waker,
}

impl Resumption {
    pub(super) fn new(waker: &Waker) -> Arc<Self> {
        Arc::new(Self { granted: AtomicBool::new(false), waker: waker.clone() })
    }

    pub(super) fn grant(&self) {
        self.granted.store(true, Ordering::Release);
        self.waker.wake_by_ref();
    }

    pub(super) fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }
}

impl CallSlot {
    /// A slot of this name, for a call that computes.
    pub(super) fn new(slots: Weak<dyn CallSlots>, name: Arc<str>, since: Instant) -> Self {
        Self { slots, name, since, doing: Doing::Computes }
    }

    /// Notes that the call waits for something, such as a response. Only a few calls of one listener compute at a time, however many wait,
    /// so that long computations leave threads to other listeners.
    pub(crate) fn waits(&mut self) {
        // A call that was cut off during a wait still counts as waiting until its outcome is taken.
        if !matches!(self.doing, Doing::Computes) {
            return;
        }
        self.doing = Doing::Waits;
        if let Some(slots) = self.slots.upgrade() {
            slots.call_waits(self);
        }
    }

    /// Whether the call may continue and compute; `waker` is woken when it may.
    pub(crate) fn may_compute(&mut self, waker: &Waker) -> bool {
        let resumes = match &self.doing {
            Doing::Computes => None,
            Doing::Waits => self.slots.upgrade().and_then(|slots| slots.call_resumes(self, waker)),
            Doing::Resumes(resumption) if resumption.is_granted() => None,
            Doing::Resumes(_) => return false,
        };
        self.doing = resumes.map_or(Doing::Computes, Doing::Resumes);
        matches!(self.doing, Doing::Computes)
    }

    /// Lets the call continue although as many other calls compute as allowed.
    pub(crate) fn compute_anyway(&mut self) {
        if let (Doing::Resumes(resumption), Some(slots)) = (&self.doing, self.slots.upgrade()) {
            slots.call_goes_on(self, resumption);
        }
        self.doing = Doing::Computes;
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        if let Some(slots) = self.slots.upgrade() {
            slots.leave(self);
        }
    }
}
