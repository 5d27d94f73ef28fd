//! Storing outcomes.

use async_trait::async_trait;
use outbox::StoreError;
use outbox::store::{SettleStore, Settled};

use super::MemoryStore;
use crate::world::{World, shown};

#[async_trait]
impl SettleStore for MemoryStore {
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError> {
        let rows: Vec<u64> = settled.iter().map(|settled| settled.fence.sequence).collect();
        let answer = self.run_on(&rows, "settle", |world| {
            let mut dropped = 0;
            for settled in settled {
                world.settles(self.life, settled);
                dropped += world.table.settle(std::slice::from_ref(settled));
            }
            dropped
        });
        let answer = answer.await;
        if answer.is_err() {
            self.world().refused(settled.iter().map(|settled| settled.fence));
        }
        answer
    }

    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
        self.run("locked", |world| sequences.iter().copied().filter(|seq| world.is_locked(*seq)).collect()).await
    }
}

impl World {
    /// Notes an outcome that is about to be stored, and whether it is.
    pub(super) fn settles(&mut self, life: usize, settled: &Settled) {
        let before = self.table.held(settled.fence).map(|row| row.clone());
        let became = if before.is_some() { "stores" } else { "is fenced off with" };
        let line = format!("{} {became} {:?} for {}", self.name(life), settled.settlement, shown(settled.fence));
        self.note(line);
        if let Some(before) = before {
            self.stores(settled, &before);
        }
    }
}
