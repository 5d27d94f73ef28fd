//! The partitions, and who owns each.

use async_trait::async_trait;
use outbox::StoreError;
use outbox::event::OwnerId;
use outbox::store::{HeldPartition, PartitionFaults, PartitionStore};

use super::MemoryStore;

#[async_trait]
impl PartitionStore for MemoryStore {
    async fn keep_partitions(&self, owner: &OwnerId, most: u16, of: u16) -> Result<Vec<HeldPartition>, StoreError> {
        self.run("keep_partitions", |world| {
            let before = world.table.epochs.clone();
            let kept = world.table.keep_partitions(owner.as_str(), most, of);
            let taken: Vec<&HeldPartition> =
                kept.iter().filter(|kept| before[usize::from(kept.number)] != kept.epoch).collect();
            let abandoned: Vec<u16> = taken.iter().filter(|taken| taken.abandoned).map(|taken| taken.number).collect();
            if !taken.is_empty() {
                let line = format!(
                    "{} takes {} partitions, {} of them abandoned",
                    world.name(self.life),
                    taken.len(),
                    abandoned.len()
                );
                world.note(line);
            }
            world.lost(|world, row| row.locked_by.is_none() && abandoned.contains(&world.table.partition(row)));
            kept
        })
        .await
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
        self.run("release_partitions", |world| {
            let line = format!("{} gives back {} partitions", world.name(self.life), partitions.len());
            world.note(line);
            world.table.release_partitions(owner.as_str(), partitions);
        })
        .await
    }

    async fn partition_faults(&self) -> Result<PartitionFaults, StoreError> {
        self.run("partition_faults", |_| PartitionFaults::default()).await
    }

    async fn restore_partitions(&self) -> Result<PartitionFaults, StoreError> {
        self.run("restore_partitions", |_| PartitionFaults::default()).await
    }
}
