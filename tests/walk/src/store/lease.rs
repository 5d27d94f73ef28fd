//! Keeping claims, and giving them back.

use std::time::Duration;

use async_trait::async_trait;
use outbox::event::{Fence, OwnerId};
use outbox::store::{LeaseStore, Renewed};
use outbox::{EventId, StoreError};

use super::MemoryStore;
use crate::world::Change;

#[async_trait]
impl LeaseStore for MemoryStore {
    async fn renew(&self, held: &[Fence], lease: Duration) -> Result<Renewed, StoreError> {
        let renewed = self.run("renew", |world| {
            if world.refuses(Change::Renewal, &world.unfinished(held)) {
                return None;
            }
            let (locked, free): (Vec<Fence>, Vec<Fence>) = held.iter().partition(|fence| world.is_locked(fence.sequence));
            let held = world.table.renew(&free, lease);
            Some(Renewed { held, locked: locked.into_iter().map(|fence| fence.sequence).collect() })
        });
        let renewed = renewed.await?;
        renewed.ok_or_else(|| {
            // The claim ends, and the call with it.
            self.world().failed(self.life);
            self.refused("renew claims", Change::Renewal)
        })
    }

    async fn give_back(&self, owner: &OwnerId, ids: &[EventId]) -> Result<Vec<EventId>, StoreError> {
        self.run("give_back", |world| {
            let locked: Vec<EventId> =
                world.table.rows.values().filter(|row| world.is_locked(row.seq)).map(|row| row.event_id).collect();
            let free: Vec<EventId> = ids.iter().copied().filter(|id| !locked.contains(id)).collect();
            let line = format!("{} gives back {free:?}", world.name(self.life));
            world.note(line);
            world.table.give_back(owner, &free)
        })
        .await
    }

    async fn count_start(&self, fence: Fence) -> Result<bool, StoreError> {
        self.run_on(&[fence.sequence], "count_start", |world| world.table.count_start(fence)).await
    }

    async fn uncount_start(&self, sequence: u64) -> Result<(), StoreError> {
        self.run_on(&[sequence], "uncount_start", |world| world.table.uncount_start(sequence)).await
    }
}
