//! The fence of a delivery: an outcome is stored only under the newest one.

use std::sync::Arc;

/// Names one delivery of one row, claimed or read. Whoever writes an outcome must hold the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The row's `seq`.
    pub sequence: u64,
    /// The epoch of the row's partition in the upper 32 bits, 0 for a row that was claimed by its own insert; below it the row's
    /// `claim_seq` as it was claimed or read. Larger at every delivery of the row.
    pub claim: u64,
}

impl Fence {
    /// The fence of a row that was claimed or read with this `claim_seq`, of which the lower 32 bits count.
    #[must_use]
    pub const fn new(sequence: u64, epoch: u32, claim_seq: u64) -> Self {
        Self { sequence, claim: (epoch as u64) << 32 | claim_seq & 0xffff_ffff }
    }

    /// The epoch under which the row was read.
    #[doc(hidden)] // for the host
    #[must_use]
    pub const fn epoch(self) -> u32 {
        (self.claim >> 32) as u32
    }

    /// The lower 32 bits of the row's `claim_seq`, as it was claimed or read.
    #[doc(hidden)] // for the host
    #[must_use]
    pub const fn claim_seq(self) -> u64 {
        self.claim & 0xffff_ffff
    }
}

/// Who claims: new at every start of a process, so that nobody takes up the leases of an earlier life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// A new owner; `label` (a host name, say) is for people only and is cut to 64 characters.
    #[must_use]
    pub fn generate(label: &str) -> Self {
        let label: String = label.chars().filter(|c| !c.is_control()).take(64).collect();
        Self(Arc::from(format!("{label}/{}", ulid::Ulid::generate())))
    }

    /// The owner that stands in a row.
    #[must_use]
    pub fn known(owner: &str) -> Self {
        Self(Arc::from(owner))
    }

    /// The owner as it stands in `locked_by`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
