//! The right to one call of a listener.

use std::fmt;
use std::sync::{Arc, Weak};
use std::task::Waker;

use tokio::time::Instant;

use crate::sync::atomic::{AtomicBool, Ordering};

/// Says that an event may be with its listener now. The next event of the call queue gets the slot when this is dropped.
#[derive(Debug)]
pub(crate) struct CallSlot {
    pub(super) slots: Weak<dyn CallSlots>,
    /// The listeners that share the slot go by this name.
    pub(super) name: Arc<str>,
    pub(super) since: Instant,
    pub(super) doing: Doing,
}

/// The state of the call in a slot.
#[derive(Debug)]
pub(super) enum Doing {
    Computes,
    /// It waits for something outside the host, so that another one may compute.
    Waits,
    /// Its wait has ended, but as many other calls compute as may.
    Resumes(Arc<Resumption>),
}

/// The owner of the slots. It notes how the calls in them stand.
pub(super) trait CallSlots: fmt::Debug + Send + Sync {
    /// Takes note of a call that begins to wait, which gives its turn to compute to another.
    fn call_waits(&self, slot: &CallSlot);

    /// Takes note of a call whose wait has ended. `None` when it may compute; otherwise what tells when it may.
    fn call_resumes(&self, slot: &CallSlot, waker: &Waker) -> Option<Arc<Resumption>>;

    /// Notes a call that continues without having been told that it may.
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
    /// A slot of this name, whose call computes.
    pub(super) fn new(slots: Weak<dyn CallSlots>, name: Arc<str>, since: Instant) -> Self {
        Self { slots, name, since, doing: Doing::Computes }
    }

    /// Says that the call waits for something, such as a response. Of one listener only a few calls compute at a time, however
    /// many wait: a listener that computes for long leaves the threads to others.
    pub(crate) fn waits(&mut self) {
        // A call that was cut off while it waited continues to wait until its outcome is taken: it is counted already.
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

    /// The call continues though as many other calls compute as may.
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
