//! The table of the partitions, as `host/store/src/partition.rs` describes it: of two partitions, and without a clock.

use std::time::Duration;

use async_trait::async_trait;
use shuttle::sync::Mutex;

use crate::event::OwnerId;
use crate::time::Timestamp;

/// So many that one can be kept while another is given back.
pub(crate) const PARTITIONS: u16 = 2;

/// As the host's.
pub(crate) const LARGEST_EPOCH: u32 = 2_147_000_000;

/// As the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldPartition {
    pub(crate) number: u16,
    pub(crate) epoch: u32,
    pub(crate) abandoned: bool,
}

/// Mirrors the host's `Position`. These checks read no events, so no value is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) due_at: Timestamp,
    pub(crate) sequence: u64,
}

/// Never: this table answers always.
#[derive(Debug)]
pub(crate) enum StoreError {}

/// What the partitions are asked of.
#[async_trait]
pub(crate) trait Store: Send + Sync {
    async fn keep_partitions(&self, owner: &OwnerId, most: u16, of: u16) -> Result<Vec<HeldPartition>, StoreError>;
    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError>;
    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError>;
}

/// Who owns each partition, and under which epoch.
#[derive(Debug, Default)]
pub(crate) struct PartitionTable(Mutex<[Row; PARTITIONS as usize]>);

#[derive(Clone, Debug, Default)]
struct Row {
    owner: Option<OwnerId>,
    epoch: u32,
}

impl PartitionTable {
    /// Whether somebody owns a partition under this epoch.
    pub(crate) fn is_owner(&self, owner: &OwnerId, number: u16, epoch: u32) -> bool {
        let row = self.row(number);
        row.owner.as_ref() == Some(owner) && row.epoch == epoch
    }

    /// Whether somebody owns a partition.
    pub(crate) fn has(&self, owner: &OwnerId, number: u16) -> bool {
        self.row(number).owner.as_ref() == Some(owner)
    }

    /// How often a partition has got another owner.
    pub(crate) fn epoch(&self, number: u16) -> u32 {
        self.row(number).epoch
    }

    /// Another owner takes a partition, whose lease is over.
    pub(crate) fn is_taken_by(&self, owner: &OwnerId, number: u16) {
        let row = &mut self.0.lock().expect("nobody panics with it")[usize::from(number)];
        row.owner = Some(owner.clone());
        row.epoch += 1;
    }

    fn row(&self, number: u16) -> Row {
        self.0.lock().expect("nobody panics with it")[usize::from(number)].clone()
    }
}

#[async_trait]
impl Store for PartitionTable {
    async fn keep_partitions(&self, owner: &OwnerId, most: u16, of: u16) -> Result<Vec<HeldPartition>, StoreError> {
        let mut rows = self.0.lock().expect("nobody panics with it");
        let mut held = rows.iter().filter(|row| row.owner.as_ref() == Some(owner)).count();
        for row in rows.iter_mut().take(usize::from(of)).filter(|row| row.owner.is_none()) {
            if held < usize::from(most) {
                row.owner = Some(owner.clone());
                row.epoch += 1;
                held += 1;
            }
        }
        let numbered = (0..PARTITIONS).zip(rows.iter()).filter(|(_, row)| row.owner.as_ref() == Some(owner));
        Ok(numbered.map(|(number, row)| HeldPartition { number, epoch: row.epoch, abandoned: false }).collect())
    }

    async fn release_partitions(&self, owner: &OwnerId, partitions: &[HeldPartition]) -> Result<(), StoreError> {
        let mut rows = self.0.lock().expect("nobody panics with it");
        for held in partitions {
            let row = &mut rows[usize::from(held.number)];
            if row.owner.as_ref() == Some(owner) && row.epoch == held.epoch {
                row.owner = None;
            }
        }
        Ok(())
    }

    async fn leave(&self, owner: &OwnerId) -> Result<(), StoreError> {
        let mut rows = self.0.lock().expect("nobody panics with it");
        for row in rows.iter_mut().filter(|row| row.owner.as_ref() == Some(owner)) {
            row.owner = None;
        }
        Ok(())
    }
}
