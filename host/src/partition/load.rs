//! How much this host has to do, beside others that share the partitions.

use super::Partitions;
use crate::sync::atomic::Ordering;

/// How much a host has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Next to nothing.
    Idle,
    /// Something.
    Working,
    /// More than it gets done: events are due that find no room in its queues.
    Busy,
}

impl Load {
    /// What two looks say, one beat apart: a burst is over sooner, and moves no partition.
    pub(crate) const fn for_a_while(before: Self, now: Self) -> Self {
        match (before, now) {
            (Self::Busy, Self::Busy) => Self::Busy,
            (Self::Idle, Self::Idle) => Self::Idle,
            _ => Self::Working,
        }
    }
}

impl Partitions {
    /// Notes whether the poller has left events that are due.
    pub(crate) fn set_backlog(&self, has_backlog: bool) {
        self.has_backlog.store(has_backlog, Ordering::Relaxed);
    }

    /// How much there is to do, with `in_hand` events in hand; `little` or fewer are little.
    pub(crate) fn load(&self, in_hand: usize, little: usize) -> Load {
        if self.has_backlog.load(Ordering::Relaxed) {
            Load::Busy
        } else if in_hand <= little && !self.closed.load(Ordering::SeqCst) {
            Load::Idle
        } else {
            Load::Working
        }
    }
}
