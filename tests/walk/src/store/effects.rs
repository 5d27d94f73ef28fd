//! Storing outcomes with their effects.

use std::time::Duration;

use async_trait::async_trait;
use outbox::StoreError;
use outbox::event::{Fence, OwnerId};
use outbox::store::{Committed, EffectStore, NewRow, Ownership, SettledWithEffects};

use super::MemoryStore;
use crate::world::Change;

#[async_trait]
impl EffectStore for MemoryStore {
    async fn settle_with_effects(&self, settled: &[SettledWithEffects<'_>]) -> Result<Vec<Committed>, StoreError> {
        let rows: Vec<u64> = settled.iter().map(|item| item.settled.fence.sequence).collect();
        let answer = self.run_on(&rows, "settle_with_effects", |world| {
            if world.refuses(Change::Outcome, &rows) {
                return None;
            }
            let (mut answers, mut emitted) = (Vec::new(), Vec::new());
            for item in settled {
                world.settles(self.life, item.settled);
                let (committed, envelopes) = world.table.settle_with_effects(std::slice::from_ref(item));
                answers.extend(committed);
                emitted.extend(envelopes.into_iter().cloned());
            }
            let nobodys = Ownership { owner: OwnerId::known("nobody"), lease: Duration::ZERO };
            let new: Vec<NewRow<'_>> = emitted.iter().map(|envelope| NewRow { envelope, claimed: false }).collect();
            let mut inserted = Vec::new();
            world.insert(&mut inserted, &new, &nobodys);
            world.commit(inserted);
            Some(answers)
        });
        let answer = answer.await;
        if answer.is_err() {
            self.world().refused_effects(settled.iter().map(|item| item.settled.fence));
        }
        let Some(answers) = answer? else {
            let fences: Vec<Fence> = settled.iter().map(|item| item.settled.fence).collect();
            // Effects that are not taken are a failure of the call.
            self.world().refused_effects(fences.iter().copied());
            return Err(self.refusal(fences.into_iter()));
        };
        Ok(answers)
    }
}
