//! The partitions that this host gives back, and what keeps it from doing so.

use std::collections::HashSet;
use std::sync::Arc;

use super::Partitions;
use crate::event::{EventId, Fence};

/// The partitions that are given back as soon as nothing of them is in this process's hands.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Their numbers.
    pub(super) partitions: Vec<u16>,
    /// The claims that were in this process's hands when the leaving began: a claim does not say of which partition its event is.
    unsettled: HashSet<(EventId, Fence)>,
    /// How often partitions began to leave.
    beginnings: u64,
    /// Claims on their way to the database that were sent since the last beginning.
    sent: u32,
    /// Claims on their way to the database that were sent before the last beginning.
    sent_before: u32,
}

impl Leaving {
    /// Notes which partitions are leaving now, and which claims are in this process's hands.
    pub(super) fn update(&mut self, leaving: Vec<u16>, claims: impl Fn() -> Vec<(EventId, Fence)>) {
        if leaving != self.partitions {
            self.beginnings += 1;
            self.sent_before += std::mem::take(&mut self.sent);
            self.unsettled = if leaving.is_empty() { HashSet::new() } else { claims().into_iter().collect() };
            self.partitions = leaving;
        } else if !self.unsettled.is_empty() {
            let held: HashSet<_> = claims().into_iter().collect();
            self.unsettled.retain(|claim| held.contains(claim));
        }
    }

    /// Whether no claim is left that was made before the leaving began.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled.is_empty() && self.sent_before == 0
    }
}

/// A claim, from before it is sent until its events are marked. A partition that begins to leave meanwhile stays until the events
/// that it brings have ended.
#[derive(Debug)]
pub(crate) struct Claiming {
    partitions: Arc<Partitions>,
    /// How often a leaving had begun when it was sent.
    beginnings: u64,
    claims: Vec<(EventId, Fence)>,
}

impl Partitions {
    /// A claim may be sent. To be called before anybody looks which partitions are open, or holds one: those that begin to leave
    /// after that wait for it.
    pub(crate) fn claiming(self: &Arc<Self>) -> Claiming {
        let mut state = self.lock();
        state.leaving.sent += 1;
        Claiming { partitions: self.clone(), beginnings: state.leaving.beginnings, claims: Vec::new() }
    }
}

impl Claiming {
    /// Its answer has come, with these claims.
    pub(crate) fn brought(&mut self, claims: impl Iterator<Item = (EventId, Fence)>) {
        self.claims.extend(claims);
    }
}

impl Drop for Claiming {
    fn drop(&mut self) {
        let mut state = self.partitions.lock();
        let leaving = &mut state.leaving;
        if self.beginnings == leaving.beginnings {
            leaving.sent -= 1;
            return;
        }
        leaving.sent_before -= 1;
        if !leaving.partitions.is_empty() {
            leaving.unsettled.extend(self.claims.drain(..));
        }
    }
}
