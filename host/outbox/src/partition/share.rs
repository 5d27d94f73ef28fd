//! How many partitions a host is to hold.

use crate::event::OwnerId;
use crate::store::{HeldPartition, PARTITIONS, Store, StoreError};

/// How many partitions a host is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// As many as each other live host.
    Even,
    /// All of them, or none: one host works, and another takes over when it is gone.
    Whole,
    /// None: this host stops, or stands aside.
    None,
}

impl Share {
    /// Takes free partitions. Returns the partitions that are held then, and how many of them are to be kept.
    pub(super) async fn keep(
        self,
        store: &dyn Store,
        owner: &OwnerId,
        live: u32,
    ) -> Result<(Vec<HeldPartition>, u16), StoreError> {
        if self == Self::None {
            return Ok((keep_known(store, owner, 0, PARTITIONS).await?, 0));
        }
        if self == Self::Even {
            let share = PARTITIONS.div_ceil(u16::try_from(live.max(1)).unwrap_or(u16::MAX));
            return Ok((keep_known(store, owner, share, PARTITIONS).await?, share));
        }
        // Who has the first has them all: two hosts that begin at once do not end with a part each.
        let held = keep_known(store, owner, PARTITIONS, 1).await?;
        if held.first().is_none_or(|first| first.number != 0) {
            return Ok((held, 0));
        }
        if held.len() == usize::from(PARTITIONS) {
            return Ok((held, PARTITIONS));
        }
        // The first may have been taken by the statement before, which says so only once.
        let mut all = keep_known(store, owner, PARTITIONS, PARTITIONS).await?;
        for before in held.iter().filter(|before| before.abandoned) {
            if let Some(now) = all.iter_mut().find(|now| (now.number, now.epoch) == (before.number, before.epoch)) {
                now.abandoned = true;
            }
        }
        Ok((all, PARTITIONS))
    }
}

/// Keeps partitions as [`keep_partitions`](crate::store::PartitionStore::keep_partitions) does. Skips surplus rows, which an operator inserted.
async fn keep_known(store: &dyn Store, owner: &OwnerId, most: u16, of: u16) -> Result<Vec<HeldPartition>, StoreError> {
    let mut held = store.keep_partitions(owner, most, of).await?;
    held.retain(|held| held.number < PARTITIONS);
    Ok(held)
}
