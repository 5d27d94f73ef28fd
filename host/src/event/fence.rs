//! The proof that a claim is still ours.

use std::sync::Arc;

/// Names one claim of one row. Whoever writes an outcome must hold the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The row's `seq`.
    pub sequence: u64,
    /// The row's `claim_seq` as the claim left it.
    pub claim: u64,
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

    /// The owner as it stands in `locked_by`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
