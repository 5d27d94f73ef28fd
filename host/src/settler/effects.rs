//! Outcomes whose listeners emitted events or wrote state: each is stored together with these, in one transaction.

use std::time::Duration;

use super::completion::{Batch, Completion};
use super::trying::Trying;
use super::{Settler, fenced_off};
use crate::event::{Effects, Envelope};
use crate::store::{Committed, Settled, SettledWithEffects, Settlement, StoreError};
use crate::time::system_clock;

impl Settler {
    /// Takes out the outcomes with effects and stores them. What follows from them is added to `completions`, and what waits
    /// for locked rows to `apart`.
    pub(super) async fn store_effects(&self, completions: &mut Vec<Completion>, apart: &mut Vec<Completion>) {
        let mut with_effects: Vec<Completion> = completions.extract_if(.., |one| one.effects.is_some()).collect();
        if with_effects.is_empty() {
            return;
        }
        let committed = self.commit(&mut with_effects, apart).await;
        let mut stored = Batch::with_capacity(with_effects.len());
        let mut emitted = 0;
        for (index, mut completion) in with_effects.into_iter().enumerate() {
            // `None` when the batch was given up: then the claims end with their leases.
            let committed = committed.as_ref().map(|committed| committed[index]);
            let effects = completion.effects.take();
            match committed {
                Some(Committed::Conflict) => {
                    self.metrics.state_conflicts.increment();
                    completion.settled.settlement = Settlement::Released { after: Duration::ZERO };
                    completions.push(completion);
                    continue;
                }
                Some(Committed::Stored) => emitted += effects.map_or(0, |effects| self.wake_for_emitted(&effects)),
                Some(Committed::Fenced) => {
                    self.metrics.fenced_outcomes.increment();
                    fenced_off(1);
                }
                None => {}
            }
            stored.extend(std::iter::once(completion));
            let fenced = committed.map(|committed| u64::from(committed != Committed::Stored));
            self.conclude(&mut stored, fenced, completions);
        }
        if emitted > 0 {
            self.metrics.events_written.add(emitted);
            self.notifier.notify();
        }
    }

    /// Writes until it is written; `None` when it was given up.
    async fn commit(&self, completions: &mut Vec<Completion>, apart: &mut Vec<Completion>) -> Option<Vec<Committed>> {
        let mut trying = Trying::begin(self)?;
        loop {
            let settled: Vec<SettledWithEffects<'_>> = completions.iter().filter_map(with_effects).collect();
            let error = match self.store.settle_with_effects(&settled).await {
                Ok(committed) => {
                    trying.stored(completions.len());
                    return Some(committed);
                }
                Err(error) => error,
            };
            self.metrics.db_errors.increment();
            if matches!(error, StoreError::Locked { .. })
                && let Ok(locked) = self.locked(completions.iter().map(|one| &one.settled)).await
                && !locked.is_empty()
            {
                apart.extend(completions.extract_if(.., |one| locked.contains(&one.settled.fence.sequence)));
                continue;
            }
            if !trying.may_repeat(completions.len(), &error).await {
                return None;
            }
        }
    }

    /// Wakes the poller for follow-up events that are there now; returns how many there are.
    fn wake_for_emitted(&self, effects: &Effects) -> u64 {
        let now = system_clock().now();
        let due = |envelope: &Envelope| envelope.available_at().since(now);
        if let Some(first) = effects.emitted.iter().map(due).min() {
            self.wake.within(first);
        }
        effects.emitted.len() as u64
    }
}

fn with_effects(completion: &Completion) -> Option<SettledWithEffects<'_>> {
    let settled: &Settled = &completion.settled;
    completion.effects.as_deref().map(|effects| SettledWithEffects { settled, effects })
}
