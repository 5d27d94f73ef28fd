//! Which partitions a busy host gives to an idle one, and what the other keeps of them.

use super::Partitions;
use crate::store::{HeldPartition, PARTITIONS};
use crate::sync::atomic::Ordering;

/// Which part of its even share a busy host gives to an idle one at each beat, so that it can be seen what that changes.
pub(super) const HANDED_OVER: u16 = 16;

impl Partitions {
    /// How many partitions this host has got from busy ones beyond its even share. It keeps those until hosts come or go.
    pub(super) fn beyond_share(&self, held: &[HeldPartition], share: u16, live: u32) -> u16 {
        let is_new = |held: &&HeldPartition| self.slots[usize::from(held.number)].epoch.load(Ordering::SeqCst) != held.epoch;
        let held_count = u16::try_from(held.len()).unwrap_or(PARTITIONS);
        let new = u16::try_from(held.iter().filter(is_new).count()).unwrap_or(PARTITIONS);
        // As many as its share it takes by itself.
        let given = new.saturating_sub(share.saturating_sub(held_count - new));
        let mut state = self.lock();
        let before = if std::mem::replace(&mut state.live, live) == live { state.beyond } else { 0 };
        state.beyond = (before + given).min(held_count.saturating_sub(share));
        state.beyond
    }

    /// The partitions that an idle host is to get: those with the least in hand, and never more than leaves this host as many.
    pub(super) fn choose_to_hand_over(&self, open: &[HeldPartition], share: u16, wanted: bool) -> Vec<u16> {
        let mut state = self.lock();
        if !wanted {
            state.handed_over.clear();
        } else if state.handed_over.iter().all(|number| !open.iter().any(|held| held.number == *number)) {
            let few = usize::from((share / HANDED_OVER).max(1)).min(open.len() / 2);
            let in_hand = |held: &HeldPartition| self.slots[usize::from(held.number)].in_hand.load(Ordering::SeqCst);
            let mut by_load: Vec<(u32, u16)> = open.iter().map(|held| (in_hand(held), held.number)).collect();
            by_load.sort_unstable();
            state.handed_over = by_load.into_iter().take(few).map(|(_, number)| number).collect();
        }
        state.handed_over.clone()
    }
}
