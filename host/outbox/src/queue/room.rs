//! An amount of queue capacity.

/// A number of events and of bytes: free or taken capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Room {
    /// The sum of both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { events: self.events.saturating_add(other.events), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// The part of this capacity that is left after `taken`.
    pub(crate) fn without(self, taken: Self) -> Self {
        Self { events: self.events.saturating_sub(taken.events), bytes: self.bytes.saturating_sub(taken.bytes) }
    }
}
