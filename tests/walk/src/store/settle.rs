//! Storing outcomes.

use async_trait::async_trait;
use outbox::StoreError;
use outbox::event::Fence;
use outbox::store::{SettleStore, Settled};

use super::{MemoryStore, refused_by_trigger};
use crate::world::{Change, World, shown};

#[async_trait]
impl SettleStore for MemoryStore {
    async fn settle(&self, settled: &[Settled]) -> Result<u64, StoreError> {
        let rows: Vec<u64> = settled.iter().map(|settled| settled.fence.sequence).collect();
        let answer = self.run_on(&rows, "settle", |world| {
            if world.refuses(Change::Outcome, &rows) {
                return None;
            }
            let mut dropped = 0;
            for settled in settled {
                world.settles(self.life, settled);
                dropped += world.table.settle(std::slice::from_ref(settled));
            }
            Some(dropped)
        });
        let answer = answer.await;
        if answer.is_err() {
            self.world().refused(settled.iter().map(|settled| settled.fence));
        }
        answer?.ok_or_else(|| self.refusal(settled.iter().map(|settled| settled.fence)))
    }

    async fn locked(&self, sequences: &[u64]) -> Result<Vec<u64>, StoreError> {
        self.run("locked", |world| sequences.iter().copied().filter(|seq| world.is_locked(*seq)).collect()).await
    }

    async fn unsettled(&self, settled: &[Settled]) -> Result<Vec<u64>, StoreError> {
        self.run("unsettled", |world| {
            let held = settled.iter().filter(|settled| world.table.held(settled.fence).is_some());
            held.map(|settled| settled.fence.sequence).collect()
        })
        .await
    }
}

impl MemoryStore {
    /// The answer to outcomes of which the database refuses one. If nothing else fails, no listener may be called again because of it.
    pub(super) fn refusal(&self, fences: impl Iterator<Item = Fence>) -> StoreError {
        let mut world = self.world();
        let rows = world.refused_rows(Change::Outcome);
        let line = format!("{} may not store the outcomes of {rows:?}", world.name(self.life));
        world.note(line);
        if !world.plan.is_quiet() || world.plan.hosts > 1 {
            world.refused(fences);
        }
        refused_by_trigger("store outcomes")
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
