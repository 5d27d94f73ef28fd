//! What waits behind what.

use async_trait::async_trait;
use outbox::StoreError;
use outbox::store::{BlockedKey, Blocker, KeyStore, Unblocked, WaitsFor};

use super::MemoryStore;

#[async_trait]
impl KeyStore for MemoryStore {
    async fn heads(&self, events: &[u64], waits_for: WaitsFor) -> Result<Vec<(u64, u64)>, StoreError> {
        self.run("heads", |world| world.table.heads(events, waits_for)).await
    }

    async fn blockers(&self, partitions: &[u16], after: u64, limit: u32) -> Result<Vec<Blocker>, StoreError> {
        self.run("blockers", |world| world.table.blockers(partitions, after, limit)).await
    }

    async fn unblock(&self, blockers: &[u64], waits_for: WaitsFor, limit: u32) -> Result<Unblocked, StoreError> {
        self.run("unblock", |world| {
            let unblocked = world.table.unblock(blockers, waits_for, limit);
            if !unblocked.cleared.is_empty() || !unblocked.left.is_empty() {
                let line = format!("{} lets go from behind {blockers:?}: {unblocked:?}", world.name(self.life));
                world.note(line);
            }
            unblocked
        })
        .await
    }

    async fn blocked_keys(&self, _: u32) -> Result<Vec<BlockedKey>, StoreError> {
        unreachable!("only people ask which keys are blocked")
    }
}
